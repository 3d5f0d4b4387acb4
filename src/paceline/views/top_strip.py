"""The last minute of each host as one row of block characters, and how much CPU and memory each rank uses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from paceline.facts import RankRecord
from paceline.recording.step_columns import TimeAxis
from paceline.views.host_load import usage_in_columns
from paceline.views.pace import Pace, pace

SECONDS = 60
HELD_SECONDS = 10
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
_UNKNOWN, _ASCII_UNKNOWN = "·", " "
_NS = 1_000_000_000


class Shown(StrEnum):
    """What the strips show."""

    LATE = "late"
    STEP = "step"
    CPU = "cpu"
    GPU = "gpu"


# A strip is full at this value or at the largest of all hosts, whichever is more: what is healthy looks flat.
_FULL = {Shown.LATE: 0.25, Shown.STEP: 0.0, Shown.CPU: 1.0, Shown.GPU: 1.0}
Values = Sequence[float | None]


class PaceHistory:
    """What the snapshots of the last minute found, second by second: how late the latest rank of each host was, and its steps."""

    def __init__(self) -> None:
        self._late: dict[str, dict[int, float]] = {}
        self._step: dict[str, dict[int, float]] = {}

    def add(self, now: Pace, now_ns: int, since_ns: int) -> None:
        """Note one snapshot. `since_ns`: the snapshot before, from which on the pace is."""
        late = late_fractions(now)
        seconds = range(max(since_ns // _NS + 1, now_ns // _NS - SECONDS + 1), now_ns // _NS + 1)
        for rank in now.ranks:
            share = late.get((rank.host, rank.rank))
            for second in seconds:
                if share is not None:
                    _keep_largest(self._late.setdefault(rank.host, {}), second, share)
                if rank.step_seconds is not None:
                    _keep_largest(self._step.setdefault(rank.host, {}), second, rank.step_seconds)
        for host in (*self._late.values(), *self._step.values()):
            for second in [one for one in host if one <= now_ns // _NS - SECONDS]:
                del host[second]

    def values(self, host: str, shown: Shown, now_ns: int) -> Values:
        """One value for each of the last 60 seconds, the newest last; None: not known."""
        known = (self._late if shown is Shown.LATE else self._step).get(host, {})
        return [known.get(second) for second in range(now_ns // _NS - SECONDS + 1, now_ns // _NS + 1)]


class LivePace:
    """The pace of a run that is looked at again and again. Steps may be longer than the time between two snapshots."""

    def __init__(self, ranks: Sequence[RankRecord], now_ns: int) -> None:
        self.history = PaceHistory()
        """The last minute."""
        self._before, self._since_ns = ranks, now_ns
        self._now = pace(ranks)

    def look(self, ranks: Sequence[RankRecord], now_ns: int) -> Pace:
        """The pace since the last snapshot in which a step had ended; that one's for some seconds more while no step ends.

        Holds:   a run that makes no step any more has no time of a step after HELD_SECONDS
        """
        fresh = pace(ranks, self._before)
        if fresh.step_seconds is not None:
            self.history.add(fresh, now_ns, self._since_ns)
            self._before, self._since_ns, self._now = ranks, now_ns, fresh
        elif now_ns - self._since_ns > HELD_SECONDS * _NS:
            self._now = fresh
        return replace(self._now, ranks_here=fresh.ranks_here, ranks_wanted=fresh.ranks_wanted)


def late_fractions(now: Pace) -> dict[tuple[str, int], float]:
    """(host, rank) -> how much later than the first rank it comes to the collectives, as a share of the step.

    The rank that waits longest for collectives came first. Only ranks whose waiting is known are there, and only if two of them are.

    Holds:   of the rank that waits longest it is 0
    """
    known = {
        (rank.host, rank.rank): rank.exposed_communication_fraction
        for rank in now.ranks
        if rank.exposed_communication_fraction is not None
    }
    most = max(known.values(), default=0.0)
    return {key: most - share for key, share in known.items()} if len(known) > 1 else {}


def strips(
    hosts: Iterable[str],
    shown: Shown,
    history: PaceHistory,
    telemetry: Mapping[str, Sequence[Mapping[str, Any]]],
    now_ns: int,
) -> dict[str, Values]:
    """The last 60 seconds of each host."""
    if shown in (Shown.LATE, Shown.STEP):
        return {host: history.values(host, shown, now_ns) for host in hosts}
    axis = TimeAxis(now_ns - SECONDS * _NS, now_ns, SECONDS)
    name = "cpu_fraction" if shown is Shown.CPU else "gpu_busy_fraction"
    recent = {
        host: [line for line in telemetry.get(host, ()) if (line.get("t_ns") or 0) > axis.from_ns] for host in hosts
    }
    return {host: usage_in_columns(host, lines, axis)[name] for host, lines in recent.items()}


def strip_texts(values: Mapping[str, Values], shown: Shown, cells: int, *, ascii_only: bool = False) -> dict[str, str]:
    """Host -> its strip of so many characters, the largest value of the seconds in each; all hosts on one scale.

    Holds:   a larger value is never a lower block; a second of which nothing is known is no low block
    """
    most = max((one for row in values.values() for one in row if one is not None), default=0.0)
    full = max(most, _FULL[shown]) or 1.0
    blocks, unknown = (_ASCII_BLOCKS, _ASCII_UNKNOWN) if ascii_only else (_BLOCKS, _UNKNOWN)

    def block(part: Values) -> str:
        known = [one for one in part if one is not None]
        return blocks[min(int(max(known) / full * len(blocks)), len(blocks) - 1)] if known else unknown

    return {
        host: "".join(block(row[len(row) * at // cells : len(row) * (at + 1) // cells]) for at in range(cells))
        for host, row in values.items()
    }


@dataclass(frozen=True, slots=True)
class RankUsage:
    """What a rank and its descendants use."""

    cpu_cores: float | None = None
    """CPUs in use, 1.0 is one of them; None: not known."""
    resident_bytes: int | None = None
    """Memory; None: not known."""
    gpu_busy_fraction: float | None = None
    """Use of the GPU with its local number; None: not known."""


def rank_usage(
    telemetry: Mapping[str, Sequence[Mapping[str, Any]]], events: Iterable[Mapping[str, Any]] = ()
) -> dict[tuple[str, int], RankUsage]:
    """(host, rank) -> its use at the last sample; CPU since the sample before. `events` say which GPU is whose."""
    found: dict[tuple[str, int], RankUsage] = {}
    gpu_of = {
        (event["host"], event["rank"]): event.get("gpu_index")
        for event in events
        if event.get("event") == "rank_joined"
        and isinstance(event.get("host"), str)
        and isinstance(event.get("rank"), int)
    }
    for host, lines in telemetry.items():
        recent = [line for line in lines[-2:] if isinstance(line.get("t_ns"), int)]
        if not recent:
            continue
        before = _ranks(recent[0]) if len(recent) == 2 else {}
        seconds = (recent[-1]["t_ns"] - recent[0]["t_ns"]) / _NS
        for name, now in _ranks(recent[-1]).items():
            if name.isdigit() and isinstance(now, Mapping):
                memory = now.get("resident_bytes")
                cores = _cores(now, before.get(name), seconds)
                busy = _gpu_busy(recent[-1], gpu_of.get((host, int(name))))
                found[host, int(name)] = RankUsage(cores, memory if isinstance(memory, int) else None, busy)
    return found


def _ranks(line: Mapping[str, Any]) -> Mapping[str, Any]:
    ranks = line.get("ranks")
    return ranks if isinstance(ranks, Mapping) else {}


def _gpu_busy(line: Mapping[str, Any], index: int | None) -> float | None:
    gpus = line.get("gpus")
    for gpu in gpus if index is not None and isinstance(gpus, Sequence) else ():
        if isinstance(gpu, Mapping) and gpu.get("index") == index:
            busy = gpu.get("busy_fraction")
            return busy if isinstance(busy, int | float) else None
    return None


def _cores(now: Mapping[str, Any], before: Any, seconds: float) -> float | None:
    if not isinstance(before, Mapping) or before.get("pid") != now.get("pid") or seconds <= 0:
        return None
    new, old = now.get("cpu_seconds"), before.get("cpu_seconds")
    if not isinstance(new, int | float) or not isinstance(old, int | float):
        return None
    return max(new - old, 0.0) / seconds


def _keep_largest(known: dict[int, float], second: int, value: float) -> None:
    known[second] = max(known.get(second, value), value)
