"""The mean of all ranks' gradients, and how gradients travel."""

import warnings
from typing import Any

import tensorflow as tf

from . import exchange


class _Uncompressed:
    """The tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor that travels, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, original: Any) -> Any:
        """The tensor in its own type."""
        return tensor


class _Half:
    """Floating-point tensors as 16-bit numbers."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor that travels, and its own type."""
        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, original: Any) -> Any:
        """The tensor in its own type."""
        return tensor if original is None else tf.cast(tensor, original)


class Compression:
    """How tensors travel."""

    none = _Uncompressed
    fp16 = _Half


def averaged(gradients: Any, compression: Any, bucket_bytes: int) -> list[Any]:
    """The mean of all ranks' gradients, one by one; where there is none, there is none afterwards."""
    known = [gradient for gradient in gradients if gradient is not None]
    sent = [compression.compress(dense(gradient)) for gradient in known]
    found = exchange.in_buckets(
        [tensor for tensor, _ in sent], lambda tensor: exchange.reduce(tensor, "average"), bucket_bytes
    )
    means = iter(compression.decompress(tensor, original) for tensor, (_, original) in zip(found, sent, strict=True))
    return [None if gradient is None else next(means) for gradient in gradients]


def dense(tensor: Any) -> Any:
    """The tensor; a sparse gradient is filled with zeros, which is said once."""
    if isinstance(tensor, tf.IndexedSlices):
        warnings.warn(
            "smdistributed.dataparallel exchanges the sparse gradient of an embedding as a dense tensor", stacklevel=3
        )
    return tf.convert_to_tensor(tensor)
