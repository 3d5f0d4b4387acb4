"""Gradients on a device, if the transport carries host memory (preview: docs/exchange.md says on which hardware it was run).

A lane copies the bucket into pinned memory on its own stream, exchanges that memory, and copies it back. Backward continues meanwhile: the
lane's stream waits for the gradients, and DDP's stream for the copy back, on the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch


class StagedBuffer:
    """One buffer that is exchanged through host memory. It is made on the thread and stream that wrote the gradients."""

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat
        self._written = torch.cuda.current_stream(flat.device).record_event()

    def exchange(self, average: Callable[[torch.Tensor], None]) -> None:
        """Runs in a lane: `average` changes the copy in host memory in place. Returns once the copy back has started."""
        flat, stream = self._flat, _lane_stream(self._flat.device)
        with torch.cuda.stream(stream):
            stream.wait_event(self._written)
            copy = _pinned(flat)
            copy.copy_(flat, non_blocking=True)
            stream.synchronize()
            average(copy)
            flat.copy_(copy, non_blocking=True)

    def announce(self, tell: Callable[[], None]) -> None:
        """Runs in the same lane: completes a future whose waiters then wait, on the device, for the copy back."""
        with torch.cuda.stream(_lane_stream(self._flat.device)):
            tell()


class _OfThisThread(threading.local):
    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.memory: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}


_mine = _OfThisThread()


def _lane_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _mine.streams:
        _mine.streams[device] = torch.cuda.Stream(device)
    return _mine.streams[device]


def _pinned(flat: torch.Tensor) -> torch.Tensor:
    # Used again at once: the copy back of the last bucket is before this one's copy on the same stream.
    key = (flat.device, flat.dtype)
    kept = _mine.memory.get(key)
    if kept is None or kept.numel() < flat.numel():
        kept = _mine.memory[key] = torch.empty(flat.numel(), dtype=flat.dtype, pin_memory=True)
    return kept[: flat.numel()]
