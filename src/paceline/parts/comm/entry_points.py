"""What torch.distributed calls, from torch 2.14 on, when a script names a backend of ours that nobody has registered.

So `init_process_group("paceline")` needs no import and no launcher of ours where paceline is installed. In a job of `paceline run` they are
registered before. pyproject.toml has the entry points.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from ...process_identity import machine_key
from .backends import register_name

_LIBRARY = "smdistributed.dataparallel.torch.torch_smddp"


def register_paceline() -> None:
    """Register `paceline`."""
    register_name("paceline", machine_key)


def register_smddp() -> None:
    """Register `smddp`: SageMaker's own library where it is installed, which does so when it is imported, else paceline."""
    if _is_there(_LIBRARY):
        importlib.import_module(_LIBRARY)
    else:
        register_name("smddp", machine_key)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A package above it is missing.
        return False
