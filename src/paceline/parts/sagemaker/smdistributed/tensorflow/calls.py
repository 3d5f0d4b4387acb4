"""The module API: `import smdistributed.dataparallel.tensorflow as dist`, as the library's releases 1.0 to 1.4 had it."""

from typing import Any, NoReturn

import tensorflow as tf

from ..unsupported import no_such_tensorflow_call
from . import exchange, optimizers
from .cluster import init, local_rank, local_size, rank, shutdown, size
from .gradients import Compression, averaged, dense

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "ReduceOp",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "init",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "overlap",
    "rank",
    "shutdown",
    "size",
]

BUCKET_MIB = 25
_ALIGNED_BYTES = 128


class TensorFlowReduceOp:
    """The reduce operations of the library."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


ReduceOp = TensorFlowReduceOp


def allreduce(
    tensor: Any,
    param_index: int,
    num_params: int,
    compression: Any = Compression.none,
    op: str = ReduceOp.AVERAGE,
) -> Any:
    """Reduce a gradient over all ranks. `param_index` and `num_params` are taken and not needed."""
    return oob_allreduce(tensor, compression, op)


def oob_allreduce(tensor: Any, compression: Any = Compression.none, op: str = ReduceOp.AVERAGE) -> Any:
    """Reduce any tensor over all ranks, such as a metric. Every rank must call it."""
    _require_op(op, ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX)
    sent, original = compression.compress(dense(tensor))
    return compression.decompress(exchange.reduce(sent, op), original)


def broadcast(tensor: Any, root_rank: int) -> Any:
    """The tensor of `root_rank`, on every rank."""
    return exchange.broadcast(tf.convert_to_tensor(tensor), root_rank)


def broadcast_variables(variables: Any, root_rank: int = 0) -> None:
    """Give every rank the variables of `root_rank`: a model's, or an optimizer's."""
    exchange.broadcast_all(variables() if callable(variables) else variables, root_rank, BUCKET_MIB << 20)


def broadcast_global_variables(root_rank: int) -> None:
    """Give every rank the variables of `root_rank` that tf.compat.v1 knows as global."""
    broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def overlap(tensor: Any) -> Any:
    """The tensor itself. In the library, it marked a place for XLA."""
    return tf.identity(tensor)


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: str = ReduceOp.AVERAGE,
) -> Any:
    """The tape, whose `gradient` gives the mean over all ranks.

    Raises:  ValueError: an argument that the library did not take either; TypeError: it is no tape
    """
    require_gradient_arguments("DistributedGradientTape", device_dense, device_sparse, op)
    own = type(gradtape)
    # A class of the user's own may wrap a tape.
    if not callable(getattr(own, "gradient", None)):
        raise TypeError(f"DistributedGradientTape takes a tf.GradientTape, and this is {own.__module__}.{own.__name__}")

    def gradient(self: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        found = own.gradient(self, target, sources, output_gradients, **options)
        flat = tf.nest.flatten(found)
        return tf.nest.pack_sequence_as(found, averaged(flat, compression, BUCKET_MIB << 20))

    made: Any = object.__new__(type(own.__name__, (own,), {"gradient": gradient}))
    vars(made).update(vars(gradtape))
    return made


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: str = ReduceOp.AVERAGE,
    bucket_cap_mb: float = BUCKET_MIB,
) -> Any:
    """The optimizer, which applies the mean of all ranks' gradients. Of Keras 3, tf-keras or tf.compat.v1.

    Raises:  ValueError: an argument that the library did not take either; TypeError: it is no optimizer of TensorFlow
    """
    require_gradient_arguments("DistributedOptimizer", device_dense, device_sparse, op)
    return optimizers.distributed(optimizer, name, compression, _bucket_bytes(bucket_cap_mb))


class BroadcastGlobalVariablesHook:
    """A hook of tf.estimator, which TensorFlow has not had since 2.16."""

    def __init__(self, root_rank: int = 0, device: str = "") -> None:
        """
        Raises:  NotImplementedError: always
        """
        raise NotImplementedError(
            "BroadcastGlobalVariablesHook is for sessions of TensorFlow 1 and tf.estimator, which is gone since TensorFlow 2.16; "
            "call broadcast_variables(model.variables, root_rank=0) after the first step"
        )


def require_gradient_arguments(what: str, device_dense: str, device_sparse: str, op: str) -> None:
    """
    Raises:  ValueError: an argument that is not possible
    """
    for name, value in (("device_dense", device_dense), ("device_sparse", device_sparse)):
        if value:
            raise ValueError(f"{what}: {name} is {value!r}, and only '' is possible: gradients stay where they are")
    _require_op(op, ReduceOp.AVERAGE)


def _require_op(op: str, *possible: str) -> None:
    if op not in possible:
        names = ", ".join(f"ReduceOp.{one.upper()}" for one in possible)
        raise ValueError(f"op is {op!r}, and these are possible: {names}")


def _bucket_bytes(bucket_cap_mb: float) -> int:
    size_bytes = bucket_cap_mb * (1 << 20)
    if size_bytes <= 0 or size_bytes % _ALIGNED_BYTES:
        raise ValueError(
            f"bucket_cap_mb is {bucket_cap_mb!r}, which is {size_bytes:g} bytes; a multiple of {_ALIGNED_BYTES} bytes above 0 is possible"
        )
    return int(size_bytes)


def look_up(name: str) -> NoReturn:
    """
    Raises:  NeverExisted: an AttributeError, always: the library never had this name
    """
    if name.startswith("__"):
        raise AttributeError(name)
    raise no_such_tensorflow_call(name, __all__)


def names() -> list[str]:
    """The names for dir()."""
    return list(__all__)
