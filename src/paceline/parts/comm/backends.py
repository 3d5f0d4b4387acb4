"""The backend names that init_process_group and new_group accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from .mpi.register import register_mpi

if TYPE_CHECKING:
    from .backend.process_group import PacelineGroup

__all__ = ["register"]

NAMES = ("paceline", "smddp")


def register(host_key: Callable[[], str], crossover_bytes: int | None = None) -> None:
    """Let init_process_group accept "paceline"; "smddp", the name of SageMaker's library, for the same backend; and "paceline_mpi".

    `host_key`: called when a group is made; it returns the same text on ranks that share a host, and another text on every other host.
    `crossover_bytes`: smaller exchanges on CPU go to gloo; the same on all ranks; None for the measured default.
    Registering again changes nothing.
    """
    for name in NAMES:
        register_name(name, host_key, crossover_bytes)
    register_mpi(dist.distributed_c10d)


def register_name(name: str, host_key: Callable[[], str], crossover_bytes: int | None = None) -> None:
    """Let init_process_group accept this name for the backend `paceline`. A name that is there already stays."""
    if name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(
            name, _creator(host_key, crossover_bytes), extended_api=True, devices=["cpu", "cuda"]
        )


def _creator(host_key: Callable[[], str], crossover_bytes: int | None) -> Callable[[Any, Any], PacelineGroup]:
    def create(options: Any, _: Any) -> PacelineGroup:
        # Only now: a job that never asks for it shall not pay for loading it.
        from .backend.process_group import PacelineGroup

        return PacelineGroup(
            options.store,
            options.group_rank,
            options.group_size,
            options.timeout,
            host_key=host_key(),
            group_name=options.group_id,
            crossover_bytes=crossover_bytes,
        )

    return create
