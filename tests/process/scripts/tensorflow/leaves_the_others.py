"""A custom loop over MultiWorkerMirroredStrategy with an optimizer, whose rank 1 leaves the others alone after its sixth step.

The argument says how: it sleeps, freezes, leaves, fills the memory, or has no more data.
"""

import os
import signal
import sys
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf

how, rank = sys.argv[1], int(os.environ["RANK"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)


@tf.function
def step(batch):
    def of_replica(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch) ** 2)
        optimizer.minimize(loss, model.trainable_variables, tape=tape)

    strategy.run(of_replica, args=(batch,))


def stuck():
    if how == "sleeps":
        time.sleep(1000)
    elif how == "freezes":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "fills":
        held = []
        while True:
            held.append(b"x" * (64 << 20))
    else:
        sys.exit()


for number in range(6 if how == "ends" and rank == 1 else 10**6):
    step(tf.ones((4, 3)))
    if number == 5 and rank == 1 and how != "ends":
        stuck()
    time.sleep(0.05)
