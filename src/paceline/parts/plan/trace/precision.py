"""Automatic mixed precision of a CUDA device by means of the CPU's, with CUDA's own list of float32 operations."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.amp import autocast_mode

from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession

# ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE: what CUDA's autocast computes in float32 and the CPU's does not.
_NAMES = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm native_layer_norm
group_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d nll_loss_nd hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss soft_margin_loss triplet_margin_loss binary_cross_entropy_with_logits dist pdist
cdist renorm logsumexp norm prod softmax log_softmax cumprod cumsum sum cross_entropy_loss"""
_IN_FLOAT32 = frozenset(_NAMES.split())


def cuda_policy(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as CUDA's autocast would hand them to `func`.

    Holds:   only float16 and bfloat16 tensors change, and only for operations on CUDA's float32 list
    Source:  aten/src/ATen/autocast_mode.h, AT_FORALL_FP32
    """
    if getattr(func, "__name__", "") not in _IN_FLOAT32 or kwargs.get("dtype") is not None:
        return args, dict(kwargs)
    return tuple(_widened(value) for value in args), {name: _widened(value) for name, value in kwargs.items()}


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16) else value


def install(session: TraceSession) -> None:
    """From now on `autocast("cuda")` is the CPU's autocast with the same dtype; the trace's facts contain its settings."""
    init: Any = autocast_mode.autocast.__init__
    enter: Any = autocast_mode.autocast.__enter__
    cuda = session.device_type == "cuda"

    def __init__(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if cuda and device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        init(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def __enter__(self: Any) -> Any:
        if self._enabled and self.fast_dtype is not torch.float32:
            session.facts["autocast"] = str(self.fast_dtype).removeprefix("torch.")
        return enter(self)

    replace(autocast_mode.autocast, __init__=__init__, __enter__=__enter__)
    if cuda:
        _questions()


def _questions() -> None:
    """Questions about CUDA's autocast are answered with the state of the CPU's, which replaces it."""
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return enabled("cpu" if device_type == "cuda" else device_type)

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return dtype("cpu" if device_type == "cuda" else device_type)

    replace(
        torch,
        is_autocast_enabled=is_autocast_enabled,
        get_autocast_dtype=get_autocast_dtype,
        get_autocast_gpu_dtype=lambda: dtype("cpu"),
    )
