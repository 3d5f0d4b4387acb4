"""Every call of smdistributed.dataparallel.tensorflow, looked at on all ranks. Written as AWS's scripts for TensorFlow 2 are."""

import numpy
import smdistributed.dataparallel.tensorflow as dist
import tensorflow as tf

dist.init()
# Scripts of that time choose their devices after init().
for device in tf.config.list_physical_devices("CPU"):
    tf.config.set_visible_devices(device)
size, rank = dist.size(), dist.rank()
everybody = range(size)


def equal(found, wanted, within=0.0):
    assert numpy.allclose(found.numpy(), wanted, rtol=0, atol=within), (found, wanted)


# Exchanges outside of a graph.
mine = tf.constant([1.0, 2.0]) * (rank + 1)
total = sum(number + 1 for number in everybody)
equal(dist.oob_allreduce(mine), numpy.array([1.0, 2.0]) * total / size, 1e-6)
equal(dist.oob_allreduce(mine, op=dist.ReduceOp.SUM), numpy.array([1.0, 2.0]) * total, 1e-6)
equal(dist.oob_allreduce(mine, op=dist.ReduceOp.MIN), [1.0, 2.0])
equal(dist.oob_allreduce(mine, op=dist.ReduceOp.MAX), numpy.array([1.0, 2.0]) * size)
equal(dist.allreduce(mine, 0, 1, compression=dist.Compression.fp16), numpy.array([1.0, 2.0]) * total / size, 1e-2)
equal(dist.oob_allreduce(tf.constant([rank], tf.int64), op=dist.ReduceOp.SUM), [sum(everybody)])
for dtype in (tf.bool, tf.uint8, tf.float16, tf.bfloat16, tf.int64, tf.float64):
    sent = tf.cast(tf.constant([rank % 2, 1]), dtype)
    assert (
        dist.broadcast(sent, root_rank=size - 1).numpy().tolist()
        == tf.cast([(size - 1) % 2, 1], dtype).numpy().tolist()
    )
equal(dist.overlap(mine), mine)

# A model whose ranks begin with other values and other data.
tf.random.set_seed(rank)
model = tf.keras.Sequential([tf.keras.layers.Dense(5), tf.keras.layers.Dense(1)])
unused = tf.Variable(1.0)
table = tf.Variable(tf.random.normal((7, 3)))
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
rng = numpy.random.default_rng(rank)


@tf.function
def step(batch, first):
    with tf.GradientTape() as tape:
        rows = tf.gather(table, [0, 3])
        loss = tf.reduce_mean(model(batch) ** 2) + tf.reduce_sum(rows**2)
    variables = [*model.trainable_variables, table, unused]
    with_ranks = dist.DistributedGradientTape(tape, sparse_as_dense=True)
    gradients = with_ranks.gradient(loss, variables)
    assert gradients[-1] is None
    optimizer.apply_gradients(zip(gradients[:-1], variables[:-1], strict=True))
    if first:
        dist.broadcast_variables(model.variables, root_rank=0)
        dist.broadcast_variables([table], root_rank=0)
        dist.broadcast_variables(optimizer.variables, root_rank=0)
    return loss, gradients[:-1]


for number in range(100):
    loss, gradients = step(tf.constant(rng.normal(size=(8, 4)), tf.float32), number == 0)
    loss = dist.oob_allreduce(loss)


def exactly_equal(values):
    """Whether every rank has the same bits: the least and the greatest of them are the same."""
    for value in values:
        bits = tf.bitcast(tf.convert_to_tensor(value), tf.int32)
        least, greatest = (dist.oob_allreduce(bits, op=op) for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX))
        assert tf.reduce_all(tf.equal(least, greatest)), value


exactly_equal([*model.trainable_variables, table])


# The mean of gradients, in float64 by hand.
@tf.function
def averaged(parts):
    with tf.GradientTape() as tape:
        tape.watch(parts)
        loss = tf.add_n([tf.reduce_sum(part * weight) for part, weight in zip(parts, weights, strict=True)])
    return dist.DistributedGradientTape(tape).gradient(loss, parts)


shapes = [(3,), (1000, 17), (), (5, 5)]
all_weights = [
    [numpy.random.default_rng([of_rank, at]).normal(size=shape) for at, shape in enumerate(shapes)]
    for of_rank in everybody
]
weights = [tf.constant(one, tf.float32) for one in all_weights[rank]]
for at, found in enumerate(averaged([tf.ones(shape) for shape in shapes])):
    wanted = sum(of_rank[at].astype("float32").astype("float64") for of_rank in all_weights) / size
    equal(found, wanted, 1e-6)


def refused(error, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except error as caught:
        assert text in str(caught), caught
    else:
        raise AssertionError(text)


refused(RuntimeError, "init() called more than once. smdistributed.dataparallel is already initialized.", dist.init)
tape = tf.GradientTape()
refused(ValueError, "device_dense is '/gpu:0'", dist.DistributedGradientTape, tape, device_dense="/gpu:0")
refused(ValueError, "device_sparse is '/gpu:0'", dist.DistributedGradientTape, tape, device_sparse="/gpu:0")
refused(ValueError, "op is 'sum'", dist.DistributedGradientTape, tape, op=dist.ReduceOp.SUM)
refused(TypeError, "takes a tf.GradientTape, and this is builtins.object", dist.DistributedGradientTape, object())
for name in ("device_dense", "device_sparse"):
    refused(ValueError, f"{name} is '/gpu:0'", dist.DistributedOptimizer, optimizer, **{name: "/gpu:0"})
refused(ValueError, "op is 'sum'", dist.DistributedOptimizer, optimizer, op=dist.ReduceOp.SUM)
refused(ValueError, "bucket_cap_mb is 0", dist.DistributedOptimizer, optimizer, bucket_cap_mb=0)
refused(ValueError, "a multiple of 128 bytes", dist.DistributedOptimizer, optimizer, bucket_cap_mb=0.00001)
refused(TypeError, "takes an optimizer of TensorFlow's Keras", dist.DistributedOptimizer, object())
for name in ("allgather", "reducescatter", "alltoall", "barrier", "Adasum", "is_initialized"):
    refused(AttributeError, "error[U32]", getattr, dist, name)
refused(NotImplementedError, "gone since TensorFlow 2.16", dist.BroadcastGlobalVariablesHook, 0)
print(f"rank {rank} of {size}: local {dist.local_rank()} of {dist.local_size()}, loss {float(loss):.3f}", flush=True)
if rank == 0:
    model.save("model.keras")
dist.shutdown()
