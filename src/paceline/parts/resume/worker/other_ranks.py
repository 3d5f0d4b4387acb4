"""A saved state of another number of ranks: what is put back of it, and how the rest of an epoch is dealt to the ranks of now.

What the training has changed is put back: in a rank that was there before from its own state, in a new one from rank 0's. A plain value
that the training has not changed since its first step (`rank`, `world_size`, `len(loader)`) stays as the script has made it again.

A DistributedSampler deals its order out in turn. So after some batches of each rank a beginning of the order is done, without a hole.
The rest is dealt out in the same way to the ranks of now.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..recording.state_buffer import unpacked
from .object_graph import CannotPutBack, Node, Unchanged, Value

_SAMPLER = "torch.utils.data.distributed:DistributedSampler"
# What the script decides by the number of ranks.
_OF_THIS_NUMBER = {
    _SAMPLER: frozenset({"rank", "num_replicas", "num_samples", "total_size"}),
    "torch.utils.data.sampler:BatchSampler": frozenset({"batch_size", "drop_last"}),
}


def own_rank() -> tuple[int, int]:
    """This rank and the number of ranks."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


# ------------------------------------------------------------------------------------------------------------- variables


def leave_unchanged(plan: dict[str, Any]) -> None:
    """Mark in a saved state what the training has not changed, and take out what the number of ranks decides.

    Raises:  CannotPutBack: it is not known what the training has changed
    """
    first_frames, first_modules, first_nodes = unpacked(plan["first"])
    names = [name for name, _ in plan["frames"]]
    if names != [name for name, _ in first_frames]:
        raise CannotPutBack("the training loop is in another function than the one of the first step")
    comparison = _Comparison(plan["nodes"], first_nodes)
    plan["frames"] = [
        (name, comparison.variables(now, then))
        for (name, now), (_, then) in zip(plan["frames"], first_frames, strict=True)
    ]
    plan["modules"] = {
        name: comparison.variables(now, first_modules.get(name, {})) for name, now in plan["modules"].items()
    }
    leave_out_numbers(plan["nodes"])


def leave_out_numbers(nodes: list[Node | None]) -> None:
    """Take out of the nodes of samplers what the number of ranks decides."""
    for node in nodes:
        if node is not None and node[0] == "attributes":
            name, attributes = node[1]
            for one in _OF_THIS_NUMBER.get(name, ()):
                attributes.pop(one, None)


class _Comparison:
    """The values of now beside those of the first step, from the variables on."""

    def __init__(self, now: list[Node | None], then: list[Node | None]) -> None:
        self._now, self._then = now, then
        self._met: set[int] = set()
        pairs, items = self._pairs, self._items
        self._by_code: dict[str, Callable[[Any, Any], Any]] = {
            "instance": lambda a, b: [
                a[0],
                self.variables(a[1], b[1]),
                None if a[2] is None else items(a[2], b[2] or []),
            ],
            "class": lambda a, b: [a[0], self.variables(a[1], b[1])],
            "module": lambda a, b: [*a[:4], self.variables(a[4], b[4]), self.variables(a[5], b[5]), *a[6:]],
            "function": lambda a, b: [
                a[0],
                self._cells(a[1], b[1]),
                self.variables(a[2], b[2]),
                self._value(a[3], b[3]),
            ],
            "partial": items,
            "method": lambda a, b: [self._value(a[0], b[0]), a[1]],
            **dict.fromkeys(("list", "deque", "tuple"), lambda a, b: [a[0], items(a[1], b[1])]),
            **dict.fromkeys(("dict", "ordered", "counter", "default"), lambda a, b: [a[0], pairs(a[1], b[1])]),
        }

    def variables(self, now: dict[str, Value], then: dict[str, Value]) -> dict[str, Value]:
        """The values by their names."""
        return {name: self._value(value, then[name]) if name in then else value for name, value in now.items()}

    def _value(self, now: Value, then: Value) -> Value:
        if type(now) is not tuple:
            return Unchanged(now) if type(then) is type(now) and then == now else now
        if now and then and type(then) is tuple and now[0] not in self._met:
            self._met.add(now[0])
            self._compare(now[0], self._then[then[0]])
        return now

    def _compare(self, number: int, then: Node | None) -> None:
        now = self._now[number]
        if now is None or then is None or now[0] != then[0] or now[0] not in self._by_code:
            return
        # The payload of a long container is its checksum.
        if type(now[1]) is list and type(then[1]) is list:
            self._now[number] = (now[0], self._by_code[now[0]](now[1], then[1]))

    def _items(self, now: list[Value], then: list[Value]) -> list[Value]:
        return [self._value(value, then[i]) if i < len(then) else value for i, value in enumerate(now)]

    def _pairs(self, now: list[Value], then: list[Value]) -> list[Value]:
        known = {then[i]: then[i + 1] for i in range(0, len(then), 2)}
        found = list(now)
        for i in range(0, len(now), 2):
            if now[i] in known:
                found[i + 1] = self._value(now[i + 1], known[now[i]])
        return found

    def _cells(self, now: Any, then: Any) -> Any:
        if now is None or then is None or len(now) != len(then):
            return now
        return [[filled, self._value(value, was[1])] for (filled, value), was in zip(now, then, strict=True)]


# ------------------------------------------------------------------------------------------------------------------- data


class Deal(NamedTuple):
    """How the order of an epoch is divided among the ranks."""

    items: int
    """Items of the dataset."""
    batch_size: int
    """Items of a batch of one rank."""
    passed: int = 0
    """Items of the order that were done before the number of ranks changed; 0: it has not changed in this epoch."""
    taken: int = 0
    """Batches of each rank that were taken by then."""


def deal_of(loader: Any) -> Deal | None:
    """The deal of an epoch that begins now; None: nobody can deal out the rest of this loader's order."""
    data = sys.modules["torch"].utils.data
    if loader._dataset_kind != 0 or type(loader.batch_sampler) is not data.BatchSampler:
        return None
    if type(loader.sampler) is not data.distributed.DistributedSampler:
        return None
    return Deal(len(loader.dataset), loader.batch_sampler.batch_size)


def dealt_again(loader: Any, then: tuple[int, ...] | None, taken: int, ranks_then: int, place: str) -> Deal:
    """The deal for the rest of an epoch, of which each of `ranks_then` ranks has taken `taken` batches.

    Raises:  CannotPutBack: the rest cannot be dealt out
    """
    now = deal_of(loader)
    if now is None or then is None:
        raise CannotPutBack(
            f"{place}: only a DataLoader with torch's DistributedSampler can be dealt to another number of ranks"
        )
    before = Deal(*then)
    if now.items != before.items:
        raise CannotPutBack(f"{place}: the dataset has {now.items} items, and had {before.items}")
    done = before.passed + ranks_then * before.batch_size * (taken - before.taken)
    return now._replace(passed=min(done, now.items), taken=taken)


def batches(loader: Any, deal: Deal) -> Iterator[Any]:
    """The batches of indices of this rank in the rest of the epoch.

    Holds:   over all ranks, each item of the order from `deal.passed` on comes once. As with DistributedSampler, the first ones come twice
             or, with drop_last, the last ones do not come, so that all ranks have the same number.
    """
    sampler = loader.sampler
    whole = copy.copy(sampler)
    whole.rank, whole.num_replicas = 0, 1
    whole.num_samples = whole.total_size = deal.items
    order = list(whole)
    rest, ranks = order[deal.passed :], sampler.num_replicas
    odd = len(rest) % ranks
    if odd and sampler.drop_last:
        rest = rest[:-odd]
    elif odd:
        missing = ranks - odd
        rest += (order * missing)[:missing]
    kind = sys.modules["torch"].utils.data.BatchSampler
    return iter(kind(rest[sampler.rank :: ranks], loader.batch_sampler.batch_size, loader.batch_sampler.drop_last))
