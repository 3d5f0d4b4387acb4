"""The package `smdistributed` for jobs in which it is not installed: the API of AWS's library, over the process groups of comm
and over TensorFlow's own collectives.

    calls.py        smdistributed.dataparallel.torch.distributed: the module API of its releases 1.0 to 1.3
    model.py        broadcasts and averages over a whole model, for scripts of that API
    parallel.py     its DistributedDataParallel
    backend.py      smdistributed.dataparallel.torch.torch_smddp: the import that makes the backend `smddp` known
    tensorflow/     smdistributed.dataparallel.tensorflow and its keras module
    unsupported.py  errors for what paceline does not have: model parallelism, names that never existed

sitecustomize adds one finder behind all other finders, which calls `find`. It writes nothing to disk and does not change `sys.path`. So an
installed package of that name is found first, and outside of a job there is none. Finding imports neither torch nor TensorFlow.
"""

import importlib
import os
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_EMPTY = "__init__"
# Name that scripts import -> paceline's module with its names. A name that is a prefix of another name is a package.
MODULES = {
    "smdistributed": _EMPTY,
    "smdistributed.dataparallel": _EMPTY,
    "smdistributed.dataparallel.torch": "calls",
    "smdistributed.dataparallel.torch.distributed": "calls",
    "smdistributed.dataparallel.torch.parallel": "parallel",
    "smdistributed.dataparallel.torch.parallel.distributed": "parallel",
    "smdistributed.dataparallel.torch.torch_smddp": "backend",
    "smdistributed.dataparallel.tensorflow": "tensorflow.calls",
    "smdistributed.dataparallel.tensorflow.keras": "tensorflow.keras",
    "smdistributed.dataparallel.tensorflow.keras.callbacks": "tensorflow.callbacks",
    "smdistributed.modelparallel": "unsupported",
}
_PACKAGES = {name.rpartition(".")[0] for name in MODULES}


def find(name: str) -> ModuleSpec | None:
    """The module spec for an import of `name`, or None if the library never had such a module."""
    ours = MODULES.get(name)
    if ours is None:
        return None
    file = os.path.join(os.path.dirname(__file__), *f"{ours}.py".split(".", ours.count(".")))
    spec = ModuleSpec(name, _Loader(ours), origin=file, is_package=name in _PACKAGES)
    # The module gets a __file__: libraries take a package without one for an empty folder. Its __path__ stays empty.
    spec.has_location = True
    return spec


class _Loader(Loader):
    """Fills a module that has the library's name with the names of paceline's module, which is imported under its own name."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let importlib create an ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """
        Raises:  NotThere: an ImportError, for a module that paceline does not have
        """
        if self._ours == _EMPTY:
            return
        ours = importlib.import_module(f"{__name__}.{self._ours}")
        if hasattr(ours, "refuse"):
            ours.refuse(module.__name__)
        module.__doc__ = ours.__doc__
        for name in ours.__all__:
            setattr(module, name, getattr(ours, name))
        if module.__name__.endswith(".torch"):
            ours.say_local_rank()
        if hasattr(ours, "look_up") and not module.__name__.endswith(".torch"):
            # A name that paceline's module does not define is torch.distributed's, or never existed.
            module.__dict__["__getattr__"] = ours.look_up
            module.__dict__["__dir__"] = ours.names
