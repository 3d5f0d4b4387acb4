"""A custom training loop over MultiWorkerMirroredStrategy: least squares, whose result says whether every rank's data had its part.

Arguments: what rank 1 does after six steps (nothing, raise, kill, leave, sleep), and how many steps there are.
"""

import os
import sys
import time

import tensorflow as tf

what, steps = sys.argv[1], int(sys.argv[2])
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == world_size, strategy.num_replicas_in_sync
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def step(target):
    def of_replica(target):
        # The loss is (weight - target)^2 / 2, so that the weight goes to the mean of the targets.
        gradient = weight - target
        mean = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        return weight - 0.5 * mean

    return strategy.run(of_replica, args=(target,))


for number in range(steps):
    found = strategy.experimental_local_results(step(tf.constant(float(rank))))[0]
    weight.assign(found)
    if number == 5 and rank == 1:
        if what == "raise":
            raise ValueError("mine")
        if what == "kill":
            os.kill(os.getpid(), 9)
        if what == "leave":
            sys.exit(0)
        if what == "sleep":
            time.sleep(1000)
print(f"rank {rank} of {world_size}: weight {weight.numpy():.4f}", flush=True)
