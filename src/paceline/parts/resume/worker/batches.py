"""A checksum of a batch, to see that the first batch after a restart is the one that was next before it."""

import sys
import zlib
from typing import Any

_SAMPLED = 16384
_PLAIN = (int, float, str, bytes, bool)


def checksum(batch: Any) -> int | None:
    """A checksum of the tensors and plain values of a batch; None: it has none. Of a large tensor a sample counts."""
    found = _walk(batch, None)
    return None if found is None else found & 0xFFFFFFFF


def _walk(part: Any, crc: int | None) -> int | None:
    torch = sys.modules["torch"]
    if isinstance(part, torch.Tensor):
        return crc if part.layout != torch.strided else zlib.crc32(_sample(part), crc or 1)
    if isinstance(part, _PLAIN):
        return zlib.crc32(repr(part).encode(), crc or 1)
    if isinstance(part, dict):
        part = list(part.values())
    if isinstance(part, list | tuple):
        for one in part:
            crc = _walk(one, crc)
        return crc
    tobytes = getattr(part, "tobytes", None)
    return crc if tobytes is None or not hasattr(part, "dtype") else zlib.crc32(tobytes(), crc or 1)


def _sample(tensor: Any) -> bytes:
    torch = sys.modules["torch"]
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLED:
        flat = flat[:: flat.numel() // _SAMPLED]
    flat = flat.contiguous().cpu()
    return bytes(flat.untyped_storage().tolist()) if not _numpy(flat) else bytes(flat.view(torch.uint8).numpy().data)


def _numpy(tensor: Any) -> bool:
    return "numpy" in sys.modules and tensor.numel() > 0
