"""The module API: `import smdistributed.dataparallel.torch.distributed as dist`, as the library's releases 1.0 to 1.3 had it.

Every call is torch.distributed's, under the library's names and with its defaults. What the library did not support works: groups, other
backends, every reduce operation, CPU tensors. A name that torch.distributed has and the library did not have is torch's.
"""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torchs

from ....backend_names import averages_floats, is_nccl
from .model import average_gradients, average_parameters, broadcast_parameters
from .unsupported import no_such_call

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "average_gradients",
    "average_parameters",
    "barrier",
    "broadcast",
    "broadcast_parameters",
    "destroy_process_group",
    "get_local_rank",
    "get_local_size",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
]

_BACKEND = "smddp"
# The variables of mpirun, srun and the MPIs derived from MPICH. If the size is 1, the launcher started no other rank.
_SIZES_BY_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")

# transformers, and scripts of that time, read this variable. The library's launcher set it.
_LOCAL_RANK_OF_THE_LIBRARY = "SMDATAPARALLEL_LOCAL_RANK"

group = torchs.group


class ReduceOp:
    """The reduce operations. The library had SUM, AVERAGE, MIN and MAX; the others are torch's."""

    SUM = torchs.ReduceOp.SUM
    AVERAGE = AVG = torchs.ReduceOp.AVG
    MIN = torchs.ReduceOp.MIN
    MAX = torchs.ReduceOp.MAX
    PRODUCT = torchs.ReduceOp.PRODUCT
    BAND = torchs.ReduceOp.BAND
    BOR = torchs.ReduceOp.BOR
    BXOR = torchs.ReduceOp.BXOR


def init_process_group(backend: str | None = None, *arguments: Any, **options: Any) -> None:
    """Join the job's ranks. The library accepted any arguments and ignored them. Here they are torch's arguments, and all are optional.

    "mpi" is MPI if MPI started the ranks. Otherwise it is `smddp`, because the library had that name too. "nccl", by any of its names, is
    `smddp` if torch has no NCCL. A second call does nothing.
    """
    if torchs.is_initialized() and backend in (None, torchs.get_backend()):
        return
    torchs.init_process_group(chosen_backend(backend, os.environ), *arguments, **options)


def chosen_backend(asked: str | None, environment: Any) -> str:
    """The backend on this machine for the backend name that a script of that time passes."""
    name = (asked or _BACKEND).lower()
    if name == "mpi":
        sizes = [environment.get(variable, "") for variable in _SIZES_BY_MPI]
        return name if any(size.isdigit() and int(size) > 1 for size in sizes) else _BACKEND
    if is_nccl(name) and not (torchs.is_nccl_available() and torch.cuda.is_available()):
        return _BACKEND
    return asked or _BACKEND


def is_available() -> bool:
    """Whether this process is a rank of a job."""
    return torchs.is_available() and any(os.environ.get(name) for name in ("RANK", *_SIZES_BY_MPI))


def is_initialized() -> bool:
    """Whether the default group exists, whoever created it."""
    return torchs.is_initialized()


def get_world_size(group: Any = None) -> int:
    """Number of ranks.

    Raises:  ValueError: before init_process_group
    """
    return torchs.get_world_size(group)


def get_rank(group: Any = None) -> int:
    """This rank's number among all.

    Raises:  ValueError: before init_process_group
    """
    return torchs.get_rank(group)


def get_local_rank() -> int:
    """This rank's number on its host, from the launcher's variables. It also works before init_process_group."""
    return _first_number(_LOCAL_RANKS, 0)


def get_local_size() -> int:
    """Number of ranks on this host."""
    return _first_number(_LOCAL_SIZES, 1)


def _first_number(variables: tuple[str, ...], otherwise: int) -> int:
    texts = (os.environ.get(variable, "") for variable in variables)
    return next((int(text) for text in texts if text.isdigit()), otherwise)


def all_reduce(tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    """Reduce in place; SUM if no operation is given. With `async_op` it returns a handle to wait on."""
    if op is None:
        op = ReduceOp.SUM
    if op != ReduceOp.AVERAGE or (tensor.is_floating_point() and averages_floats(torchs.get_backend(group))):
        return torchs.all_reduce(tensor, op=op, group=group, async_op=async_op)
    work = _Average(torchs.all_reduce(tensor, group=group, async_op=True), tensor, torchs.get_world_size(group))
    if async_op:
        return work
    work.wait()
    return None


class _Average:
    """A handle on a sum that is divided when the caller waits for it."""

    def __init__(self, work: Any, tensor: torch.Tensor, ranks: int) -> None:
        self._work = work
        self._tensor = tensor
        self._ranks = ranks
        self._is_divided = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the average is computed."""
        self._work.wait(timeout) if timeout else self._work.wait()
        if not self._is_divided:
            self._is_divided = True
            rounding = None if self._tensor.is_floating_point() or self._tensor.is_complex() else "trunc"
            with torch.no_grad():
                self._tensor.div_(self._ranks, rounding_mode=rounding)
        return True

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())


def broadcast(tensor: torch.Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> Any:
    """Broadcast from rank `src`, in place."""
    return torchs.broadcast(tensor, src, group=group, async_op=async_op)


def all_gather(tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Gather every rank's tensor into the list, in the order of ranks."""
    return torchs.all_gather(tensor_list, tensor, group=group, async_op=async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Send the i-th part of the input to rank i. The arguments have the library's names."""
    return torchs.all_to_all_single(
        output_t, input_t, output_split_sizes, input_split_sizes, group=group, async_op=async_op
    )


def barrier(group: Any = None, async_op: bool = False, **options: Any) -> Any:
    """Wait until every rank is here."""
    return torchs.barrier(group=group, async_op=async_op, **options)


def destroy_process_group(group: Any = None) -> None:
    """Leave the group. Without this call, the end of the process leaves it."""
    torchs.destroy_process_group(group)


def say_local_rank() -> None:
    """Set the variable in which the library's launcher passed the local rank."""
    os.environ[_LOCAL_RANK_OF_THE_LIBRARY] = str(get_local_rank())


def look_up(name: str) -> Any:
    """The value of a name that the module API does not define itself.

    Raises:  NeverExisted: an AttributeError, if torch.distributed does not have the name either
    """
    try:
        return getattr(torchs, name)
    except AttributeError:
        if name.startswith("__"):
            raise
        raise no_such_call(name, names()) from None


def names() -> list[str]:
    """The names for dir(): the module's own and torch.distributed's."""
    return sorted({*__all__, *(name for name in dir(torchs) if not name.startswith("_"))})
