"""Ranks that have joined and are in no collective when the end comes, so that TensorFlow itself ends none of them.

Arguments: what rank 1 does after a second (raise, kill), or "wait", or "handler": a handler saves to the second argument.
"""

import os
import sys
import time

import tensorflow as tf

what = sys.argv[1]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("joined", flush=True)
if what == "handler":
    with strategy.scope():
        weight = tf.Variable(0.0)
    checkpoint = tf.train.Checkpoint(weight=weight)
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(strategy.cluster_resolver, checkpoint, sys.argv[2])

    @tf.function
    def step():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(())))

    handler.run(step)
    print("trains", flush=True)
    while True:
        handler.run(step)
        time.sleep(0.05)
if os.environ["RANK"] == "1":
    time.sleep(1)
    if what == "raise":
        raise ValueError("mine")
    if what == "kill":
        os.kill(os.getpid(), 9)
time.sleep(1000)
