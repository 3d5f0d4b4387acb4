"""`import smdistributed.dataparallel.tensorflow.keras as dist`: what scripts use with `fit`. The library had it without documenting it."""

from . import callbacks
from .calls import (
    Compression,
    DistributedOptimizer,
    ReduceOp,
    broadcast,
    broadcast_global_variables,
    init,
    local_rank,
    local_size,
    oob_allreduce,
    rank,
    shutdown,
    size,
)
from .calls import look_up as look_up

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "ReduceOp",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "init",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "rank",
    "shutdown",
    "size",
]


def names() -> list[str]:
    """The names for dir()."""
    return list(__all__)
