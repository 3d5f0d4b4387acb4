"""Transformers of bench/data, written in plain torch: BERT, ELECTRA, BART, Transformer, Transformer-XL, GPT, MPT."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class OldLogSoftmax(torch.autograd.Function):
    """log_softmax as torch computed it up to 1.10: it keeps its input beside its result, which may be of another precision.

    Source: tools/autograd/derivatives.yaml of those versions, `_log_softmax_backward_data(grad, result, dim, self)`.
    """

    @staticmethod
    def forward(context: Any, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=kind).copy_(x)
        context.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(context: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        x, _ = context.saved_tensors
        return torch.empty_like(x).copy_(grad), None


class Attention(nn.Module):
    """Attention over heads; `fused`: through scaled_dot_product_attention, which keeps no scores."""

    def __init__(self, width: int, heads: int, *, causal: bool, fused: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.size(0), y.size(1), self.heads, -1).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(other)), split(self.value(other))
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.size(-1))
            scores = scores + torch.zeros(1, 1, x.size(1), other.size(1), dtype=scores.dtype)
            mixed = self.drop(scores.softmax(-1)) @ value
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def _gelu(x: torch.Tensor) -> torch.Tensor:
    """As BERT's scripts write it, each factor kept. Source: DeepLearningExamples PyTorch/LanguageModeling/BERT, modeling.py."""
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


class Layer(nn.Module):
    """One layer; `across`: it also attends to an encoder's output."""

    def __init__(
        self, width: int, heads: int, inner: int, *, causal: bool, fused: bool, dropout: float, across: bool, relu: bool
    ) -> None:
        super().__init__()
        self.attend = Attention(width, heads, causal=causal, fused=fused, dropout=dropout)
        self.across = Attention(width, heads, causal=False, fused=fused, dropout=dropout) if across else None
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if across else 2))
        self.drop = nn.Dropout(dropout)
        self.relu, self.fused = relu, fused

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        x = self.norms[0](x + self.drop(self.attend(x, x)))
        if self.across is not None and memory is not None:
            x = self.norms[2](x + self.drop(self.across(x, memory)))
        inner = self.up(x)
        return self.norms[1](
            x + self.drop(self.down(F.relu(inner) if self.relu else F.gelu(inner) if self.fused else _gelu(inner)))
        )


class Encoder(nn.Module):
    """Token and place embeddings and layers; `vocabulary_head`: tied logits over the vocabulary, else two values a token (SQuAD)."""

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        layers: int,
        vocabulary: int,
        places: int = 512,
        causal: bool = False,
        fused: bool = False,
        dropout: float = 0.1,
        recompute: bool = False,
        vocabulary_head: bool = False,
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(width, heads, 4 * width, causal=causal, fused=fused, dropout=dropout, across=False, relu=False)
            for _ in range(layers)
        )
        self.recompute = recompute
        self.head = None if vocabulary_head else nn.Linear(width, 2)
        self.mix = (
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
            if vocabulary_head and not causal
            else None
        )

    def forward(self, argv: torch.Tensor, picked: int | None = None) -> torch.Tensor:
        x = self.drop(self.norm(self.tokens(argv) + self.places(torch.arange(argv.size(1)))))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        if self.head is not None:
            return self.head(x)
        if picked is not None:
            x = x.reshape(-1, x.size(-1))[: picked * argv.size(0)]
        return (self.mix(x) if self.mix is not None else x) @ self.tokens.weight.t()


class Seq2Seq(nn.Module):
    """Transformer (big) and BART-large: an encoder, a decoder, one vocabulary tied everywhere."""

    def __init__(self, *, width: int, heads: int, layers: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.1)

        def stack(across: bool) -> nn.ModuleList:
            return nn.ModuleList(
                Layer(width, heads, inner, causal=across, fused=False, dropout=0.1, across=across, relu=True)
                for _ in range(layers)
            )

        self.encoder, self.decoder = stack(False), stack(True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory = self.drop(self.tokens(source))
        for layer in self.encoder:
            memory = layer(memory)
        x = self.drop(self.tokens(target))
        for layer in self.decoder:
            x = layer(x, memory)
        return x @ self.tokens.weight.t()


class RelativeLayer(nn.Module):
    """A layer of Transformer-XL. Source: DeepLearningExamples PyTorch/LanguageModeling/Transformer-XL, mem_transformer.py."""

    def __init__(self, width: int, heads: int, head: int, inner: int, dropout: float, dropatt: float) -> None:
        super().__init__()
        self.heads, self.head = heads, head
        self.qkv = nn.Linear(width, 3 * heads * head, bias=False)
        self.r = nn.Linear(width, heads * head, bias=False)
        self.o = nn.Linear(heads * head, width, bias=False)
        self.drop, self.dropatt = nn.Dropout(dropout), nn.Dropout(dropatt)
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.core = nn.Sequential(
            nn.Linear(width, inner),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(inner, width),
            nn.Dropout(dropout),
        )

    def forward(
        self, w: torch.Tensor, r: torch.Tensor, u: torch.Tensor, v: torch.Tensor, past: torch.Tensor
    ) -> torch.Tensor:
        q_len, batch, k_len = w.size(0), w.size(1), r.size(0)
        q, k, value = self.qkv(torch.cat([past, w], 0)).chunk(3, -1)
        q = q[-q_len:].view(q_len, batch, self.heads, self.head)
        k, value = (y.view(k_len, batch, self.heads, self.head) for y in (k, value))
        place = self.r(r).view(k_len, self.heads, self.head)
        content = torch.einsum("ibnd,jbnd->bnij", q + u, k)
        shifted = torch.einsum("ibnd,jnd->bnij", q + v, place)
        zero = torch.zeros(batch, self.heads, q_len, 1, dtype=shifted.dtype)
        shifted = (
            torch.cat([zero, shifted], 3)
            .view(batch, self.heads, k_len + 1, q_len)
            .narrow(2, 1, k_len)
            .view(content.shape)
        )
        scores = (content + shifted) * self.head**-0.5
        scores = scores.masked_fill(torch.zeros(1, 1, q_len, k_len, dtype=torch.bool), -1e4)
        mixed = torch.einsum("bnij,jbnd->ibnd", self.dropatt(scores.softmax(3)), value)
        out = self.norm(w + self.drop(self.o(mixed.reshape(q_len, batch, -1))))
        return self.norm2(out + self.core(out))


class TransformerXL(nn.Module):
    """Transformer-XL on WikiText-103; `adaptive`: rare words are predicted in clusters, which the script does only when asked."""

    cutoffs = (19997, 39997, 199997, 267735)
    # Shares of tokens in the three rare clusters, about Zipf's law over the cutoffs: no source counts them.
    rare = (0.04, 0.05, 0.01)

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        layers: int,
        inner: int,
        length: int,
        dropout: float,
        dropatt: float,
        adaptive: bool,
    ) -> None:
        super().__init__()
        self.length, self.adaptive = length, adaptive
        self.tokens = nn.Embedding(self.cutoffs[-1], width)
        self.layers = nn.ModuleList(RelativeLayer(width, heads, 64, inner, dropout, dropatt) for _ in range(layers))
        self.u, self.v = nn.Parameter(torch.zeros(heads, 64)), nn.Parameter(torch.zeros(heads, 64))
        self.drop = nn.Dropout(dropout)
        self.clusters = nn.Linear(width, 3)
        self.bias = nn.Parameter(torch.zeros(self.cutoffs[-1]))

    def forward(self, argv: torch.Tensor, past: list[torch.Tensor]) -> torch.Tensor:
        x = self.drop(self.tokens(argv) * self.tokens.embedding_dim**0.5)
        r = self.drop(torch.zeros(2 * self.length, self.tokens.embedding_dim, dtype=x.dtype))
        kept = []
        for layer, before in zip(self.layers, past, strict=True):
            kept.append(x.detach())
            x = layer(x, r, self.u, self.v, before)
        stacked = torch.stack(kept)
        loss = self._loss(self.drop(x).view(-1, x.size(-1)))
        return loss + 0.0 * stacked[0, 0, 0, 0].float()

    def _loss(self, hidden: torch.Tensor) -> torch.Tensor:
        if not self.adaptive:
            logits = F.linear(hidden, self.tokens.weight, self.bias)
            chosen = torch.zeros(hidden.size(0), 1, dtype=torch.long)
            return -OldLogSoftmax.apply(logits, logits.dtype).gather(1, chosen).squeeze(1).float().mean()
        weight = torch.cat([self.tokens.weight[: self.cutoffs[0]], self.clusters.weight], 0)
        bias = torch.cat([self.bias[: self.cutoffs[0]], self.clusters.bias], 0)
        head = F.linear(hidden, weight, bias).log_softmax(1)
        total = head[:, 0].sum().float()
        for at, share in enumerate(self.rare):
            some = hidden[: max(1, round(share * hidden.size(0)))]
            low, high = self.cutoffs[at], self.cutoffs[at + 1]
            tail = F.linear(some, self.tokens.weight[low:high], self.bias[low:high]).log_softmax(1)
            total = total + (head[: some.size(0), -at - 1] + tail[:, 0]).sum().float()
        return -total


def squad(length: int = 384):  # noqa: ANN201
    """A step of question answering: a start and an end for each sequence."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        out = model(torch.zeros(batch, length, dtype=torch.long)).float()
        truth = torch.zeros(batch, dtype=torch.long)
        return F.cross_entropy(out[..., 0], truth) + F.cross_entropy(out[..., 1], truth)

    return step


def masked(length: int, picked: int | None):  # noqa: ANN201
    """A step of language modelling; `picked`: only so many tokens of a sequence are predicted, None: all of them."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        out = model(torch.zeros(batch, length, dtype=torch.long), picked).float()
        out = out.view(-1, out.size(-1))
        return F.cross_entropy(out, torch.zeros(out.size(0), dtype=torch.long))

    return step


def pairs(source: int, target: int):  # noqa: ANN201
    """A step of translation or summarization."""

    def step(model: nn.Module, batch: int) -> torch.Tensor:
        out = model(torch.zeros(batch, source, dtype=torch.long), torch.zeros(batch, target, dtype=torch.long)).float()
        return F.cross_entropy(
            out.view(-1, out.size(-1)), torch.zeros(batch * target, dtype=torch.long), label_smoothing=0.1
        )

    return step


def corpus(devices: int) -> torch.Tensor:
    """WikiText-103 as the script of 2019 puts it on each device; the length is that of its logs, 268,821 batches of 2 x 192."""
    return torch.zeros(268_821 * 2 * 192 // devices, dtype=torch.long)


def jit_lamb(parameters: int) -> Any:
    """The update of one parameter as the script's LAMB does it; what it makes, its four inputs aside. Source: the same folder, lamb.py."""
    parameter, gradient, first, second = (torch.zeros(parameters) for _ in range(4))
    first = first * 0.9 + 0.1 * gradient
    second = second * 0.999 + 0.001 * (gradient * gradient)
    step = first / (second.sqrt() + 1e-6)
    step = step + 0.0 * parameter
    return first, second, parameter + step * (parameter.norm() / step.norm())


def with_memory(model: nn.Module, batch: int) -> torch.Tensor:
    """A step of Transformer-XL, its memory full."""
    assert isinstance(model, TransformerXL)
    past = [torch.zeros(model.length, batch, model.tokens.embedding_dim) for _ in model.layers]
    return model(torch.zeros(model.length, batch, dtype=torch.long), past)
