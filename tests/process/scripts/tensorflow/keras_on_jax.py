"""`fit` of Keras on JAX, 2 x 32 batches on every rank. With an argument, rank 1 sleeps after its 21st."""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
images = numpy.random.default_rng(0).normal(size=(1024, 8)).astype("float32")
labels = (images.sum(axis=1, keepdims=True) > 0).astype("float32")


class Sleeps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 20 and os.environ["RANK"] == "1" and len(sys.argv) > 1:
            time.sleep(1000)
        time.sleep(0.02)


model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(images, labels, batch_size=32, epochs=2, verbose=0, callbacks=[Sleeps()], validation_data=(images, labels))
assert "torch" not in sys.modules
