"""Loads one real batch in this process and measures its cost."""

import functools
import time
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import dataloader

from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession


class Loading:
    """The loaders of the script and their batches. `current`: facts of the loader that was used last."""

    def __init__(self, session: TraceSession) -> None:
        self.session = session
        self.current: dict[str, Any] = {}

    def install(self) -> None:
        """From now on loaders load in this process, one batch after the other, timed."""
        init = dataloader.DataLoader.__init__
        following = dataloader._BaseDataLoaderIter.__next__
        loading = self

        @functools.wraps(init)
        def __init__(loader: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            args, kwargs, workers = _in_process(args, kwargs)
            loader.paceline_workers = workers
            init(loader, dataset, *args, **kwargs)

        def __next__(iterator: Any) -> Any:
            started = time.perf_counter()
            batch = following(iterator)
            loading._loaded(iterator, batch, time.perf_counter() - started)
            return batch

        follow = dataloader.DataLoader.__iter__

        def __iter__(loader: Any) -> Any:
            iterator: Any = follow(loader)
            iterator.paceline_loader = loader
            return iterator

        replace(dataloader.DataLoader, __init__=__init__, __iter__=__iter__)
        replace(dataloader._BaseDataLoaderIter, __next__=__next__)

    def _loaded(self, iterator: Any, batch: Any, seconds: float) -> None:
        loader = getattr(iterator, "paceline_loader", None)
        if self.current.get("loader") != id(loader):
            self.current = {"loader": id(loader), "batches": 0, "seconds": []}
            self._describe(loader, batch)
        self.current["batches"] += 1
        self.current["seconds"].append(seconds)

    def _describe(self, loader: Any, batch: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
        leading = next((int(tensor.shape[0]) for tensor in tensors if tensor.dim()), None)
        self.current["bytes"] = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        size = getattr(loader, "batch_size", None) or getattr(
            getattr(loader, "batch_sampler", None), "batch_size", None
        )
        self.current["batch"] = size if isinstance(size, int) else leading
        self.current["samples"] = _length(getattr(loader, "dataset", None))
        workers = getattr(loader, "paceline_workers", 0)
        self.current["workers"] = workers
        if workers:
            self.session.assume(
                f"the loader's {workers} workers are not started: one batch is loaded in the script's own process"
            )


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _in_process(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """The same loader without workers and without pinned memory, and how many workers it wanted."""
    names = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")
    named = dict(zip(names, args, strict=False)) | kwargs if len(args) <= len(names) else kwargs
    args = () if len(args) <= len(names) else args
    workers = int(named.get("num_workers") or 0)
    for name in (
        "prefetch_factor",
        "persistent_workers",
        "multiprocessing_context",
        "pin_memory",
        "pin_memory_device",
        "timeout",
        "in_order",
    ):
        named.pop(name, None)
    named.pop("num_workers", None)
    return args, named, workers
