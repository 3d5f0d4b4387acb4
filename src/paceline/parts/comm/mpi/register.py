"""The backend names for MPI: `paceline_mpi`, and `mpi` if torch was built without MPI.

torch checks the name "mpi" before it checks plug-ins, and its wheels are built without MPI. So the name is rewritten before torch
sees it: in init_process_group and new_group, also as a part of "cpu:mpi,cuda:nccl". A torch that was built with MPI keeps its own.
This module loads nothing of MPI.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

NAME = "paceline_mpi"
URL = "mpi://"
_TORCHS = "mpi"


def register_mpi(c10d: Any) -> None:
    """Register the names. `c10d`: torch.distributed.distributed_c10d. A second call changes nothing."""
    if NAME in c10d.Backend.backend_list:
        return
    c10d.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    from torch.distributed.rendezvous import register_rendezvous_handler

    register_rendezvous_handler(URL.partition(":")[0], _rendezvous)  # type: ignore[no-untyped-call]
    takes_mpi = () if c10d.is_mpi_available() else (_TORCHS,)
    # The place of the backend among the arguments of each.
    for function, place in (("init_process_group", 0), ("new_group", 2)):
        _replace(c10d, function, place, takes_mpi)


def rewritten(backend: Any, also: tuple[str, ...] = (_TORCHS,)) -> Any:
    """The backend name that torch gets.

    Holds:   rewritten("mpi") == "paceline_mpi"; rewritten("cpu:mpi,cuda:nccl") == "cpu:paceline_mpi,cuda:nccl"; others stay
    """
    if not isinstance(backend, str):
        return backend
    parts = [part.rpartition(":") for part in backend.split(",")]
    return ",".join(device + colon + (NAME if name.strip().lower() in also else name) for device, colon, name in parts)


def is_mpi(backend: Any) -> bool:
    """Whether a backend name, after it was rewritten, is `paceline_mpi` only."""
    return isinstance(backend, str) and backend.strip().lower() == NAME


def _replace(c10d: Any, function: str, place: int, takes_mpi: tuple[str, ...]) -> None:
    torchs = getattr(c10d, function)

    @functools.wraps(torchs)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], rewritten(args[place], takes_mpi), *args[place + 1 :])
        elif "backend" in kwargs:
            kwargs["backend"] = rewritten(kwargs["backend"], takes_mpi)
        if function == "init_process_group" and _gives_no_address(args, kwargs):
            kwargs["init_method"] = URL
        return torchs(*args, **kwargs)

    for module in (c10d, sys.modules.get("torch.distributed")):
        # A name that somebody else has replaced since torch made it is theirs.
        if getattr(module, function, None) is torchs:
            setattr(module, function, call)


def _gives_no_address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = dict(zip(("backend", "init_method", "timeout", "world_size", "rank", "store"), args, strict=False)) | kwargs
    return is_mpi(given.get("backend")) and given.get("init_method") is None and given.get("store") is None


def _create(options: Any, _: Any) -> Any:
    from .process_group import create

    return create(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


def _rendezvous(url: str, **options: Any) -> Any:
    from .world import rendezvous

    return rendezvous(url, **options)
