"""The workloads of bench/data whose models are built here, each with the batch at which it is traced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from workloads import attention, convolution, recommendation, recurrent, waveglow


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with its data.

    `family`: transformer, cnn, recurrent or recommendation. `states`: values that its optimizer keeps for each parameter (Adam and LAMB 2,
    SGD with momentum 1). `prepare`: what the script does on the device before the first step, for a number of devices. `update`: the
    update of one parameter of a number of values, where it makes more than the default of the planner.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    step: Callable[[nn.Module, int], Tensor]
    batch: int
    states: int = 2
    prepare: Callable[[int], Any] | None = None
    update: Callable[[int], Any] | None = None


def _bert(width: int, layers: int, **more: Any) -> Callable[[], nn.Module]:
    return lambda: attention.Encoder(width=width, heads=width // 64, layers=layers, vocabulary=30522, **more)


def _xl(*, adaptive: bool) -> Callable[[], nn.Module]:
    return lambda: attention.TransformerXL(
        width=512, heads=8, layers=16, inner=2048, length=192, dropout=0.1, dropatt=0.0, adaptive=adaptive
    )


def _gpt(
    width: int, layers: int, heads: int, *, vocabulary: int, places: int, fused: bool, recompute: bool
) -> Callable[[], nn.Module]:
    return lambda: attention.Encoder(
        width=width,
        heads=heads,
        layers=layers,
        vocabulary=vocabulary,
        places=places,
        causal=True,
        fused=fused,
        dropout=0.0 if fused else 0.1,
        recompute=recompute,
        vocabulary_head=True,
    )


def _vtrain(width: int, layers: int) -> Case:
    build = _gpt(width, layers, 16, vocabulary=51200, places=1024, fused=False, recompute=True)
    return Case(
        name=f"gpt-h{width}-l{layers}", family="transformer", build=build, step=attention.masked(1024, None), batch=16
    )


def _mpt(name: str, width: int, layers: int, heads: int, recompute: bool) -> Case:
    build = _gpt(width, layers, heads, vocabulary=50368, places=2048, fused=True, recompute=recompute)
    return Case(
        name=f"mpt-{name}",
        family="transformer",
        build=build,
        step=attention.masked(2048, None),
        batch=16 if recompute else 4,
    )


def _cnn(name: str, build: Callable[[], nn.Module], size: int, batch: int) -> Case:
    return Case(name=name, family="cnn", build=build, step=convolution.images(size), batch=batch, states=1)


CASES: tuple[Case, ...] = (
    _cnn("resnet50", lambda: convolution.resnet((3, 4, 6, 3)), 224, 128),
    _cnn("resnet152", lambda: convolution.resnet((3, 8, 36, 3)), 224, 64),
    _cnn("vgg16", convolution.vgg16, 224, 64),
    _cnn("inception3", convolution.inception_v3, 299, 64),
    _cnn("efficientnet-b0", lambda: convolution.efficientnet(1.0, 1.0), 224, 128),
    _cnn("efficientnet-b4", lambda: convolution.efficientnet(1.4, 1.8), 380, 64),
    Case(name="ssd300", family="cnn", build=convolution.SSD300, step=convolution.boxes, batch=64, states=1),
    Case(name="waveglow", family="cnn", build=waveglow.WaveGlow, step=waveglow.audio(8000), batch=8),
    Case(name="bert-base-384", family="transformer", build=_bert(768, 12), step=attention.squad(), batch=16),
    Case(name="bert-large-384", family="transformer", build=_bert(1024, 24), step=attention.squad(), batch=8),
    *(
        Case(
            name=f"bert-{size}-{length}",
            family="transformer",
            build=_bert(width, layers, vocabulary_head=True),
            step=attention.masked(length, length * 20 // 128),
            batch=4096 // length,
        )
        for size, width, layers in (("large", 1024, 24), ("base", 768, 12))
        for length in (128, 512)
    ),
    *(
        Case(
            name=f"bart-large-{length}",
            family="transformer",
            build=lambda: attention.Seq2Seq(width=1024, heads=16, layers=12, inner=4096, vocabulary=50265),
            step=attention.pairs(length, length),
            batch=4096 // length,
        )
        for length in (128, 512)
    ),
    Case(
        name="transformer-big",
        family="transformer",
        build=lambda: attention.Seq2Seq(width=1024, heads=16, layers=6, inner=4096, vocabulary=33712),
        step=attention.pairs(32, 32),
        batch=160,
    ),
    Case(name="txl-base", family="transformer", build=_xl(adaptive=True), step=attention.with_memory, batch=16),
    Case(
        name="txl-base-full",
        family="transformer",
        build=_xl(adaptive=False),
        step=attention.with_memory,
        batch=8,
        prepare=attention.corpus,
        update=attention.jit_lamb,
    ),
    *(_vtrain(width, layers) for width, layers in ((1024, 16), (1024, 20), (1024, 24), (2048, 12), (2048, 16))),
    _mpt("125m", 768, 12, 12, False),
    _mpt("350m", 1024, 24, 16, False),
    _mpt("760m", 1536, 24, 12, True),
    Case(name="gnmt", family="recurrent", build=recurrent.GNMT, step=recurrent.translation(50), batch=128),
    Case(name="gnmt-26", family="recurrent", build=recurrent.GNMT, step=recurrent.translation(26), batch=128),
    Case(name="tacotron2", family="recurrent", build=recurrent.Tacotron2, step=recurrent.speech(160, 820), batch=32),
    Case(
        name="ncf",
        family="recommendation",
        build=recommendation.NeuMF,
        step=recommendation.rating,
        batch=2**20,
        prepare=recommendation.epoch,
    ),
)
