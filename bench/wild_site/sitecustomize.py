"""Breaks one rank of a training script that knows nothing of it: WILD_BREAK at optimizer step WILD_STEP of the process with RANK=WILD_RANK.

Python imports this file in every process whose PYTHONPATH has its directory. A break is one function; it runs inside the step of the
optimizer. The moment is written to stdout, as `broken at <Unix ns>`.
"""

import importlib.util
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

AFTER = "torch.optim.optimizer"
LONG_SECONDS = 3600.0
_begun: list[float] = []


def asleep() -> None:
    """Sleeps in its own code."""
    time.sleep(LONG_SECONDS)


def endless_loop() -> None:
    """Computes for ever."""
    while True:
        sum(range(1000))


def stopped() -> None:
    """Is stopped by a signal, as by a debugger."""
    os.kill(os.getpid(), signal.SIGSTOP)


def killed() -> None:
    """Is killed from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


def leaves() -> None:
    """Ends with code 0 in the middle."""
    sys.exit(0)


def raises() -> None:
    """Raises in the next forward."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    def fail(module: Any, inputs: Any) -> None:
        raise RuntimeError("a shape that does not fit")

    register_module_forward_pre_hook(fail)


def extra_collective() -> None:
    """Makes one collective that the other ranks do not make."""
    import torch

    torch.distributed.all_reduce(torch.ones(3))


def fewer_batches() -> None:
    """Gets no further batch of this epoch; the next one has all of them again."""
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

    # Where a dataset that has no more makes the iterator end; a `__next__` in its place would bypass whoever watches that one.
    kinds = (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter)
    following = [kind._next_data for kind in kinds]

    def end(iterator: Any) -> None:
        for kind, own in zip(kinds, following, strict=True):
            kind._next_data = own
        raise StopIteration

    for kind in kinds:
        kind._next_data = end


def loader_stuck() -> None:
    """Waits for ever for the next batch, in the process that trains."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def wait(iterator: Any) -> None:
        time.sleep(LONG_SECONDS)

    _BaseDataLoaderIter.__next__ = wait


def slow() -> Iterator[None]:
    """Takes half as long again for each step, from now on."""
    between = [later - earlier for earlier, later in itertools.pairwise(_begun)]
    share = sorted(between)[len(between) // 2] / 2
    while True:
        time.sleep(share)
        yield


BREAKS = {
    each.__name__: each
    for each in (
        asleep,
        endless_loop,
        stopped,
        killed,
        leaves,
        raises,
        extra_collective,
        fewer_batches,
        loader_stuck,
        slow,
    )
}


class AfterOptimizer:
    """A finder that finds nothing itself: it lets the others find torch's optimizer, and hooks its steps once it is there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != AFTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            module.register_optimizer_step_post_hook(steps(BREAKS[os.environ["WILD_BREAK"]]))

        spec.loader.exec_module = exec_module
        return spec


def steps(break_now: Callable[[], Any]) -> Callable[..., None]:
    """A hook that counts the steps of this process, and breaks it at its own."""
    going_on: list[Iterator[None]] = []

    def after_step(optimizer: Any, arguments: Any, named: Any) -> None:
        _begun.append(time.monotonic())
        if len(_begun) == int(os.environ["WILD_STEP"]):
            os.write(1, b"broken at %d\n" % time.time_ns())
            rest = break_now()
            going_on.extend([rest] if rest is not None else [])
        for each in going_on:
            next(each)

    return after_step


# An attempt after the first goes on undisturbed.
if (
    "WILD_BREAK" in os.environ
    and os.environ.get("RANK") == os.environ["WILD_RANK"]
    and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
):
    sys.meta_path.insert(0, AfterOptimizer())
