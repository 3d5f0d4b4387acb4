"""Which ranks of a process group share a host. Every rank says the name of its host through the store; nobody guesses from addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from torch._C._distributed_c10d import Store

from ...process_identity import start_ticks
from .store_connection import read_all


def my_card() -> str:
    """This process by number and start time: another may get its number later. Empty where there is no /proc."""
    start = start_ticks(os.getpid())
    return "" if start is None else f"{os.getpid()}:{start}"


class LocalPeers:
    """The other ranks of this host, by their cards. One that cannot be seen at the start is never said to have ended."""

    def __init__(self, cards: Mapping[int, str]) -> None:
        self._cards = {rank: card for rank, card in cards.items() if card and _is_there(card)}

    def ended(self) -> list[int]:
        """Ranks whose process is over."""
        return [rank for rank, card in self._cards.items() if not _is_there(card)]


def _is_there(card: str) -> bool:
    number, _, start = card.partition(":")
    return start_ticks(int(number)) == int(start)


@dataclass(frozen=True)
class Topology:
    """The ranks of a group by host."""

    rank: int
    """This rank."""
    size: int
    """Number of ranks."""
    hosts: tuple[tuple[int, ...], ...]
    """Ranks of each host in ascending order. Hosts are in the order of their first rank, so all ranks have the
    same value."""
    name: str = ""
    """Name of this rank's host."""
    local_peers: LocalPeers = field(default_factory=lambda: LocalPeers({}), compare=False)
    """Processes of the other ranks of this host."""

    @property
    def host(self) -> int:
        """Index of my host in `hosts`."""
        return next(index for index, ranks in enumerate(self.hosts) if self.rank in ranks)

    @property
    def mine(self) -> tuple[int, ...]:
        """Ranks on my host, me among them."""
        return self.hosts[self.host]

    @property
    def local_rank(self) -> int:
        """My place among the ranks of my host; not LOCAL_RANK where the group leaves ranks out."""
        return self.mine.index(self.rank)

    @property
    def is_regular(self) -> bool:
        """Every host holds the same number of ranks, so that those of one local rank form a group across hosts."""
        return len({len(ranks) for ranks in self.hosts}) == 1

    @property
    def across(self) -> tuple[int, ...]:
        """Ranks with my local rank, one of each host. Holds: is_regular."""
        return tuple(ranks[self.local_rank] for ranks in self.hosts)

    @property
    def is_blocked(self) -> bool:
        """The ranks of each host follow one another, in the order of hosts: a host's part of a gathered tensor is one block."""
        return [rank for ranks in self.hosts for rank in ranks] == list(range(self.size))


def topology_of(rank: int, host_keys: Sequence[str], cards: Sequence[str] = ()) -> Topology:
    """The topology where the i-th rank said the i-th key, and the i-th card of its process.

    Holds:   keys a b a b -> hosts ((0, 2), (1, 3))
    """
    hosts: dict[str, list[int]] = {}
    for index, key in enumerate(host_keys):
        hosts.setdefault(key, []).append(index)
    local_peers = [index for index in hosts[host_keys[rank]] if index != rank and cards]
    return Topology(
        rank,
        len(host_keys),
        tuple(tuple(ranks) for ranks in hosts.values()),
        host_keys[rank],
        LocalPeers({index: cards[index] for index in local_peers}),
    )


def find_topology(store: Store, rank: int, size: int, host_key: str, timeout_seconds: float) -> Topology:
    """Exchange host keys through the store; every rank of the group calls it.

    Raises:  RuntimeError: a rank did not say its host in time; the text names those that did not
    """
    store.set(f"host/{rank}", f"{my_card()} {host_key}")
    names = [f"host/{index}" for index in range(size)]
    try:
        store.wait(names, timedelta(seconds=timeout_seconds))
    except RuntimeError as error:
        missing = [index for index, name in enumerate(names) if not store.check([name])]
        raise RuntimeError(
            f"rank {rank}: ranks {missing} of {size} did not say their host within {timeout_seconds:g} s; they never reached "
            "init_process_group or new_group, or they ended before it"
        ) from error
    said = [value.decode().partition(" ") for value in read_all(store, names)]
    return topology_of(rank, [key for _, _, key in said], [card for card, _, _ in said])
