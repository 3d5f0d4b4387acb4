"""`fit` of tf-keras under MultiWorkerMirroredStrategy, as in TensorFlow's tutorial "Multi-worker training with Keras"."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy
import tensorflow as tf

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rng = numpy.random.default_rng(0)
images = rng.normal(size=(256, 8)).astype("float32")
labels = (images.sum(axis=1, keepdims=True) > 0).astype("float32")
data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(16 * world_size)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=tf.keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(data, epochs=2, steps_per_epoch=10, verbose=0)
print(f"rank {rank} of {world_size}: {sum(float(abs(one).sum()) for one in model.get_weights()):.6f}", flush=True)
