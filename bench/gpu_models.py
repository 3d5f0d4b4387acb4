"""Twelve models of several kinds, each with a batch, as `paceline plan --model gpu_models:NAME` and gpu_train.py take them.

Sizes are such that a step takes some milliseconds on a GPU of 2020 or later and needs 0.1 to 8 GiB. Nothing is downloaded.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

ModelAndBatch = dict[str, Any]


def _made(model: nn.Module, batch: torch.Tensor, loss: Callable[..., torch.Tensor] | None = None) -> ModelAndBatch:
    return {"model": model, "batch": batch, "loss": loss or (lambda out, _: out.float().square().mean())}


def perceptron() -> ModelAndBatch:
    """Wide linear layers: nearly all memory is parameters and optimizer state."""
    return _made(
        nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(4096, 4096), nn.GELU()))), torch.randn(512, 4096)
    )


def wide() -> ModelAndBatch:
    """Two very wide layers."""
    return _made(nn.Sequential(nn.Linear(8192, 16384), nn.ReLU(), nn.Linear(16384, 8192)), torch.randn(1024, 8192))


class _Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def _residual(channels: int, blocks: int, batch: int, side: int) -> ModelAndBatch:
    stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
    model = nn.Sequential(
        stem,
        *(_Block(channels) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 1000),
    )
    return _made(model, torch.randn(batch, 3, side, side))


def residual() -> ModelAndBatch:
    """Convolutions on large pictures: nearly all memory is activations."""
    return _residual(64, 8, 32, 224)


def residual_deep() -> ModelAndBatch:
    """Many convolutions on small pictures."""
    return _residual(128, 24, 128, 64)


def u_shape() -> ModelAndBatch:
    """Convolutions down and up again."""
    down = [
        part for a, b in ((3, 32), (32, 64), (64, 128), (128, 256)) for part in (nn.Conv2d(a, b, 3, 2, 1), nn.ReLU())
    ]
    up = [
        part
        for a, b in ((256, 128), (128, 64), (64, 32), (32, 3))
        for part in (nn.ConvTranspose2d(a, b, 2, 2), nn.ReLU())
    ]
    return _made(nn.Sequential(*down, *up), torch.randn(32, 3, 256, 256))


class _Tokens(nn.Module):
    """A transformer over tokens, with its loss."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(tokens)))


def _language(width: int, layers: int, words: int, batch: int, length: int) -> ModelAndBatch:
    tokens = torch.randint(0, words, (batch, length))
    return _made(
        _Tokens(width, layers, words),
        tokens,
        lambda out, wanted: nn.functional.cross_entropy(out.flatten(0, 1), wanted.flatten()),
    )


def language() -> ModelAndBatch:
    """A transformer of the size of GPT-2's smallest."""
    return _language(768, 12, 50257, 4, 512)


def language_long() -> ModelAndBatch:
    """Few layers over long sequences."""
    return _language(512, 4, 8192, 2, 4096)


def language_wide() -> ModelAndBatch:
    """A transformer whose parameters outweigh its activations."""
    return _language(1536, 12, 8192, 2, 256)


class _Recurrent(nn.Module):
    """Recurrent layers over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10000, 650)
        self.body = nn.LSTM(650, 650, 2, batch_first=True)
        self.head = nn.Linear(650, 10000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(tokens))[0])


def recurrent() -> ModelAndBatch:
    """Recurrent layers."""
    tokens = torch.randint(0, 10000, (32, 70))
    return _made(
        _Recurrent(), tokens, lambda out, wanted: nn.functional.cross_entropy(out.flatten(0, 1), wanted.flatten())
    )


class _Tables(nn.Module):
    """Embeddings and a small network over them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(200_000, 64) for _ in range(16))
        self.top = nn.Sequential(nn.Linear(16 * 64, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return self.top(torch.cat([table(keys[:, place]) for place, table in enumerate(self.tables)], 1))


def recommendation() -> ModelAndBatch:
    """Large tables of which a step uses little."""
    return _made(_Tables(), torch.randint(0, 200_000, (8192, 16)))


class _Picture(nn.Module):
    """A transformer over patches of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.head = nn.Linear(768, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def picture() -> ModelAndBatch:
    """A transformer over pictures."""
    return _made(_Picture(), torch.randn(32, 3, 224, 224))


MODELS: dict[str, Callable[[], ModelAndBatch]] = {
    made.__name__: made
    for made in (
        perceptron, wide, residual, residual_deep, u_shape, language, language_long, language_wide, recurrent, recommendation, picture,
    )
}  # fmt: skip


def half() -> ModelAndBatch:
    """The transformer in bfloat16: parameters, gradients and states."""
    made = language()
    return {**made, "model": made["model"].to(torch.bfloat16)}


MODELS["half"] = half
