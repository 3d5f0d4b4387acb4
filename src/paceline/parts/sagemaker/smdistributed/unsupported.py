"""Errors for what paceline's smdistributed does not have: a part of the library, and calls that it never had."""

from collections.abc import Iterable
from typing import NoReturn

from ....smdistributed_names import DDP, NEVER
from ....spelling import nearest

_MODULE = "smdistributed.dataparallel.torch.distributed"

# A name that the TensorFlow side never had -> the intended name.
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
            "U32",
            "smdistributed.modelparallel is not part of paceline",
            f"import {module}",
            "split the model with torch's own FSDP2 or DTensor; in transformers, leave the hyperparameter mp_parameters out",
        ),
        name=module,
    )


def no_such_call(name: str, known: Iterable[str]) -> NeverExisted:
    """The error for a name of the module API that never existed."""
    meant = NEVER[name][0] if name in NEVER else nearest(name, known)
    next = f"dist.{meant}" if meant else "dir(dist) lists what there is"
    if meant == DDP:
        next = f"from {DDP.rpartition('.')[0]} import DistributedDataParallel"
    what = f"{_MODULE} never had `{name}`" + (f"; `{meant.rpartition('.')[2]}` is meant" if meant else "")
    return NeverExisted(_words("U32", what, f"an access to `{name}`", next))


def no_such_tensorflow_call(name: str, known: Iterable[str]) -> NeverExisted:
    """The error for a name of the TensorFlow module that never existed: most are Horovod's."""
    meant = _MEANT_IN_TENSORFLOW.get(name) or nearest(name, known)
    what = f"smdistributed.dataparallel.tensorflow never had `{name}`" + (f"; `{meant}` is meant" if meant else "")
    next = f"dist.{meant}" if meant else "dir(dist) lists what there is; a gather or a barrier is Horovod's"
    return NeverExisted(_words("U32", what, f"an access to `{name}`", next))


def _words(code: str, what: str, saw: str, next: str) -> str:
    return f"error[{code}]: {what}\n  saw       {saw}\n  next      {next}\n  more      paceline help {code}"
