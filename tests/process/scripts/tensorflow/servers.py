"""ParameterServerStrategy: the workers serve, the chief trains. Argument: what the chief does then (nothing, raise, kill a server)."""

import os
import signal
import sys
from pathlib import Path

import tensorflow as tf

what = sys.argv[1] if len(sys.argv) > 1 else ""
place = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if place.task_type == "worker":
    tf.distribute.Server(place.cluster_spec(), job_name="worker", task_index=place.task_id).join()


def kill_a_server():
    mark = f"PACELINE_MARK={os.environ['PACELINE_MARK']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        if b"parameter_server.py" in (process / "cmdline").read_bytes() and mark in (process / "environ").read_bytes():
            os.kill(int(process.name), signal.SIGKILL)


strategy = tf.distribute.ParameterServerStrategy(place)
with strategy.scope():
    weight = tf.Variable(0.0)
    optimizer = tf.keras.optimizers.SGD(0.1)


@tf.function
def step():
    def of_replica():
        with tf.GradientTape() as tape:
            loss = (weight - 3.0) ** 2
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    strategy.run(of_replica)


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
for number in range(10**6 if what == "kill" else 60):
    coordinator.schedule(step)
    coordinator.join()
    if number == 20 and what == "raise":
        raise ValueError("mine")
    if number == 20 and what == "kill":
        kill_a_server()
print(f"{weight.device} {weight.numpy():.2f}", flush=True)
