"""A rank that has a state buffer keeps its training state there, and its program's loops can go on. Any other rank loads nothing for it."""

import os
from collections.abc import Mapping
from types import CodeType, ModuleType

from ...worker.instrument import Patch


def after_instruments() -> Mapping[str, Patch]:
    return {"torch": _begin}


def before_forks() -> None:
    """Import what puts a state back, and look through all modules for the user's. Both took each rank 0.1 s."""
    from .worker import frames
    from .worker import session as session

    frames.UsersModules().items()


def before_program(argv: list[str]) -> CodeType | None:
    if not _keeps_state():
        return None
    from . import worker as resume

    return resume.before_program(argv)


def _begin(torch: ModuleType) -> None:
    if _keeps_state():
        from . import worker as resume

        resume.begin(torch)


def _keeps_state() -> bool:
    return "PACELINE_STATE_FD" in os.environ
