"""Step timing of the job: which rank is slow, since when, by how much, and what its host did meanwhile. Pure.

Ranks are compared with each other. What counts is how much later than the first rank a rank is at the collectives (`arrivals`), because all
ranks' steps last equally long, even if only one of them is slow. A rank's own time without communication replaces it if
the flight recorders could not be read.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from paceline.diagnosis.case import Estimate, HeldUp, RankTiming, StepTiming
from paceline.diagnosis.slow.arrivals import Arrivals, Entry, Lateness, LateSteps, late_steps
from paceline.diagnosis.slow.host_timing import HostLines
from paceline.diagnosis.slow.lateness import behind, held_up
from paceline.diagnosis.slow.noise import blocks, estimate

# Warm-up: DDP arranges its buckets anew after the first step, caches and allocators fill.
FIRST_STEPS = 3
WINDOW_SECONDS = 20.0
WINDOW_STEPS = 20
LONGEST_WINDOW_SECONDS = 60.0
# Fraction of the step that is reported; a few per cent of imbalance are normal.
WORTH_FRACTION = 0.10
_SAMPLES = 600
_ALL_SAMPLES = 120_000
_BLOCK_STEPS = 5


@dataclass(frozen=True, slots=True)
class _Sample:
    t_ns: int
    steps: int
    step_seconds: float
    data: float | None
    communication: float | None
    checkpoint: float | None

    @property
    def mean_step(self) -> float:
        return self.step_seconds / self.steps if self.steps else 0.0


@dataclass(slots=True)
class _Series:
    """One rank's totals over its life, dense for the newest time and sparse for the oldest."""

    host: str
    """Its host."""
    samples: list[_Sample] = field(default_factory=list)
    """The totals, oldest first."""

    def add(self, sample: _Sample, most: int) -> None:
        if self.samples and sample.t_ns <= self.samples[-1].t_ns:
            return
        self.samples.append(sample)
        if len(self.samples) > most:
            half = len(self.samples) // 2
            self.samples = self.samples[:half:2] + self.samples[half:]

    def steady(self) -> list[_Sample]:
        """The samples after the warm-up."""
        return [sample for sample in self.samples if sample.steps >= FIRST_STEPS]

    def at(self, t_ns: int) -> _Sample | None:
        """The newest steady sample up to this moment, or the first sample."""
        steady = self.steady()
        if not steady:
            return None
        return steady[max(bisect_right(steady, t_ns, key=lambda sample: sample.t_ns) - 1, 0)]

    def warm_ns(self) -> int | None:
        """When the warm-up was over."""
        after = next((sample for sample in self.samples if sample.steps >= FIRST_STEPS), None)
        return None if after is None else after.t_ns - round((after.steps - FIRST_STEPS) * after.mean_step * 1e9)

    def per_step(self, name: str, since_ns: int) -> list[float]:
        """The time of a step that went into something, for each sample since then.

        It is computed from the fraction of the time, because a step may last for many samples.
        """
        window = [sample for sample in self.steady() if sample.t_ns >= since_ns]
        whole = window[-1].step_seconds - window[0].step_seconds if window else 0.0
        steps = window[-1].steps - window[0].steps if window else 0
        shares = [
            (after_part - (getattr(before, name) or 0.0)) / (after.step_seconds - before.step_seconds)
            for before, after in pairwise(window)
            if (after_part := getattr(after, name)) is not None and after.step_seconds > before.step_seconds
        ]
        return [max(share, 0.0) * whole / steps for share in shares] if steps else []

    def checkpoint_count(self) -> int | None:
        """How often the rank has saved, as far as the samples show; saves within one second count once."""
        if not self.samples or self.samples[-1].checkpoint is None:
            return None
        grown = [(after.checkpoint or 0.0) > (before.checkpoint or 0.0) for before, after in pairwise(self.samples)]
        return sum(now and not before for before, now in pairwise([False, *grown]))

    def step_at(self, t_ns: int) -> float | None:
        """The step of the rank at a moment, interpolated between two samples."""
        place = bisect_right(self.samples, t_ns, key=lambda sample: sample.t_ns)
        if not self.samples:
            return None
        if place == 0:
            after = self.samples[0]
            return max(after.steps - (after.t_ns - t_ns) / 1e9 / after.mean_step, 0.0) if after.mean_step else 0.0
        before = self.samples[place - 1]
        if place == len(self.samples):
            return float(before.steps)
        after = self.samples[place]
        share = (t_ns - before.t_ns) / (after.t_ns - before.t_ns)
        return before.steps + share * (after.steps - before.steps)


class StepTimer:
    """Takes the reports of every host's agent about its ranks. A new attempt starts empty. Its size is bounded for any number of ranks."""

    def __init__(self) -> None:
        self._attempt = -1
        self._begin(-1)

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._series: dict[int, _Series] = {}
        self._hosts: dict[str, HostLines] = {}
        self._arrivals = Arrivals()
        self._began_ns = 0
        self._slow_since: dict[int, int] = {}
        self._known_lateness: Lateness | None = None

    def progress(self, host: str, t_ns: int, ranks: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds the totals of a host's ranks at a moment: rank -> the fields of its RankRecord."""
        newest = max((found.get("attempt", 0) for found in ranks.values()), default=-1)
        if newest > self._attempt:
            hosts = self._hosts
            self._begin(newest)
            # The use of the machines continues over a restart.
            self._hosts = hosts
            # Entries that still arrive from the previous attempt would count for this one.
            self._began_ns = t_ns - 1_000_000_000 if newest > 0 else 0
        most = max(30, min(_SAMPLES, _ALL_SAMPLES // max(len(self._series), 1)))
        for found in ranks.values():
            rank, steps, seconds = found.get("rank"), found.get("step_count"), found.get("step_seconds")
            if found.get("attempt", 0) != self._attempt or rank is None or steps is None or seconds is None:
                continue
            times = (found.get(name) for name in ("data_seconds", "communication_seconds", "checkpoint_seconds"))
            sample = _Sample(t_ns, int(steps), float(seconds), *times)
            self._series.setdefault(int(rank), _Series(host)).add(sample, most)

    def telemetry(self, host: str, line: Mapping[str, Any]) -> None:
        """Adds one telemetry line of a host."""
        self._hosts.setdefault(host, HostLines(host)).add(line)

    def trace(self, rank: int, entries: Iterable[Entry]) -> None:
        """Adds the newest entries of a rank's flight recorder, stamped by the first host's clock."""
        self._arrivals.add(rank, [e for e in entries if e.created_ns is not None and e.created_ns >= self._began_ns])

    def timing(self, now_ns: int) -> StepTiming | None:
        """The step timing of the latest window of steady training; None before the first steady steps."""
        start_ns = self._window_start()
        if start_ns is None:
            return None
        rates = {rank: found for rank in sorted(self._series) if (found := self._rates(rank, start_ns)) is not None}
        if not rates:
            return None
        step_seconds = median(rate.step_seconds for rate in rates.values())
        whole, lateness = self._lateness(start_ns)
        self._known_lateness = whole
        slow = self._since_when(whole, step_seconds)
        late, spread = self._beyond_chance(lateness, start_ns)
        return StepTiming(
            window_seconds=round((max(rate.last.t_ns for rate in rates.values()) - start_ns) / 1e9, 3),
            from_step=min(rate.first.steps for rate in rates.values()),
            to_step=min(rate.last.steps for rate in rates.values()),
            step_seconds=step_seconds,
            ranks=tuple(
                replace(self._rank(rank, rate, lateness, start_ns, slow), behind=late.get(rank))
                for rank, rate in rates.items()
            ),
            hosts=tuple(lines.timing(start_ns) for _, lines in sorted(self._hosts.items())),
            step_bytes=lateness.step_bytes if lateness else None,
            collectives_per_step=float(lateness.period) if lateness and lateness.period else None,
            spread_seconds=lateness.spread_seconds if lateness else None,
            spread=spread,
            communication=self._mean_communication(start_ns),
            held_up=self._held_up(lateness, start_ns),
            at_ns=now_ns,
            attempt=max(self._attempt, 0),
        )

    def late_after(self, step: int) -> LateSteps | None:
        """How late the ranks were after this step, as the last `timing` has seen it; None: no later step is known."""
        return None if self._known_lateness is None else late_steps(self._known_lateness, step)

    def _window_start(self) -> int | None:
        """When the window begins: the newest moment with enough steps and seconds after it, for the rank that is furthest behind."""
        behind = min(self._series.values(), key=lambda s: s.samples[-1].steps, default=None)
        steady = behind.steady() if behind is not None else []
        if not steady:
            return None
        last = steady[-1]
        for sample in reversed(steady):
            seconds, steps = (last.t_ns - sample.t_ns) / 1e9, last.steps - sample.steps
            if (seconds >= WINDOW_SECONDS and steps >= WINDOW_STEPS) or (
                seconds >= LONGEST_WINDOW_SECONDS and steps >= FIRST_STEPS
            ):
                return sample.t_ns
        seconds, steps = (last.t_ns - steady[0].t_ns) / 1e9, last.steps - steady[0].steps
        enough = steps >= WINDOW_STEPS - FIRST_STEPS or (seconds >= WINDOW_SECONDS and steps >= FIRST_STEPS)
        return steady[0].t_ns if enough else None

    def _rates(self, rank: int, start_ns: int) -> "_Rate | None":
        series = self._series[rank]
        first, last = series.at(start_ns), series.samples[-1]
        if first is None or last.steps <= first.steps:
            return None
        return _Rate(first, last, last.steps - first.steps)

    def _lateness(self, start_ns: int) -> tuple[Lateness | None, Lateness | None]:
        """Lateness over everything that is still known, and over the window."""
        longest = max(self._series.values(), key=lambda s: len(s.samples))
        warm_ns = longest.warm_ns()
        if warm_ns is None:
            return None, None
        whole = self._arrivals.lateness(longest.step_at, warm_ns)
        recent = self._arrivals.lateness(longest.step_at, start_ns) if whole is not None else None
        return whole, recent

    def _rank(
        self, rank: int, rate: "_Rate", lateness: Lateness | None, start_ns: int, slow: Mapping[int, int]
    ) -> RankTiming:
        lags = lateness.ranks.get(rank) if lateness else None
        waited = lateness.spread_seconds - lags.late if lateness and lags else None
        communication = rate.per_step("communication")
        # DDP measures its exchange in a few steps only, so the longer of the two waiting times counts.
        waits = [seconds for seconds in (waited, communication) if seconds is not None]
        series = self._series[rank]
        host = series.host
        lines = self._hosts.get(host)
        waiting = lines.rank_wait(rank, start_ns) if lines else None
        return RankTiming(
            rank=rank,
            host=host,
            steps=rate.steps,
            step_seconds=rate.step_seconds,
            data_seconds=rate.per_step("data"),
            communication_seconds=communication,
            checkpoint_seconds=rate.per_step("checkpoint"),
            own_seconds=max(rate.step_seconds - max(waits), 0.0) if waits else None,
            lags=lags.lags if lags else None,
            late_seconds=lags.late if lags else None,
            last_fraction=lags.last_fraction if lags else None,
            periodic=lags.periodic if lags else None,
            cpu_fraction=lines.rank_cpu(rank, start_ns) if lines else None,
            slow_since_step=slow.get(rank),
            data=estimate(blocks(series.per_step("data", start_ns), least=1), len(self._series)),
            cpu_wait_seconds=None if waiting is None else waiting * rate.step_seconds,
            checkpoint_count=series.checkpoint_count(),
        )

    def _held_up(self, lateness: Lateness | None, start_ns: int) -> HeldUp | None:
        """By the stamps of each group of ranks; without stamps by the ranks' own times."""
        if lateness is None:
            own = _own_costs(self._series, start_ns)
            return held_up(own, measured=False, least=1) if own else None
        found = [held_up(costs, measured=True) for costs in _by_group(lateness)]
        known = [one for one in found if one is not None]
        return max(known, key=lambda one: one.gain.seconds if one.gain is not None else 0.0, default=None)

    def _beyond_chance(self, lateness: Lateness | None, start_ns: int) -> tuple[dict[int, Estimate], Estimate | None]:
        """For each rank how much later it is than the last of the others; and the time between the first and the last."""
        if lateness is None:
            own = _own_costs(self._series, start_ns)
            return behind(own, least=1) if own else {}, None
        groups = list(_by_group(lateness))
        late = {rank: found for costs in groups for rank, found in behind(costs).items()}
        spreads = [estimate(blocks([max(c) - min(c) for c in zip(*costs.values(), strict=True)])) for costs in groups]
        known = [spread for spread in spreads if spread is not None]
        return late, max(known, key=lambda spread: spread.seconds, default=None)

    def _mean_communication(self, start_ns: int) -> Estimate | None:
        """For all ranks, from the samples of the same seconds."""
        of_ranks = [one.per_step("communication", start_ns) for one in self._series.values()]
        known = [times for times in of_ranks if times]
        least = min((len(times) for times in known), default=0)
        return estimate(blocks([fmean(column) for column in zip(*(t[-least:] for t in known), strict=True)], least=1))

    def _since_when(self, whole: Lateness | None, step_seconds: float) -> dict[int, int]:
        """Rank -> the last step in which it was not late, for ranks that are late now."""
        regular, early = {}, 2 * FIRST_STEPS + _BLOCK_STEPS
        if whole is not None:
            regular = {rank: lags.periodic for rank, lags in whole.ranks.items() if lags.periodic}
            series: dict[int, Sequence[tuple[int, float]]] = {rank: lags.by_step for rank, lags in whole.ranks.items()}
        else:
            series = dict(_own_times(self._series))
            # Samples are seconds apart, so the first one may be many steps after the first step.
            early = max((s.steady()[1].steps for s in self._series.values() if len(s.steady()) > 1), default=early)
        found = {}
        for rank, costs in series.items():
            if rank in regular:
                found[rank] = _first_late(costs)
                continue
            since = slow_since(costs, WORTH_FRACTION * step_seconds, at_start_until=early)
            if since is not None:
                began_before = rank in self._slow_since and since <= costs[0][0]
                found[rank] = self._slow_since[rank] if began_before else since
        self._slow_since = found
        return found


@dataclass(frozen=True, slots=True)
class _Rate:
    first: _Sample
    last: _Sample
    steps: int

    @property
    def step_seconds(self) -> float:
        return (self.last.step_seconds - self.first.step_seconds) / self.steps

    def per_step(self, name: str) -> float | None:
        last, first = getattr(self.last, name), getattr(self.first, name)
        return None if last is None else max(0.0, last - (first or 0.0)) / self.steps


def slow_since(costs: Sequence[tuple[int, float]], worth_seconds: float, *, at_start_until: int = 0) -> int | None:
    """The last step in which a rank was not late, from (step, seconds late) in order; None if it is not late now.

    Blocks of a few steps are compared by their medians, so that a single slow step neither begins nor ends the lateness. If it is
    late from the first known step on: that step, or 0 if it is one of the first steps of the training, up to `at_start_until`.
    """
    blocks = [costs[at : at + _BLOCK_STEPS] for at in range(len(costs) % _BLOCK_STEPS, len(costs), _BLOCK_STEPS)]
    levels = [median(cost for _, cost in block) for block in blocks]
    if len(levels) < 2:
        return None
    now = median(levels[-min(len(levels), 4) :])
    if now < worth_seconds:
        return None
    first = len(levels)
    # One block may be better without ending the lateness: a lull, or steps between two regular pauses.
    while first > 0 and (levels[first - 1] >= now / 2 or (first > 1 and levels[first - 2] >= now / 2)):
        first -= 1
    if first == len(levels):
        # It was late a moment ago, and the newest blocks are on time again.
        return None
    if first == 0:
        return 0 if costs[0][0] <= at_start_until else costs[0][0]
    block = blocks[first]
    begins = next((step for step, cost in block if cost >= now / 2), block[0][0])
    return max(begins - 1, 0)


def _first_late(costs: Sequence[tuple[int, float]]) -> int:
    """For a rank that is late in some steps only: the step before the first late one."""
    peak = max(cost for _, cost in costs)
    return max(next(step for step, cost in costs if cost >= peak / 2) - 1, 0)


def _by_group(lateness: Lateness) -> Iterator[dict[int, list[float]]]:
    """For each group of ranks, how late each rank was in each step."""
    for ranks in lateness.together:
        yield {rank: [cost for _, cost in lateness.ranks[rank].by_step] for rank in ranks}


def _own_costs(series: Mapping[int, _Series], start_ns: int) -> dict[int, list[float]]:
    """Rank -> how much longer its own part of a step is than the fastest rank's, second by second, if all ranks report it."""
    own = {
        rank: {second: value for second, (_, value) in _own_seconds(one).items() if second * 1_000_000_000 >= start_ns}
        for rank, one in series.items()
    }
    shared = sorted(set.intersection(*(set(times) for times in own.values()))) if len(own) > 1 else []
    least = {second: min(times[second] for times in own.values()) for second in shared}
    if not shared or not any((one.samples[-1].communication or 0.0) > 0 for one in series.values()):
        return {}
    return {rank: [times[second] - least[second] for second in shared] for rank, times in own.items()}


def _own_seconds(one: _Series) -> dict[int, tuple[int, float]]:
    """Second -> (step, duration of a step without communication)."""
    own = {}
    for before, after in pairwise(one.steady()):
        rate = _Rate(before, after, max(after.steps - before.steps, 1))
        communication = rate.per_step("communication")
        if communication is not None and after.steps > before.steps:
            own[after.t_ns // 1_000_000_000] = after.steps, rate.step_seconds - communication
    return own


def _own_times(series: Mapping[int, _Series]) -> dict[int, list[tuple[int, float]]]:
    """For each rank (step, how much longer its own part is than the fastest rank's), from the samples of the same seconds."""
    own = {rank: times for rank, one in series.items() if (times := _own_seconds(one))}
    if len(own) < 2:
        return {}
    least: dict[int, float] = {}
    for times in own.values():
        for second, (_, value) in times.items():
            least[second] = min(least.get(second, value), value)
    return {
        rank: [(step, value - least[second]) for second, (step, value) in sorted(times.items())]
        for rank, times in own.items()
    }


# ---------------------------------------------------------------------------------------------------------- what to look at


def wants_snapshot(timing: StepTiming) -> tuple[int, ...]:
    """Ranks to inspect because the job is slow: the late ranks, or one per host if the exchange takes long.

    Empty if no rank and no exchange slows down the job.
    """
    late = sorted(
        (rank for rank in timing.ranks if (rank.late_seconds or 0.0) >= WORTH_FRACTION * timing.step_seconds),
        key=lambda rank: -(rank.late_seconds or 0.0),
    )
    wanted = {rank.rank for rank in late[:4]}
    wanted |= {
        rank.rank for rank in timing.ranks if (rank.data_seconds or 0.0) >= 0.3 * timing.step_seconds and not late
    }
    crowded = {
        host.host for host in timing.hosts if (host.pressure_cpu or 0) >= 0.3 or (host.throttled_fraction or 0) >= 0.1
    }
    exchanged = [rank.communication_seconds for rank in timing.ranks if rank.communication_seconds is not None]
    idle = [rank.cpu_fraction for rank in timing.ranks if rank.cpu_fraction is not None]
    waits = fmean(exchanged) >= 0.3 * timing.step_seconds if any(exchanged) else bool(idle) and max(idle) < 0.7
    of_host: dict[str, int] = {}
    for rank in timing.ranks:
        if rank.host in crowded or (len(timing.ranks) > 1 and waits and not late):
            of_host.setdefault(rank.host, rank.rank)
    return tuple(sorted(wanted | set(list(of_host.values())[:16])))[:20]


# ------------------------------------------------------------------------------------------------------------- what is told

_MOST_TOLD = 16


def standing_out(timing: StepTiming, most: int = _MOST_TOLD) -> StepTiming:
    """The step timing with only the ranks, and the hosts, that stand out most; the others are counted.

    Holds:   a rank that the others wait for is among them, if these are at most `most`
    """
    if len(timing.ranks) <= most and len(timing.hosts) <= most:
        return timing
    held_up = frozenset(timing.held_up.ranks if timing.held_up is not None else ())

    def prominence(rank: RankTiming) -> tuple[bool, bool, float, float]:
        return (
            rank.rank in held_up,
            rank.slow_since_step is not None,
            rank.late_seconds or 0.0,
            rank.data_seconds or 0.0,
        )

    ranks = sorted(timing.ranks, key=prominence, reverse=True)[:most]
    theirs = {rank.host for rank in ranks}
    hosts = sorted(timing.hosts, key=lambda host: (host.host in theirs, host.pressure_cpu or 0.0), reverse=True)[:most]
    return replace(
        timing,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        hosts=tuple(sorted(hosts, key=lambda host: host.host)),
        ranks_left_out=len(timing.ranks) - len(ranks),
    )
