"""What is in the file that a saved state was written to."""

from dataclasses import dataclass

import msgspec

from paceline.parts.resume.recording.saved_state import Manifest


class ExportedContent(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that wrote the file says of it."""

    size_bytes: int = 0
    """Size of the file."""
    models: dict[str, int] = {}
    """Name of a model -> number of tensors of its state dict."""
    optimizers: tuple[str, ...] = ()
    """Names of the optimizers."""
    schedulers: tuple[str, ...] = ()
    """Names of the schedulers of the learning rate."""
    values: tuple[str, ...] = ()
    """Names of the plain values."""
    left_out: tuple[str, ...] = ()
    """Names of variables that hold something else."""
    wrong: str = ""
    """Why there is no file: python, torch or file; empty: there is one."""
    saw: str = ""
    """What was seen of it."""


@dataclass(frozen=True, slots=True)
class ExportedState:
    """A file that was written."""

    path: str
    """The file, as the user has named it."""
    manifest: Manifest
    """Of the step that it holds."""
    content: ExportedContent
    """What is in it."""
    damaged: tuple[int, ...]
    """Newer steps, which are damaged."""
