"""Recurrent networks of bench/data: GNMT v2 and Tacotron 2; their LSTMs keep what cuDNN keeps."""

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from workloads.attention import OldLogSoftmax


class _Recurrence(torch.autograd.Function):
    """An LSTM layer as cuDNN runs it: four gates and a cell of each step are kept, the products of all steps are matrix products."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        steps = x.reshape(-1, x.size(-1))
        gates = steps @ w.t().to(x.dtype)
        hidden = gates[:, : u.size(1)].clone()
        gates += hidden @ u.t().to(x.dtype)
        reserve = torch.cat([gates, hidden], 1)
        context.save_for_backward(x, w, u, hidden, reserve)
        return hidden.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(context: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, w, u, hidden, reserve = context.saved_tensors
        gates = reserve[:, : w.size(0)] * 1.0
        gates[:, : u.size(1)] += gates @ u.to(gates.dtype)
        grad_w = gates.t() @ x.reshape(-1, x.size(-1))
        grad_u = gates.t() @ hidden
        return (gates @ w.to(gates.dtype)).view(x.shape), grad_w.to(w.dtype), grad_u.to(u.dtype)


class LSTM(nn.Module):
    """One layer over a whole sequence; `half` products under autocast."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4 * width, inputs))
        self.u = nn.Parameter(torch.zeros(4 * width, width))
        self.biases = nn.Parameter(torch.zeros(8 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.bfloat16)
        return _Recurrence.apply(x, self.w, self.u) + 0.0 * self.biases.sum().to(x.dtype)


class GNMT(nn.Module):
    """GNMT v2, four layers of 1024. Source: DeepLearningExamples PyTorch/Translation/GNMT, seq2seq/models."""

    def __init__(self, vocabulary: int = 32320, width: int = 1024) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.2)
        self.forth, self.back = LSTM(width, width), LSTM(width, width)
        self.encoder = nn.ModuleList([LSTM(2 * width, width), LSTM(width, width), LSTM(width, width)])
        self.first = LSTM(width, width)
        self.decoder = nn.ModuleList(LSTM(2 * width, width) for _ in range(3))
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.mix = nn.Parameter(torch.zeros(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.tokens(source))
        x = torch.cat([self.forth(x), self.back(x)], 2)
        for at, layer in enumerate(self.encoder):
            y = layer(self.drop(x))
            x = y + x if at else y
        return self.head(self._decode(x, self.tokens(target)))

    def _decode(self, memory: torch.Tensor, argv: torch.Tensor) -> torch.Tensor:
        x = self.first(self.drop(argv))
        query, key = self.query(x.transpose(0, 1)), self.key(memory.transpose(0, 1))
        both = query.unsqueeze(2) + key.unsqueeze(1) + self.bias.to(query.dtype)
        scores = (torch.tanh(both) @ self.mix.to(both.dtype)).softmax(-1)
        seen = torch.bmm(scores.to(memory.dtype), memory.transpose(0, 1)).transpose(0, 1)
        for at, layer in enumerate(self.decoder):
            y = layer(self.drop(torch.cat([x, seen], 2)))
            x = y + x if at else y
        return x


def translation(length: int):  # noqa: ANN201
    """A step of translation of sentences of `length` tokens on both sides, with label smoothing written as the script writes it."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        argv = torch.zeros(length, batch, dtype=torch.long)
        out = model(argv, argv)
        logs = OldLogSoftmax.apply(out.view(-1, out.size(-1)), torch.float32)
        chosen = logs.gather(1, torch.zeros(logs.size(0), 1, dtype=torch.long))
        return -(0.9 * chosen.squeeze(1) + 0.1 * logs.mean(-1)).sum()

    return step


class Tacotron2(nn.Module):
    """Tacotron 2. Source: DeepLearningExamples PyTorch/SpeechSynthesis/Tacotron2, tacotron2/model.py."""

    def __init__(self) -> None:
        super().__init__()

        def convolutions(sizes: list[int]) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Sequential(nn.Conv1d(one, other, 5, padding=2), nn.BatchNorm1d(other))
                for one, other in pairwise(sizes)
            )

        self.letters = nn.Embedding(148, 512)
        self.encoder, self.postnet = convolutions([512] * 4), convolutions([80, 512, 512, 512, 512, 80])
        self.forth, self.back = LSTM(512, 256), LSTM(512, 256)
        self.prenet = nn.ModuleList([nn.Linear(80, 256, bias=False), nn.Linear(256, 256, bias=False)])
        self.attend_rnn, self.decode_rnn = nn.LSTMCell(768, 1024), nn.LSTMCell(1536, 1024)
        self.query, self.memory = nn.Linear(1024, 128, bias=False), nn.Linear(512, 128, bias=False)
        self.score, self.place = nn.Linear(128, 1, bias=False), nn.Conv1d(2, 32, 31, padding=15, bias=False)
        self.place_out = nn.Linear(32, 128, bias=False)
        self.frame, self.gate = nn.Linear(1536, 80), nn.Linear(1536, 1)

    def forward(self, text: torch.Tensor, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.letters(text).transpose(1, 2)
        for layer in self.encoder:
            x = F.dropout(F.relu(layer(x)), 0.5)
        x = x.transpose(1, 2)
        memory = torch.cat([self.forth(x), self.back(x)], 2)
        steps = frames
        for linear in self.prenet:
            steps = F.dropout(F.relu(linear(steps)), 0.5)
        frame, gate = self._decode(memory, steps)
        out = frame.transpose(1, 2)
        for at, layer in enumerate(self.postnet):
            out = F.dropout(torch.tanh(layer(out)) if at < 4 else layer(out), 0.5)
        return frame, frame + out.transpose(1, 2), gate

    def _decode(self, memory: torch.Tensor, steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, kind = memory.size(0), memory.dtype
        key = self.memory(memory)
        h1, c1, h2, c2 = (torch.zeros(batch, 1024, dtype=kind) for _ in range(4))
        seen, weights, total = (
            torch.zeros(batch, 512, dtype=kind),
            torch.zeros(batch, memory.size(1)),
            torch.zeros(batch, memory.size(1)),
        )
        frames, gates = [], []
        for at in range(steps.size(0)):
            h1, c1 = self.attend_rnn(torch.cat([steps[at], seen], -1), (h1, c1))
            h1 = F.dropout(h1, 0.1)
            place = self.place_out(self.place(torch.stack([weights, total], 1)).transpose(1, 2))
            energy = self.score(torch.tanh(self.query(h1.unsqueeze(1)) + place + key)).squeeze(2)
            weights = energy.masked_fill(torch.zeros_like(energy, dtype=torch.bool), -1e9).softmax(1).float()
            seen = torch.bmm(weights.unsqueeze(1).to(kind), memory).squeeze(1)
            total = total + weights
            h2, c2 = self.decode_rnn(torch.cat([h1, seen], -1), (h2, c2))
            h2 = F.dropout(h2, 0.1)
            both = torch.cat([h2, seen], 1)
            frames.append(self.frame(both))
            gates.append(self.gate(both))
        return torch.stack(frames, 1), torch.stack(gates, 1)


def speech(letters: int, frames: int):  # noqa: ANN201
    """A step of Tacotron 2 on sentences padded to `letters` and `frames`."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        frame, final, gate = model(torch.zeros(batch, letters, dtype=torch.long), torch.zeros(frames, batch, 80))
        goal = torch.zeros(frame.shape)
        loss = F.mse_loss(frame.float(), goal) + F.mse_loss(final.float(), goal)
        return loss + F.binary_cross_entropy_with_logits(gate.float(), torch.zeros(gate.shape))

    return step
