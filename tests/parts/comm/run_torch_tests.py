"""torch's own tests of process groups, on the backend `paceline`: run_torch_tests.py CHECKOUT [NAME ...]

CHECKOUT is a copy of pytorch's sources at the release that is installed, or near it; what is needed of it is test/distributed.
Wherever a test asks for the backend gloo it gets `paceline`. NAME chooses tests by a part of their name. Prints what failed, and counts.
torch's tests need the packages expecttest and numpy. A test takes up to a minute on a busy machine: each starts processes of its own.
"""

import functools
import importlib
import os
import sys
import types
import unittest
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from paceline.parts.comm import backends
from paceline.parts.comm.backend.process_group import PacelineGroup

# What torch or the test itself decides by the name of the backend, whatever the process group can do.
BY_NAME = {
    "test_monitored_barrier": "torch.distributed.monitored_barrier takes the backend `gloo` only; group.monitored_barrier works",
    "test_init_process_group_for_all_backends": "it asks for `gloo`, gets `paceline`, and compares the two names",
}
MODULES = ("test_c10d_gloo", "test_c10d_common")
HOST = "here"


def paceline_for_gloo() -> None:
    """Every group made by name from now on in this process."""
    backends.register(lambda: HOST)
    make = dist.init_process_group

    @functools.wraps(make)
    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        make("paceline" if backend == "gloo" else backend, *arguments, **named)

    for module in (dist, dist.distributed_c10d):
        module.init_process_group = init_process_group


def group_of(test: Any, store: dist.Store, rank: int, world_size: int, opts: Any) -> PacelineGroup:
    """What the tests of the group itself are given in place of a ProcessGroupGloo."""
    store.set_timeout(timedelta(seconds=60))
    return PacelineGroup(store, rank, world_size, opts._timeout, host_key=HOST)


def loaded(name: str) -> Any:
    """A module of tests; what it imports of a torch that is not this one is there, and a test that uses it is skipped."""
    while True:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = str(error.name)
            if not missing.startswith("torch."):
                raise
            sys.modules[missing] = gone = types.ModuleType(missing)
            gone.__path__ = []
            gone.__getattr__ = functools.partial(not_here, missing)  # type: ignore[method-assign]


def not_here(module: str, name: str) -> Any:
    """A stand-in for `name`, which skips the test that calls it."""
    if name.startswith("__"):
        raise AttributeError(name)

    def skip(*_: Any, **__: Any) -> None:
        raise unittest.SkipTest(f"this torch has no {module}.{name}")

    return skip


def prepare(tests: Path) -> list[Any]:
    """The modules of the checkout, in this process and in each that a test starts: those load this file again."""
    sys.path.insert(0, str(tests))
    paceline_for_gloo()
    modules = [loaded(name) for name in MODULES]
    modules[0].ProcessGroupGlooTest._create_process_group_gloo = group_of
    return modules


def chosen(suite: unittest.TestSuite, parts: list[str]) -> unittest.TestSuite:
    """The tests whose names have one of these parts; all where there are none."""
    flat: list[unittest.TestCase] = []

    def add(node: Any) -> None:
        if isinstance(node, unittest.TestSuite):
            for inner in node:
                add(inner)
        elif not parts or any(part in node.id() for part in parts):
            flat.append(node)

    add(suite)
    return unittest.TestSuite(flat)


def main() -> int:
    _, checkout, *parts = sys.argv
    os.environ["PACELINE_TORCH_TESTS"] = str(Path(checkout, "test", "distributed").resolve())
    failed = 0
    for module in prepare(Path(os.environ["PACELINE_TORCH_TESTS"])):
        result = unittest.TextTestRunner(verbosity=1).run(
            chosen(unittest.defaultTestLoader.loadTestsFromModule(module), parts)
        )
        wrong = [test.id().rsplit(".", 1)[-1] for test, _ in (*result.failures, *result.errors)]
        counts = Counter("refused by name" if name in BY_NAME else "failed" for name in wrong)
        passed = result.testsRun - len(result.skipped) - len(wrong)
        print(f"{module.__name__}: {passed} passed, {len(result.skipped)} skipped, {dict(counts) or 'none failed'}")
        for name in sorted(set(wrong)):
            print(f"  {name}: {BY_NAME.get(name, 'failed')}")
        failed += counts["failed"]
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
elif "PACELINE_TORCH_TESTS" in os.environ:
    prepare(Path(os.environ["PACELINE_TORCH_TESTS"]))
