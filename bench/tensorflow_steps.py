"""The step of smdistributed.dataparallel.tensorflow beside MultiWorkerMirroredStrategy's, and what watching TensorFlow costs.

    make tensorflow                          installs TensorFlow, where it is not yet
    python bench/tensorflow_steps.py         all of it; a few minutes

Two ranks of one job make the same step in four ways, in turn: without exchange, under MultiWorkerMirroredStrategy, and with the exchange
of paceline's module, by TensorFlow's collectives and by shared memory. All are in the same two processes, on the same runtime of
TensorFlow. The minimum is the figure to read on a machine that does other things too. Then come single sums of several sizes. The last
lines time a call of a function that does nothing, with and without paceline's counter, a million times, a call of `paceline.step()`, and
`import tensorflow`: its CPU time and memory with and without paceline, and what paceline's own code takes of them.
The difference of two imports is noise on a busy machine. So paceline's own code is timed by itself: every call that its finder makes
during the import, and every name that it looks at, by the CPU time of the thread and by the resident memory before and after. Modules
of the standard library that TensorFlow loads too are loaded before. paceline's files are compiled by a first import that is not counted,
as pip does when it installs them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
WAYS = ("none", "mirrored", "collectives", "shared memory")
SIZES = (1 << 12, 1 << 20, 25 << 20)
BATCH, PIXELS = 32, 28
CALLS = 1_000_000
IMPORT = """
import ast, ctypes, dataclasses, fcntl, inspect, ipaddress, json, pathlib, pkgutil, signal, threading, urllib.parse, weakref
import resource, sys, time
seconds, kib = [], []

def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1024

def timed(function, measures_memory):
    def call(*arguments):
        before = resident_kib() if measures_memory else 0
        began = time.thread_time()
        try:
            return function(*arguments)
        finally:
            seconds.append(time.thread_time() - began)
            if measures_memory:
                kib.append(resident_kib() - before)
    return call

def time_calls(finder):
    look, timed_look = finder.find_spec, timed(finder.find_spec, False)
    finder._call = timed(finder._call, True)
    # A name that is watched is looked for by Python's own finders, as it is without paceline.
    finder.find_spec = lambda name, *more: (
        look if name in finder.after or name in finder.before else timed_look
    )(name, *more)

for finder in sys.meta_path:
    if type(finder).__name__ == "AfterImport":
        time_calls(finder)
began = time.process_time()
import tensorflow
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.process_time() - began, used.ru_maxrss / 1024, sum(seconds), sum(kib) / 1024)
"""

STEP = """
import timeit, paceline
print(min(timeit.repeat(paceline.step, number=10_000, repeat=100)) / 10_000)
"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=60, help="steps of each way")
    arguments.add_argument("--imports", type=int, default=5, help="imports of each kind, in turn")
    options = arguments.parse_args()
    if "RANK" in os.environ:
        rank(options.steps)
        return 0
    sys.path.insert(0, str(REPOSITORY / "tests" / "torches"))
    import install_tensorflow

    python = install_tensorflow.python()
    if python is None:
        print("TensorFlow is not installed: make tensorflow", file=sys.stderr)
        return 2
    environment = {
        **os.environ,
        "PYTHON_EXEC": str(python),
        "PYTHONPATH": str(REPOSITORY / "src"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    print("load average {:.1f} {:.1f} {:.1f}".format(*os.getloadavg()), f"on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        words = (
            "--nproc-per-node",
            "2",
            "--tf-config",
            "multi_worker_mirrored",
            __file__,
            "--steps",
            str(options.steps),
        )
        command = [sys.executable, "-m", "paceline", "run", *words]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        tell([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])
        tell_imports(folder, environment, str(python), options.imports)
        tell_step(folder, environment)
    return 0


def tell(lines: list[dict[str, Any]]) -> None:
    """Print what rank 0 has measured."""
    (found,) = lines
    times = {way: found[way] for way in WAYS}
    for way, seconds in times.items():
        print(
            f"{way:14} min {min(seconds) * 1e3:7.2f} ms   median {statistics.median(seconds) * 1e3:7.2f} ms   of {len(seconds)}"
        )
    for way in WAYS[2:]:
        pairs = [ours / theirs for ours, theirs in zip(times[way], times["mirrored"], strict=True)]
        least = min(times[way]) / min(times["mirrored"])
        print(f"{way} / mirrored: {least:.3f} of the minima, {statistics.median(pairs):.3f} in the middle of the pairs")
    for size_bytes, by_way in found["sums"].items():
        least = {way: min(seconds) * 1e3 for way, seconds in by_way.items()}
        print(f"sum of {int(size_bytes) >> 10} KiB: " + ", ".join(f"{way} {ms:.2f} ms" for way, ms in least.items()))
    print(f"a counted call: {found['watched'] * 1e6:.2f} us with the counter, {found['plain'] * 1e6:.2f} us without")


def tell_imports(folder: str, environment: dict[str, str], python: str, count: int) -> None:
    """Print the CPU time and the memory of `import tensorflow`, with and without paceline, in turn, and the part of paceline's own code."""
    script = Path(folder) / "imports.py"
    script.write_text(IMPORT)
    found: dict[str, list[tuple[float, ...]]] = {"paceline": [], "plain": []}
    watched = [sys.executable, "-m", "paceline", "run", str(script)]
    compiles = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(watched, cwd=folder, env=compiles, capture_output=True, check=True)
    for _ in range(count):
        for name, command in (("paceline", watched), ("plain", [python, str(script)])):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
            found[name].append(tuple(map(float, done.stdout.split())))
    for at, unit in ((0, "s of CPU"), (1, "MiB")):
        ours, theirs = (statistics.median(one[at] for one in found[name]) for name in ("paceline", "plain"))
        print(
            f"import tensorflow: {ours:.3f} {unit} in a job, {theirs:.3f} without; {ours - theirs:+.3f} (median of {count})"
        )
    own_ms = sorted(one[2] * 1e3 for one in found["paceline"])
    own_mib = sorted(one[3] for one in found["paceline"])
    print(
        f"of these, paceline's own code: {own_ms[0]:.1f} to {own_ms[-1]:.1f} ms of CPU, {own_mib[0]:.1f} to {own_mib[-1]:.1f} MiB"
    )


def tell_step(folder: str, environment: dict[str, str]) -> None:
    """Print what a call of paceline.step() takes in a job."""
    script = Path(folder) / "step.py"
    script.write_text(STEP)
    command = [sys.executable, "-m", "paceline", "run", str(script)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    print(f"paceline.step(): {float(done.stdout) * 1e6:.2f} us (minimum of 100 times 10,000)")


def rank(steps: int) -> None:
    """One rank: makes the steps, and rank 0 prints their times."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import smdistributed.dataparallel.tensorflow as dist
    import tensorflow as tf
    from tensorflow.python.eager import context

    from paceline.parts.sagemaker.smdistributed.tensorflow import cluster

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # The strategy has joined the ranks; the module's own init() would be the second to do so.
    cluster._joined.context = context.context()
    images = tf.random.normal((BATCH, PIXELS, PIXELS, 1))
    labels = tf.random.uniform((BATCH,), maxval=10, dtype=tf.int64)

    def model() -> tuple[Any, Any]:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [
                layers.Conv2D(32, 3, activation="relu", input_shape=(PIXELS, PIXELS, 1)),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10, activation="softmax"),
            ]
        ), tf.keras.optimizers.Adam(1e-3)

    loss = tf.losses.SparseCategoricalCrossentropy(reduction=tf.keras.losses.Reduction.SUM)

    def update(network: Any, optimizer: Any, exchanges: bool) -> None:
        with tf.GradientTape() as tape:
            value = loss(labels, network(images, training=True))
        if exchanges:
            tape = dist.DistributedGradientTape(tape)
        gradients = tape.gradient(value, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))

    alone, ours, shared = model(), model(), model()
    with strategy.scope():
        mirrored = model()
    functions = {
        "none": tf.function(lambda: update(*alone, False)),
        "mirrored": tf.function(lambda: strategy.run(lambda: update(*mirrored, False))),
        "collectives": by_collectives(tf.function(lambda: update(*ours, True))),
        "shared memory": tf.function(lambda: update(*shared, True)),
    }
    times = {way: [] for way in WAYS}
    for number in range(steps + 2):
        for way in WAYS:
            dist.oob_allreduce(tf.constant(0.0))  # both ranks begin together
            began = time.perf_counter()
            functions[way]()
            if number >= 2:
                times[way].append(time.perf_counter() - began)
    sums = {size_bytes: times_of_a_sum(dist, tf, size_bytes, steps) for size_bytes in SIZES}
    if dist.rank() == 0:
        print(json.dumps({**times, "sums": sums, **calls()}), flush=True)


def by_collectives(function: Any) -> Any:
    """The function, traced while the ranks have no shared memory, so that it uses TensorFlow's collectives."""
    from paceline.parts.sagemaker.smdistributed.tensorflow import shared_memory

    connected = shared_memory.connected
    shared_memory.connected = lambda: None
    function()
    shared_memory.connected = connected
    return function


def times_of_a_sum(dist: Any, tf: Any, size_bytes: int, count: int) -> dict[str, list[float]]:
    """Seconds of `oob_allreduce` of a tensor of this size, in both ways, in turn."""
    tensor = tf.random.normal((size_bytes // 4,))
    functions = {
        "collectives": by_collectives(tf.function(lambda: dist.oob_allreduce(tensor))),
        "shared memory": tf.function(lambda: dist.oob_allreduce(tensor)),
    }
    times: dict[str, list[float]] = {way: [] for way in functions}
    for number in range(count + 2):
        for way, function in functions.items():
            dist.oob_allreduce(tf.constant(0.0))
            began = time.perf_counter()
            function()
            if number >= 2:
                times[way].append(time.perf_counter() - began)
    return times


def calls() -> dict[str, float]:
    """Seconds of a call of a counted function that does nothing, with the counter and without; the runtime's own work is left out."""
    counter = next(
        cell.cell_contents
        for cell in polymorphic().Function.__call__.__closure__
        if type(cell.cell_contents).__name__ == "TensorFlowSteps"
    )
    function = polymorphic().Function(lambda: None, "nothing")
    counter._steps_of[function] = next(iter(counter._steps_of.values()))

    class Nothing:
        Function = type("Function", (), {"__call__": lambda self: None})

    plain = Nothing.Function()
    counter._functions(Nothing)
    watched = Nothing.Function()
    counter._steps_of[watched] = counter._steps_of[function]
    found = {}
    for name, call in (("watched", watched), ("plain", plain)):
        target = call.__call__ if name == "watched" else (lambda: None)
        began = time.perf_counter()
        for _ in range(CALLS):
            target()
        found[name] = (time.perf_counter() - began) / CALLS
    return found


def polymorphic() -> Any:
    """TensorFlow's module with the class of traced functions."""
    from tensorflow.python.eager.polymorphic_function import polymorphic_function

    return polymorphic_function


if __name__ == "__main__":
    sys.exit(main())
