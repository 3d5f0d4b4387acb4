"""Watches process groups: at `init_process_group` a process becomes a rank and gets its rank number."""

import functools
import os
from time import monotonic_ns
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...recording.ring import RankPhase
from ..instrument import Patch, RankInstrument
from ..no_compile import passed_over_by_warnings


class GroupWatch(RankInstrument):
    """Replaces `init_process_group` before `torch.distributed` copies the name, so that the user sees only one function."""

    def patches(self) -> dict[str, Patch]:
        return {"torch.distributed.distributed_c10d": self._watch}

    def _watch(self, c10d: Any) -> None:
        initialise = c10d.init_process_group

        @functools.wraps(initialise)
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            start_ns = self._announce(args, kwargs)
            try:
                initialise(*args, **kwargs)
            finally:
                self._settle(c10d, start_ns)

        c10d.init_process_group = passed_over_by_warnings(init_process_group)

    def _announce(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Open the ring before the rendezvous if the rank is known by then: a rendezvous that hangs must be visible."""
        try:
            rank, world_size = given_rank(args, kwargs)
            if rank is not None:
                self.rank.join(rank, world_size, _local_rank())
                self.rank.describe_rendezvous(_given(args, kwargs))
            self.rank.phase(RankPhase.RENDEZVOUS)
        except Exception as error:
            self.rank.drop(self.name, error)
        return monotonic_ns()

    def _settle(self, c10d: Any, start_ns: int) -> None:
        try:
            if c10d.is_initialized():
                self.rank.join(c10d.get_rank(), c10d.get_world_size(), _local_rank())
                self.rank.joined_group(c10d.get_backend(), monotonic_ns() - start_ns)
                self.rank.registry.tell("group_joined", type(c10d._get_default_group()))
        except Exception as error:
            self.rank.drop(self.name, error)


def given_rank(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size of a call of init_process_group. Its arguments come first, then its URL, then the environment.

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
    """Rank and size if mpirun, srun or another MPI launcher started this process, below a worker or as the worker."""
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
