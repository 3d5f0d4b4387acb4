"""bfloat16 autocast over nn.TransformerEncoder: padded sentences, warm-up by LambdaLR, two groups of parameters."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY, WIDTH, CLASSES = 2000, 128, 4
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Sentences(Dataset):
    """Sentences of 8 to 31 words, the class is the length's."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        length = 8 + index % 24
        words = torch.randint(1, VOCABULARY, (length,), generator=torch.Generator().manual_seed(index))
        return words, length % CLASSES


def collate(samples):
    words, labels = zip(*samples, strict=True)
    return pad_sequence(list(words), batch_first=True), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.position = nn.Parameter(torch.zeros(1, 32, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words):
        padding = words == 0
        x = self.words(words) + self.position[:, : words.shape[1]]
        x = self.encoder(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        return self.head((x * kept).sum(dim=1) / kept.sum(dim=1))


def main():
    model = Classifier().to(device)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=3e-4
    )
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    loader = DataLoader(Sentences(), batch_size=24, collate_fn=collate, drop_last=True)
    for step, (words, labels) in enumerate(loader):
        words, labels = words.to(device), labels.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(words), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        print(f"step {step} loss {loss.item():.3f} norm {norm:.2f}")


if __name__ == "__main__":
    main()
