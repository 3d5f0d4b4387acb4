"""Process groups: the moment at which a process becomes a rank, and the number that the group gives it."""

import functools
import os
import sys
from time import monotonic_ns
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..recording.ring import Instrument, RankPhase
from . import host_aliases, instruments
from .no_compile import passed_over_by_warnings
from .rank_recorder import this_rank


def watch(c10d: Any) -> None:
    """Wrap `init_process_group`. Runs before `torch.distributed` copies the name, so the user sees one function."""
    from torch._C import _distributed_c10d as native

    host_aliases.patch_store(native)
    if not (hasattr(native, "_dump_fr_trace_json") or hasattr(native, "_dump_nccl_trace_json")):
        this_rank.lacks(Instrument.FLIGHT_RECORDER)
    _give_room(native)
    initialise = c10d.init_process_group

    @functools.wraps(initialise)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        start_ns = _announce(args, kwargs)
        try:
            initialise(*args, **kwargs)
        finally:
            _settle(c10d, start_ns)

    c10d.init_process_group = passed_over_by_warnings(init_process_group)


def _give_room(native: Any) -> None:
    """Room for torch's flight recorder before the first group: an older one, which may know gloo all the same, has none by itself."""
    of_all, of_nccl = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if of_all not in os.environ and of_nccl not in os.environ:
        os.environ[of_all if hasattr(native, "_dump_fr_trace_json") else of_nccl] = "2000"


def _announce(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Open the ring already before the rendezvous, where the rank is known: a rendezvous that hangs is to be seen."""
    try:
        rank, world_size = given_rank(args, kwargs)
        if rank is not None:
            this_rank.join(rank, world_size, _local_rank())
            _describe(args, kwargs, rank, world_size)
        this_rank.phase(RankPhase.RENDEZVOUS)
    except Exception as error:
        this_rank.drop(Instrument.GROUPS, error)
    return monotonic_ns()


def _describe(args: tuple[Any, ...], kwargs: dict[str, Any], rank: int, world_size: int | None) -> None:
    """Say in the ring what this process brings; without it the rank is watched all the same."""
    from . import rendezvous_identity

    try:
        if this_rank.ring is not None:
            this_rank.ring.text("rendezvous", rendezvous_identity.identity(_given(args, kwargs), rank, world_size))
    except OSError as error:
        this_rank.note_failure(error, "identity")


def _settle(c10d: Any, start_ns: int) -> None:
    try:
        if c10d.is_initialized():
            this_rank.join(c10d.get_rank(), c10d.get_world_size(), _local_rank())
            this_rank.joined_group(c10d.get_backend(), monotonic_ns() - start_ns)
            _watch_our_own(type(c10d._get_default_group()))
    except Exception as error:
        this_rank.drop(Instrument.GROUPS, error)


def _watch_our_own(group_class: type) -> None:
    """A script may have imported our process group before torch, and with it before anybody could wait for that module."""
    if group_class.__module__.startswith(instruments.OUR_ROOM):
        instruments.watch_our_groups(sys.modules[group_class.__module__])


def given_rank(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size as a call of init_process_group has them: its arguments, its URL, then the environment.

    Holds:   given_rank((), {"rank": 1, "world_size": 2}) == (1, 2)
    """
    given = _given(args, kwargs)
    if "mpi" in str(given.get("backend")) and (numbers := _numbers_of_mpi()):
        return numbers
    query = parse_qs(urlsplit(given.get("init_method") or "").query)
    values: list[int | None] = []
    for name in ("rank", "world_size"):
        value = given.get(name, -1)
        text = (
            str(value)
            if isinstance(value, int) and value >= 0
            else query.get(name, [os.environ.get(name.upper(), "")])[0]
        )
        values.append(int(text) if text.isdigit() else None)
    return values[0], values[1]


def _numbers_of_mpi() -> tuple[int, int] | None:
    """Rank and size where mpirun, srun or another launcher of MPI started this process, below a worker or as one."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        texts = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(text.isdigit() for text in texts):
            return int(texts[0]), int(texts[1])
    return None


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(("backend", "init_method", "timeout", "world_size", "rank", "store"), args, strict=False)) | kwargs


def _local_rank() -> int | None:
    value = os.environ.get("LOCAL_RANK", "")
    return int(value) if value.isdigit() else None
