"""Errors for what paceline's smdistributed does not have: a part of the library, and calls that it never had."""

from collections.abc import Iterable
from typing import NoReturn

from ...spelling import nearest

_MODULE = "smdistributed.dataparallel.torch.distributed"
_DDP = "smdistributed.dataparallel.torch.parallel.distributed.DistributedDataParallel"

# Names of Horovod, MPI or the library's TensorFlow side -> the name of the same call here.
MEANT = {
    "allreduce": "all_reduce",
    "allreduce_": "all_reduce",
    "oob_allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all_single",
    "init": "init_process_group",
    "initialize": "init_process_group",
    "is_init": "is_initialized",
    "size": "get_world_size",
    "world_size": "get_world_size",
    "get_size": "get_world_size",
    "rank": "get_rank",
    "local_rank": "get_local_rank",
    "local_size": "get_local_size",
    "local_world_size": "get_local_size",
    "shutdown": "destroy_process_group",
    "finalize": "destroy_process_group",
    "broadcast_variables": "broadcast_parameters",
    "broadcast_global_variables": "broadcast_parameters",
    "Average": "ReduceOp.AVERAGE",
    "Sum": "ReduceOp.SUM",
    "DistributedOptimizer": _DDP,
    "DistributedGradientTape": _DDP,
    "DistributedDataParallel": _DDP,
    "DDP": _DDP,
}


# The same for the TensorFlow side.
_MEANT_IN_TENSORFLOW = {
    "all_reduce": "oob_allreduce",
    "grouped_allreduce": "oob_allreduce",
    "Average": "ReduceOp.AVERAGE",
    "Sum": "ReduceOp.SUM",
    "get_rank": "rank",
    "get_world_size": "size",
    "init_process_group": "init",
    "broadcast_parameters": "broadcast_variables",
}


class NotThere(ImportError):
    """A part of `smdistributed` that paceline does not have. A script can catch it with `except ImportError:` as usual."""


class NeverExisted(AttributeError):
    """A name that no release of the library had. The text suggests the name that was probably meant."""


def refuse(module: str) -> NoReturn:
    """
    Raises:  NotThere: always
    """
    raise NotThere(
        _words(
            "X24",
            "smdistributed.modelparallel is not part of paceline",
            f"import {module}",
            "split the model with torch's own FSDP2 or DTensor; in transformers, leave the hyperparameter mp_parameters out",
        ),
        name=module,
    )


def no_such_call(name: str, known: Iterable[str]) -> NeverExisted:
    """The error for a name of the module API that never existed."""
    meant = MEANT.get(name) or nearest(name, known)
    next = f"dist.{meant}" if meant and "." not in meant else meant or "dir(dist) lists what there is"
    if meant == _DDP:
        next = f"from {_DDP.rpartition('.')[0]} import DistributedDataParallel"
    what = f"{_MODULE} never had `{name}`" + (f"; `{meant.rpartition('.')[2]}` is meant" if meant else "")
    return NeverExisted(_words("X22", what, f"an access to `{name}`", next))


def no_such_tensorflow_call(name: str, known: Iterable[str]) -> NeverExisted:
    """The error for a name of the TensorFlow module that never existed: most are Horovod's."""
    meant = _MEANT_IN_TENSORFLOW.get(name) or nearest(name, known)
    what = f"smdistributed.dataparallel.tensorflow never had `{name}`" + (f"; `{meant}` is meant" if meant else "")
    next = f"dist.{meant}" if meant else "dir(dist) lists what there is; a gather or a barrier is Horovod's"
    return NeverExisted(_words("X22", what, f"an access to `{name}`", next))


def _words(code: str, what: str, saw: str, next: str) -> str:
    return f"error[{code}]: {what}\n  saw       {saw}\n  next      {next}\n  more      paceline explain {code}"
