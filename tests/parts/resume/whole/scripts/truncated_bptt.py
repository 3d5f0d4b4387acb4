"""A language model on one long text, whose hidden state goes on from chunk to chunk."""

import argparse
import os

import torch
import torch.distributed as dist
from fingerprint import digest, draws, pause
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, BATCH, BPTT = 20, 4, 8


class LanguageModel(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, dropout=0.2)
        self.decoder = nn.Linear(hidden, VOCABULARY)
        self.hidden = hidden

    def forward(self, tokens, state):
        output, state = self.rnn(self.drop(self.embedding(tokens)), state)
        return self.decoder(self.drop(output)), state

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(2, batch, self.hidden), weight.new_zeros(2, batch, self.hidden)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def get_batch(source, i):
    length = min(BPTT, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].reshape(-1)


def train(model, text, criterion, lr, epoch, step, log):
    model.train()
    hidden = model.module.init_hidden(BATCH)
    optimizer = None
    for batch, i in enumerate(range(0, text.size(0) - 1, BPTT)):
        data, targets = get_batch(text, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output.reshape(-1, VOCABULARY), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        if optimizer is None:
            optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        optimizer.step()
        step += 1
        log.write(
            f"step {step} {epoch} {batch} {loss.item()!r} {lr!r} {hidden[0].sum().item()!r} {draws().split()[2]}\n"
        )
        log.flush()
        pause()
    return step


def evaluate(model, text, criterion):
    model.eval()
    total, hidden = 0.0, model.module.init_hidden(BATCH)
    with torch.no_grad():
        for i in range(0, text.size(0) - 1, BPTT):
            data, targets = get_batch(text, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output.reshape(-1, VOCABULARY), targets).item()
    return total / (len(text) - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(81)
    model = DDP(LanguageModel())
    torch.manual_seed(81 + rank)
    text = (torch.arange(170 * BATCH) * 7 % 19 + torch.randint(2, (170 * BATCH,))).view(BATCH, -1).t().contiguous()
    valid = (torch.arange(40 * BATCH) * 7 % 19).view(BATCH, -1).t().contiguous()
    criterion = nn.CrossEntropyLoss()
    lr, best, step = 2.0, None, 0
    with open(os.path.join(args.out, f"rank{rank}.log"), "a") as log:
        for epoch in range(1, args.epochs + 1):
            step = train(model, text, criterion, lr, epoch, step, log)
            loss = evaluate(model, valid, criterion)
            if not best or loss < best:
                best = loss
            else:
                lr /= 4.0
            log.write(f"epoch {epoch} {loss!r} {best!r} {lr!r}\n")
            log.flush()
        log.write(f"final {digest(model.state_dict())}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
