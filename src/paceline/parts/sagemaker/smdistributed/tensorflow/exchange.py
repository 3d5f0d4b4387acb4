"""Sums and broadcasts of tensors over all ranks, in graphs and outside: by shared memory, or by TensorFlow's collective operations.

Every rank must make the same exchanges in the same order; in a graph, that is the order in which it is traced. Collective operations find
each other by keys, which are counted as they are made. Exchanges through shared memory take place one after the other.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from . import cluster, shared_memory

# Far from the numbers that TensorFlow's own strategies count from 1 and 100, because all of them share one runtime.
_GROUP, _FIRST_KEY = 28769, 1 << 20
_keys = itertools.count(_FIRST_KEY)
# Types that TensorFlow's collectives take; any other type travels as the one beside it.
_REDUCED_AS = {"bool": "int32", "uint8": "int32", "int8": "int32", "int16": "int32", "uint16": "int32"}
_SENT_AS = {**_REDUCED_AS, "bool": "bool", "bfloat16": "float32"}
_MERGES = {"average": ("Add", "Div"), "sum": ("Add", "Id"), "min": ("Min", "Id"), "max": ("Max", "Id")}


@functools.cache
def _order() -> Any:
    """A variable that every exchange takes, made outside of any graph. Without it a graph may order exchanges differently on each rank."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0.0, trainable=False, name="paceline_order")


def reduce(tensor: Any, op: str) -> Any:
    """The tensor reduced over all ranks.

    Shapes:  tensor: any, numeric, the same on every rank
    Holds:   op == "average": the mean of all ranks' tensors; integers are divided without remainder
    """
    if cluster.size() == 1:
        return tf.identity(tensor)
    sent = tf.cast(tensor, _REDUCED_AS.get(tensor.dtype.name, tensor.dtype))
    memory = shared_memory.connected()
    if memory is not None:
        if op == "average" and not sent.dtype.is_floating:
            found = tf.truncatediv(_in_order(lambda array: memory.all_reduce(array, "sum"), sent), cluster.size())
        else:
            found = _in_order(lambda array: memory.all_reduce(array, op), sent)
        return tf.cast(found, tensor.dtype)
    merge, final = _MERGES[op]
    found = tf.raw_ops.CollectiveReduceV2(
        input=sent,
        group_size=cluster.size(),
        group_key=_GROUP,
        instance_key=next(_keys),
        ordering_token=[_order().handle],
        merge_op=merge,
        final_op=final,
        communication_hint="auto",
        timeout_seconds=0.0,
    )
    return tf.cast(found, tensor.dtype)


def broadcast(tensor: Any, root_rank: int) -> Any:
    """The tensor of `root_rank`, on every rank.

    Shapes:  tensor: any, the same on every rank
    """
    if cluster.size() == 1:
        return tf.identity(tensor)
    memory = shared_memory.connected()
    if memory is not None:
        return _in_order(lambda array: memory.broadcast(array, root_rank), tensor)
    sent = tf.cast(tensor, _SENT_AS.get(tensor.dtype.name, tensor.dtype))
    keys = {"group_size": cluster.size(), "group_key": _GROUP, "instance_key": next(_keys)}
    if cluster.rank() == root_rank:
        found = tf.raw_ops.CollectiveBcastSendV2(input=sent, **keys)
    else:
        found = tf.raw_ops.CollectiveBcastRecvV2(shape=tf.shape(sent), T=sent.dtype, **keys)
    return tf.cast(tf.reshape(found, tf.shape(tensor)), tensor.dtype)


def _in_order(call: Callable[[Any], Any], tensor: Any) -> Any:
    """What `call` makes of the tensor as a numpy array, of the same shape and type, after every exchange before it."""
    order = _order()
    found, passed = tf.numpy_function(
        lambda array, number: (call(array), number), [tensor, order.read_value()], [tensor.dtype, order.dtype]
    )
    order.assign(passed)
    found.set_shape(tensor.shape)
    return found


def in_buckets(tensors: Sequence[Any], exchange: Callable[[Any], Any], bucket_bytes: int) -> list[Any]:
    """Exchange tensors, several at once as one flat tensor of their type. The last ones go first, as backward makes them first.

    Shapes:  a tensor whose shape is not known travels alone
    """
    found: list[Any] = [None] * len(tensors)
    for bucket in _buckets(tensors, bucket_bytes):
        if len(bucket) == 1:
            found[bucket[0]] = exchange(tensors[bucket[0]])
            continue
        flat = exchange(tf.concat([tf.reshape(tensors[place], [-1]) for place in bucket], axis=0))
        parts = tf.split(flat, [tensors[place].shape.num_elements() for place in bucket])
        for place, part in zip(bucket, parts, strict=True):
            found[place] = tf.reshape(part, tensors[place].shape)
    return found


def _buckets(tensors: Sequence[Any], bucket_bytes: int) -> Iterator[list[int]]:
    """Places of the tensors that travel together."""
    open_ones: dict[Any, tuple[list[int], int]] = {}
    for place in reversed(range(len(tensors))):
        tensor = tensors[place]
        count = tensor.shape.num_elements()
        if count is None:
            yield [place]
            continue
        bucket, size_bytes = open_ones.get(tensor.dtype, ([], 0))
        tensor_bytes = count * tensor.dtype.size
        if bucket and size_bytes + tensor_bytes > bucket_bytes:
            yield bucket
            bucket, size_bytes = [], 0
        open_ones[tensor.dtype] = ([*bucket, place], size_bytes + tensor_bytes)
    yield from (bucket for bucket, _ in open_ones.values())


def broadcast_all(variables: Iterable[Any], root_rank: int, bucket_bytes: int) -> None:
    """Give every rank the values of `root_rank`. Keys of random generators keep their own value on each rank."""
    exchanged = [
        variable for variable in variables if tf.as_dtype(variable.dtype).name not in ("string", "uint32", "uint64")
    ]
    values = [tf.convert_to_tensor(variable) for variable in exchanged]
    found = in_buckets(values, lambda tensor: broadcast(tensor, root_rank), bucket_bytes)
    for variable, value in zip(exchanged, found, strict=True):
        variable.assign(value)
