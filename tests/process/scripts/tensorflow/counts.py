"""One way to make 12 steps, said by the argument; the optimizer's own count is printed at the end."""

import os
import sys

what = sys.argv[1]
if "legacy" in what:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

assert "torch" not in sys.modules
images = numpy.ones((96, 4), dtype="float32")
labels = numpy.ones((96, 1), dtype="float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.01)


def gradients(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def update(batch):
    optimizer.apply_gradients(zip(gradients(batch), model.trainable_variables, strict=True))


if what.startswith("fit"):
    model.compile(
        optimizer, loss="mse", steps_per_execution=3 if "several" in what else 1, run_eagerly="eagerly" in what
    )
    model.fit(images, labels, batch_size=16, epochs=2, verbose=0)
elif what.startswith("train_on_batch"):
    model.compile(optimizer, loss="mse")
    for _ in range(12):
        model.train_on_batch(images[:16], labels[:16])
elif what == "function":
    traced = tf.function(update)
    for _ in range(12):
        traced(tf.constant(images[:16]))
elif what == "nested":
    inner = tf.function(update)
    outer = tf.function(lambda batch: inner(batch))
    inner(tf.constant(images[:16]))
    for _ in range(11):
        outer(tf.constant(images[:16]))
elif what == "traced again":
    traced = tf.function(update)
    for number in range(12):
        traced(tf.constant(images[: 16 + number % 3]))
elif what == "eager":
    for _ in range(12):
        update(tf.constant(images[:16]))
elif what == "loss scale":
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.01))
    traced = tf.function(update)
    for _ in range(12):
        traced(tf.constant(images[:16]))
elif what == "evaluation":
    model.compile(optimizer, loss="mse")
    model.fit(images, labels, batch_size=16, epochs=2, verbose=0, validation_data=(images, labels))
    model.predict(images, verbose=0)
elif what == "saves":
    model.compile(optimizer, loss="mse")
    model.fit(images, labels, batch_size=16, epochs=1, verbose=0)
    tf.train.Checkpoint(model=model).save("checkpoint/one")
    model.save("whole.keras")
    model.fit(images, labels, batch_size=16, epochs=1, verbose=0)
print("iterations", int(optimizer.iterations.numpy()))
loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "torch")
assert not loaded, loaded[:5]
