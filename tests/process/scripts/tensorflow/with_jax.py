"""A job of JAX that finds its ranks by itself. The argument says what rank 1 does then, while the others sleep; or asks for Keras."""

import os
import sys
import time

what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "keras":
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    keras.distribution.initialize()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

if what != "keras":
    jax.distributed.initialize()
rank = int(os.environ["RANK"])
total = multihost_utils.process_allgather(jnp.array([float(rank)])).sum()
print(f"rank {jax.process_index()} of {jax.process_count()}: {total}", flush=True)
assert rank == jax.process_index() and "torch" not in sys.modules
if what == "keras":
    import tensorflow  # noqa: F401

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(numpy.ones((32, 3)), numpy.ones((32, 1)), epochs=2, verbose=0)
if rank == 1 and what == "raise":
    raise ValueError("mine")
if rank == 1 and what == "kill":
    os.kill(os.getpid(), 9)
if what in ("raise", "kill"):
    time.sleep(1000)
