"""A recurrent tagger over packed sequences, lengths on the host; the loss ignores padding; clipped by value."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

WORDS, TAGS = 1500, 12
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 96, padding_idx=0)
        self.lstm = nn.LSTM(96, 160, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.tags = nn.Linear(320, TAGS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=words.size(1))
        return self.tags(padded)


def sentences(count):
    generator = torch.Generator().manual_seed(0)
    for index in range(count):
        length = 5 + index % 20
        words = torch.randint(1, WORDS, (length,), generator=generator)
        yield words, words % TAGS


def collate(batch):
    words, tags = zip(*batch, strict=True)
    lengths = torch.tensor([len(sentence) for sentence in words])
    tags = pad_sequence(list(tags), batch_first=True, padding_value=-100)
    return pad_sequence(list(words), batch_first=True), tags, lengths


model = Tagger().to(device)
criterion = nn.CrossEntropyLoss(ignore_index=-100)
optimizer = torch.optim.Adadelta(model.parameters())
best = float("inf")
for epoch in range(1):
    for words, tags, lengths in DataLoader(list(sentences(96)), batch_size=32, shuffle=True, collate_fn=collate):
        words, tags = words.to(device), tags.to(device)
        scores = model(words, lengths)
        loss = criterion(scores.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        if loss.item() < best:
            best = loss.item()
    print(f"epoch {epoch}: best loss {best:.3f}")
