"""Gives AWS's script for MNIST data that were made here, and so many batches: MNIST_NPZ is the file, MNIST_BATCHES their number.

Python imports this file in every process whose PYTHONPATH has its directory. The script is not changed: what it calls is.
"""

import importlib.util
import os
import sys
from typing import Any


def data_made_here(mnist: Any) -> None:
    """`load_data` reads the file, whatever name the script asks for."""
    import numpy

    def load_data(path: str = "mnist.npz") -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        with numpy.load(os.environ["MNIST_NPZ"]) as file:
            return (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])

    mnist.load_data = load_data


def fewer_batches(dataset_ops: Any) -> None:
    """`take` gives at most so many."""
    own = dataset_ops.DatasetV2.take

    def take(dataset: Any, count: int, name: str | None = None) -> Any:
        return own(dataset, min(count, int(os.environ["MNIST_BATCHES"])), name)

    dataset_ops.DatasetV2.take = take


AFTER = {
    "tf_keras.src.datasets.mnist": data_made_here,
    "tensorflow.python.data.ops.dataset_ops": fewer_batches,
}


class AfterImport:
    """A finder that finds nothing itself: it lets the others find a module, and changes the module once it is there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        change = AFTER.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


if "MNIST_NPZ" in os.environ:
    sys.meta_path.insert(0, AfterImport())
