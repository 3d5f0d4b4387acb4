"""Times a sendrecv between each two hosts, or each two ranks of one host, in the rounds of a tournament."""

import os
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from time import perf_counter
from typing import Any

from ....process_identity import boot_id
from .bench_calls import exchange
from .bench_group import BenchAnswers, BenchGroup, fitting

_SMALLEST_BYTES = 8
_LATENCY_ITERATIONS = 50
_PASSES = 2


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Every pair of `count` members once, in the fewest rounds. No member is in two pairs of one round.

    Holds:   rounds(4) has 3 rounds of 2 pairs; rounds(3) has 3 rounds of 1
    Source:  the circle method of round-robin tournaments: one member stays, the others move on by one place
    """
    circle = list(range(count + count % 2))
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(min(pair), max(pair)) for pair in facing if max(pair) < count])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return [one for one in found if one]


def measure_pairs(group: BenchGroup, asked: Mapping[str, Any], answers: BenchAnswers) -> None:
    """Round after round; where all members share one machine, and so its CPUs, pair after pair.

    All of it twice, and of each pair the quicker time counts: what disturbed one pair for a moment is no slow link.
    """
    members = _members(group)
    size = asked["sizes"][-1]
    plan = rounds(len(members))
    if _one_machine(group):
        plan = [[pair] for round_of in plan for pair in round_of]
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for round_of in plan * _PASSES:
        group.barrier()
        mine = next((pair for pair in round_of if group.rank in (members[pair[0]][0], members[pair[1]][0])), None)
        found = _pair(group, members, mine, size, asked) if mine is not None else None
        for pair, ends in _gathered(group, round_of, members, found):
            record = _record(members, pair, ends, size)
            best[pair] = min(best.get(pair, record), record, key=lambda one: float(one["seconds"]))
    for pair in sorted(best):
        answers.say(pair=best[pair])


def _members(group: BenchGroup) -> list[tuple[int, str]]:
    """First rank and name of each host; with one host each rank by itself."""
    hosts = group.all_objects(os.environ.get("PACELINE_HOST") or "localhost")
    first = {host: hosts.index(host) for host in dict.fromkeys(hosts)}
    if len(first) > 1:
        return [(rank, host) for host, rank in first.items()]
    return [(rank, f"rank {rank}") for rank in range(group.ranks)]


def _one_machine(group: BenchGroup) -> bool:
    boot = boot_id()
    return boot is not None and len(set(group.all_objects(boot))) == 1


def _pair(
    group: BenchGroup, members: Sequence[tuple[int, str]], pair: tuple[int, int], size: int, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Seconds of each iteration at this end, of the smallest message and of the large one."""
    import torch

    peer = next(members[one][0] for one in pair if members[one][0] != group.rank)
    send, receive = (torch.zeros(size, dtype=torch.uint8, device=group.device) for _ in range(2))
    between = _Two(group, peer)
    small = exchange(send[:_SMALLEST_BYTES], receive[:_SMALLEST_BYTES], peer, peer)
    large = exchange(send, receive, peer, peer)
    return {
        "small": between.times(small, asked["warmup"], _LATENCY_ITERATIONS, asked["size_seconds"]),
        "large": between.times(large, asked["warmup"], asked["iterations"], asked["size_seconds"]),
    }


class _Two:
    """The two ends of one pair, which agree by what they send each other while other pairs are at work."""

    def __init__(self, group: BenchGroup, peer: int) -> None:
        self._group, self._peer = group, peer

    def times(self, call: Any, warmup: int, wanted: int, seconds: float) -> list[float]:
        """As the group's, for these two ranks alone."""
        for _ in range(max(1, warmup)):
            call()
        self._group.settle()
        began = perf_counter()
        call()
        self._group.settle()
        once = self._longer(perf_counter() - began)
        found = []
        for _ in range(fitting(wanted, once, seconds)):
            began = perf_counter()
            call()
            self._group.settle()
            found.append(perf_counter() - began)
        return found

    def _longer(self, own: float) -> float:
        import torch

        mine = torch.tensor([own], dtype=torch.float64, device=self._group.device)
        theirs = torch.zeros_like(mine)
        exchange(mine, theirs, self._peer, self._peer)()
        return max(float(mine.item()), float(theirs.item()))


def _gathered(
    group: BenchGroup,
    round_of: Sequence[tuple[int, int]],
    members: Sequence[tuple[int, str]],
    found: dict[str, Any] | None,
) -> list[tuple[tuple[int, int], list[dict[str, Any]]]]:
    everybody = group.all_objects(found)
    return [(pair, [everybody[members[one][0]] for one in pair]) for pair in round_of]


def _record(
    members: Sequence[tuple[int, str]], pair: tuple[int, int], ends: Sequence[Mapping[str, Any]], size: int
) -> dict[str, Any]:
    large = [fmean(both) for both in zip(*(end["large"] for end in ends), strict=True)]
    small = [fmean(both) for both in zip(*(end["small"] for end in ends), strict=True)]
    middle = median(large)
    return {
        "a": members[pair[0]][1],
        "b": members[pair[1]][1],
        "size_bytes": size,
        "seconds": middle,
        "mad_seconds": median(abs(one - middle) for one in large),
        "latency_seconds": median(small),
        "iterations": len(large),
    }
