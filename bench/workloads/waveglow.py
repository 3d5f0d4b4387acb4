"""WaveGlow: twelve flows of dilated convolutions over audio. Source: DeepLearningExamples PyTorch/SpeechSynthesis/Tacotron2, waveglow."""

import torch
from torch import nn

GROUPS, MELS = 8, 80


class Coupling(nn.Module):
    """The network of one flow: eight dilated layers; `channels`: half of what the flow transforms."""

    def __init__(self, channels: int, width: int = 512) -> None:
        super().__init__()
        self.width = width
        self.start, self.end = nn.Conv1d(channels, width, 1), nn.Conv1d(width, 2 * channels, 1)
        self.inner = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**at, padding=2**at) for at in range(8))
        self.given = nn.ModuleList(nn.Conv1d(MELS * GROUPS, 2 * width, 1) for _ in range(8))
        self.split = nn.ModuleList(nn.Conv1d(width, 2 * width if at < 7 else width, 1) for at in range(8))

    def forward(self, audio: torch.Tensor, mels: torch.Tensor) -> torch.Tensor:
        audio = self.start(audio)
        total = torch.zeros_like(audio)
        for at in range(8):
            both = self.inner[at](audio) + self.given[at](mels)
            out = self.split[at](torch.tanh(both[:, : self.width]) * torch.sigmoid(both[:, self.width :]))
            if at < 7:
                audio = out[:, : self.width] + audio
                out = out[:, self.width :]
            total = total + out
        return self.end(total)


class WaveGlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(MELS, MELS, 1024, stride=256)
        sizes = [8, 8, 8, 8, 6, 6, 6, 6, 4, 4, 4, 4]
        self.turns = nn.ModuleList(nn.Conv1d(size, size, 1, bias=False) for size in sizes)
        self.flows = nn.ModuleList(Coupling(size // 2) for size in sizes)

    def forward(self, mels: torch.Tensor, audio: torch.Tensor) -> torch.Tensor:
        spread = self.up(mels)[:, :, : audio.size(1)]
        spread = (
            spread.unfold(2, GROUPS, GROUPS)
            .permute(0, 2, 1, 3)
            .contiguous()
            .view(audio.size(0), -1, MELS * GROUPS)
            .permute(0, 2, 1)
        )
        audio = audio.unfold(1, GROUPS, GROUPS).permute(0, 2, 1)
        loss = torch.zeros(())
        for turn, flow in zip(self.turns, self.flows, strict=True):
            if audio.size(1) != turn.weight.size(0):
                loss = loss + (audio[:, :2] ** 2).sum()
                audio = audio[:, 2:]
            audio = turn(audio)
            first, second = audio.chunk(2, 1)
            scale, shift = flow(first, spread).chunk(2, 1)
            loss = loss - scale.sum()
            audio = torch.cat([first, torch.exp(scale) * second + shift], 1)
        return loss + (audio**2).sum()


def audio(samples: int):  # noqa: ANN201
    """A step on segments of `samples` values of audio."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        return model(torch.zeros(batch, MELS, samples // 256 + 1), torch.zeros(batch, samples)).float()

    return step
