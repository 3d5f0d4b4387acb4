"""Checkpoints are read but never written, so that a trace does not change those of a real run."""

from typing import Any

import torch
import torch.serialization

from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession


def install(session: TraceSession) -> None:
    """From now on `torch.save` writes nothing, and `torch.load` reads to the CPU instead of the device."""
    load = torch.serialization.load

    def save(_: Any, f: Any, *__: Any, **___: Any) -> None:
        session.assume(f"torch.save to {f if isinstance(f, str) else getattr(f, 'name', 'an open file')} is left out")

    def read(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, "cpu" if session.device_type == "cuda" else map_location, *args, **kwargs)

    for place in (torch, torch.serialization):
        replace(place, save=save, load=read)
