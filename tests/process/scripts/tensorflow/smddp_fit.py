"""`fit` with smdistributed.dataparallel.tensorflow.keras, as public scripts use it. The argument "legacy" asks for tf-keras."""

import os
import sys

legacy = "legacy" in sys.argv
if legacy:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy  # noqa: E402
import smdistributed.dataparallel.tensorflow.keras as dist  # noqa: E402
import tensorflow as tf  # noqa: E402
from smdistributed.dataparallel.tensorflow.keras import callbacks  # noqa: E402

dist.init()
assert callbacks is dist.callbacks or vars(callbacks).keys() >= {"BroadcastGlobalVariablesCallback"}
tf.random.set_seed(dist.rank())
rng = numpy.random.default_rng(dist.rank())
images = rng.normal(size=(128, 6)).astype("float32")
labels = (images.sum(axis=1, keepdims=True) > 0).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
optimizer = dist.DistributedOptimizer(tf.keras.optimizers.SGD(0.05, momentum=0.5), compression=dist.Compression.none)
assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, tf.keras.optimizers.SGD)
old = {"experimental_run_tf_function": False} if legacy else {}
model.compile(optimizer, loss=tf.keras.losses.BinaryCrossentropy(from_logits=True), **old)
found = model.fit(
    images,
    labels,
    batch_size=16,
    epochs=3,
    verbose=0,
    callbacks=[dist.callbacks.BroadcastGlobalVariablesCallback(0), dist.callbacks.MetricAverageCallback()],
)
weights = sum(float(abs(one).sum()) for one in model.get_weights())
print(f"rank {dist.rank()} of {dist.size()}: {weights.hex()} {found.history['loss'][-1]:.12f}", flush=True)
