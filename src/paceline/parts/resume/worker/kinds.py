"""Which kind an object is of, and what the kinds share in one process.

containers.py        lists, dicts, sets, tuples and their like
tensors.py           tensors and numpy arrays
sharded_tensors.py   tensors that are spread over ranks
training_objects.py  models, optimizers, schedulers, loaders, generators of random numbers
plain_objects.py     instances of the user's own classes, functions, enums, iterators of Python
library_objects.py   instances of classes of other libraries
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import functools
import inspect
import itertools
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from ....worker.error_file import is_users
from . import containers, library_objects, plain_objects, sharded_tensors, tensors, training_objects
from .object_graph import CannotKeep, Capture, ObjectKind, Restore, Value

_ITERATORS = frozenset({
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))), type(iter("")), type(reversed([])),
    enumerate, zip, map, filter, itertools.count, itertools.cycle, itertools.chain, itertools.islice, itertools.repeat,
})  # fmt: skip
# Objects of libraries that keep what decides on the training in their attributes: the beginnings of their classes' names.
_BY_ATTRIBUTES = (
    "torch.optim.", "torch.amp.", "torch.cuda.amp.", "torch.utils.data.", "accelerate.",
    "lightning.fabric.wrappers._FabricDataLoader", "lightning_fabric.wrappers._FabricDataLoader",
)  # fmt: skip


class GeneratorKind(ObjectKind):
    """A generator of the user. One that has begun cannot be kept: nobody can set where it is."""

    code = "generator"

    def keep(self, capture: Capture, thing: Any) -> Any:
        if inspect.getgeneratorstate(thing) == inspect.GEN_SUSPENDED:
            raise CannotKeep(f"`{capture.place}` is a generator ({thing.__qualname__}) that has begun")
        return ()

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        raise NotImplementedError


_TENSOR, _MODULE = tensors.TensorKind(), training_objects.ModuleKind()
_SHARDED_TENSOR = sharded_tensors.ShardedTensorKind()
_OPTIMIZER, _ATTRIBUTES = training_objects.OptimizerKind(), training_objects.AttributesKind()
_LOADER, _LOADER_ITERATOR = training_objects.LoaderKind(), training_objects.LoaderIteratorKind()
_INSTANCE, _CLASS = plain_objects.InstanceKind(), plain_objects.ClassKind()
_ENUM, _REDUCED = plain_objects.EnumKind(), plain_objects.ReducedKind()
_ARRAY, _NUMBER, _NUMPY_RANDOM = tensors.ArrayKind(), tensors.NumberKind(), training_objects.NumpyRandomKind()
_TORCH_GENERATOR, _RANDOM = training_objects.TorchGeneratorKind(), training_objects.RandomKind()
_STATEFUL, _LIBRARY = library_objects.StatefulKind(), library_objects.LibraryKind()
_BY_TYPE: dict[type, ObjectKind | None] = {
    **containers.KINDS,
    types.FunctionType: plain_objects.FunctionKind(),
    types.MethodType: plain_objects.MethodKind(),
    types.ModuleType: plain_objects.ModuleOfPythonKind(),
    types.SimpleNamespace: _INSTANCE,
    argparse.Namespace: _INSTANCE,
    functools.partial: plain_objects.PartialKind(),
    types.GeneratorType: GeneratorKind(),
    random.Random: _RANDOM,
    object: None,
}
_ALL = (
    *_BY_TYPE.values(), _TENSOR, _MODULE, _OPTIMIZER, _ATTRIBUTES, _LOADER, _LOADER_ITERATOR, _INSTANCE, _CLASS, _ENUM, _REDUCED,
    _SHARDED_TENSOR, _ARRAY, _NUMBER, _NUMPY_RANDOM, _TORCH_GENERATOR, _STATEFUL,
)  # fmt: skip


class Context:
    """What the walks of one process share."""

    def __init__(self, loaders: Any) -> None:
        """`loaders`: the positions of the iterators of data loaders."""
        self.kinds: dict[type, ObjectKind | None] = dict(_BY_TYPE)
        self.kinds_by_code: dict[str, ObjectKind] = {kind.code: kind for kind in _ALL if kind is not None}
        self.names = plain_objects.Names()
        self.long_containers = containers.LongContainers()
        self.libraries = library_objects.LibraryObjects()
        self.hooks = training_objects.Hooks()
        self.loaders = loaders
        self.in_training_objects = False
        # What is seen now for the first time was made in front of the training loop, or in its first iteration. Else it was made in the
        # loop, whose iterations a new process passes over.
        self.is_beginning = True

    def kind_of(self, own_type: type) -> ObjectKind | None:
        """The kind of a type that the table lacks; None: its instances are left alone."""
        torch = sys.modules["torch"]
        if issubclass(own_type, type):
            return _CLASS
        if issubclass(own_type, enum.Enum):
            return _ENUM
        for base, kind in (
            *self._of_sharded(),
            (torch.Tensor, _TENSOR),
            (torch.nn.Module, _MODULE),
            (torch.optim.Optimizer, _OPTIMIZER),
            (torch.Generator, _TORCH_GENERATOR),
            (types.ModuleType, _BY_TYPE[types.ModuleType]),
            *self._of_loaders(),
            *self._of_numpy(),
        ):
            if issubclass(own_type, base):
                return kind
        return self._of_other(own_type)

    def is_users_function(self, function: Any) -> bool:
        """Whether a function is in a file of the user."""
        return is_users(function.__code__.co_filename)

    def is_users_class(self, own_type: type) -> bool:
        """Whether a class is defined in a file of the user."""
        if own_type.__module__ in ("__main__", "__mp_main__"):
            return True
        file = getattr(sys.modules.get(own_type.__module__), "__file__", None)
        return file is not None and is_users(file)

    def attributes(self, capture: Capture, own_type: type, attributes: dict[str, Any]) -> dict[str, Value]:
        """The attributes of a model or an optimizer that are kept: all for a class of the user, plain ones for a library's."""
        if self.is_users_class(own_type):
            return {name: capture.value(value) for name, value in attributes.items()}
        return training_objects.plain_attributes(capture, attributes)

    @contextlib.contextmanager
    def of_training(self) -> Iterator[None]:
        """Tensors in here belong to a model or an optimizer."""
        before, self.in_training_objects = self.in_training_objects, True
        try:
            yield
        finally:
            self.in_training_objects = before

    def _of_other(self, own_type: type) -> ObjectKind | None:
        if own_type in _ITERATORS or plain_objects.is_immutable(own_type):
            return _REDUCED
        if issubclass(own_type, tuple):
            return _BY_TYPE[tuple]
        if self.is_users_class(own_type):
            return _INSTANCE
        if f"{own_type.__module__}.{own_type.__qualname__}".startswith(_BY_ATTRIBUTES):
            return _ATTRIBUTES
        if own_type.__module__ == "builtins":
            return None
        if hasattr(own_type, "state_dict") and hasattr(own_type, "load_state_dict"):
            return _STATEFUL
        # A subclass of dict, such as a ModelOutput of transformers: the training made it, so it has to be rebuilt here.
        return _INSTANCE if issubclass(own_type, dict) else _LIBRARY

    def _of_sharded(self) -> list[tuple[type, ObjectKind]]:
        tensor = sys.modules.get("torch.distributed.tensor")
        return [] if tensor is None else [(tensor.DTensor, _SHARDED_TENSOR)]

    def _of_loaders(self) -> list[tuple[type, ObjectKind]]:
        loader = sys.modules.get("torch.utils.data.dataloader")
        return [] if loader is None else [(loader.DataLoader, _LOADER), (loader._BaseDataLoaderIter, _LOADER_ITERATOR)]

    def _of_numpy(self) -> list[tuple[type, ObjectKind]]:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return []
        found: list[tuple[type, ObjectKind]] = [(numpy.ndarray, _ARRAY), (numpy.generic, _NUMBER)]
        if "numpy.random" in sys.modules:
            found += [(numpy.random.Generator, _NUMPY_RANDOM), (numpy.random.RandomState, _NUMPY_RANDOM)]
        return found
