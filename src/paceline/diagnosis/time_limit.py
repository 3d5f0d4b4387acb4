"""When the job will end, whether that is before its time limit, and where the time of a job went that did not. Pure."""

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean, median
from typing import Any

from paceline.diagnosis.case import Case, Forecast, Stall, StepTiming
from paceline.diagnosis.time_breakdown import TimeSpent, time_spent
from paceline.facts import RankRecord
from paceline.recording.fact_json import fact_or_none

FIRST_FORECAST_STEP = 20
RESERVE_FRACTION = 0.10
_EPOCHS = ("epochs", "num_epochs", "num_train_epochs", "max_epochs", "n_epochs")
# A step of many times its usual length, and of half a second at least, did something beside training.
_MANY = 5
_PAUSE_NS = 500_000_000
_ASK = "not known: set it with --set total_steps=N"


def total_steps(option: int | None, epochs: int | None, loader_batches: int | None) -> tuple[int | None, str]:
    """Number of steps of the job, and where that number comes from, as text.

    `option`: --set total_steps; `epochs`: of the hyperparameters or the script's arguments; `loader_batches`: batches of one epoch of one
    rank's loader. An estimate where a step takes several batches.
    """
    if option:
        return option, "--set total_steps"
    if epochs and loader_batches:
        return epochs * loader_batches, f"{epochs} epochs of {loader_batches} batches"
    if loader_batches:
        return None, f"{_ASK}; the loader has {loader_batches} batches, and no epochs are given"
    return None, _ASK


def epochs_of(hyperparameters: Mapping[str, Any], arguments: Sequence[str] = ()) -> int | None:
    """Number of epochs, from a hyperparameter or else from the script's own arguments."""
    for name in _EPOCHS:
        found = _whole(hyperparameters.get(name)) or _whole(hyperparameters.get(name.replace("_", "-")))
        if found:
            return found
    flags = {f"--{spelling}" for name in _EPOCHS for spelling in (name, name.replace("_", "-"))}
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        if flag not in flags:
            continue
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        found = _whole(value if equals else following)
        if found:
            return found
    return None


def _whole(value: Any) -> int | None:
    try:
        number = int(str(value).strip("\"' "))
    except ValueError:
        return None
    return number if number > 0 else None


def forecast(
    timing: StepTiming | None,
    *,
    now_ns: int,
    started_ns: int,
    limit_seconds: float | None,
    total: tuple[int | None, str],
) -> Forecast | None:
    """The expected end at the present pace, compared with --max-run if there is one.

    None: before the first steps, or neither the limit nor the number of steps is known.

    `needed_seconds`: of the whole run, including the time so far; None if the number of steps is not known.

    Holds:   with a limit, needed_seconds <= limit_seconds exactly when reaches_step >= total_steps, up to one step
    """
    if timing is None or timing.step_seconds <= 0:
        return None
    done = timing.to_step
    if done < FIRST_FORECAST_STEP:
        return None
    elapsed = (now_ns - started_ns) / 1e9
    total_count, source = total
    if limit_seconds is None and total_count is None:
        return None
    name, fraction = largest_cost(timing)
    needed = None if total_count is None else elapsed + max(total_count - done, 0) * timing.step_seconds
    return Forecast(
        at_ns=now_ns,
        step=done,
        total_steps=total_count,
        total_from=source,
        step_seconds=timing.step_seconds,
        needed_seconds=needed,
        limit_seconds=limit_seconds,
        elapsed_seconds=elapsed,
        reaches_step=None if limit_seconds is None else _reaches(done, limit_seconds - elapsed, timing, total_count),
        largest_cost=name,
        largest_cost_fraction=fraction,
    )


def _reaches(done: int, left_seconds: float, timing: StepTiming, total_count: int | None) -> int:
    """The step at which the limit ends the job."""
    reaches = done + int(max(left_seconds, 0.0) / timing.step_seconds)
    return reaches if total_count is None else min(reaches, total_count)


def will_be_cut(found: Forecast) -> bool | None:
    """Whether the limit comes before the end; None if there is a limit and the number of steps is not known."""
    if found.limit_seconds is None:
        return False
    return None if found.needed_seconds is None else found.needed_seconds > found.limit_seconds


def limit_that_would_do(found: Forecast) -> float | None:
    """A limit in seconds with a reserve of 10 %, rounded up to a convenient number; None if the number of steps is not known.

    Holds:   limit_that_would_do(f) >= 1.1 * f.needed_seconds
    """
    if found.needed_seconds is None:
        return None
    wanted = found.needed_seconds * (1 + RESERVE_FRACTION)
    unit = 10 if wanted < 600 else 60 if wanted < 7200 else 900
    return float(ceil(wanted / unit) * unit)


def largest_cost(timing: StepTiming) -> tuple[str, float | None]:
    """The largest cost of a step besides computation, and its fraction; ("", None) if none is a twentieth of a step.

    Waiting for a late rank is part of the communication of the others, so it is subtracted there.
    """
    costs: dict[str, float] = {}
    late = max(timing.ranks, key=lambda rank: rank.behind.seconds if rank.behind is not None else 0.0, default=None)
    waits = timing.spread_seconds or 0.0
    # In each step some rank is the last. Waiting is a cost only if it is the same rank beyond chance.
    if late is not None and late.behind is not None and late.behind.low > 0:
        gain = late.behind.seconds
        # A rank that is late because it waits for data is one cost, not two.
        loads = (late.data_seconds or 0.0) >= gain / 2
        costs[f"data on rank {late.rank}" if loads else f"waiting for rank {late.rank}"] = gain
    for name, field in (("data", "data_seconds"), ("checkpoint", "checkpoint_seconds")):
        known = [getattr(rank, field) for rank in timing.ranks if getattr(rank, field) is not None]
        if known:
            # The value of the slowest rank, because the others wait for it.
            costs[name] = max(known)
    exchanged = [rank.communication_seconds for rank in timing.ranks if rank.communication_seconds is not None]
    if exchanged:
        costs["exposed communication"] = max(0.0, fmean(exchanged) - waits)
    name = max(costs, key=lambda name: costs[name], default="")
    if not name or costs[name] < 0.05 * timing.step_seconds:
        return "", None
    return name, min(costs[name] / timing.step_seconds, 1.0)


def forecast_text(found: Forecast) -> str:
    """The forecast in one sentence."""
    if found.limit_seconds is None:
        return _without_limit(found)
    cut = will_be_cut(found)
    if cut is None:
        return (
            f"the limit of {_duration(found.limit_seconds)} (--max-run) reaches step {found.reaches_step} at "
            f"{_step(found.step_seconds)} a step; the number of steps is {found.total_from}"
        )
    needed = _duration(found.needed_seconds or 0.0)
    if not cut:
        return (
            f"the job will be done after about {needed} of the {_duration(found.limit_seconds)} that --max-run allows"
        )
    cost = ""
    if found.largest_cost and found.largest_cost_fraction is not None:
        cost = f"; the largest cost is {found.largest_cost}, {found.largest_cost_fraction:.0%} of a step"
    return (
        f"the limit of {_duration(found.limit_seconds)} (--max-run) will end the job at step {found.reaches_step} of "
        f"{found.total_steps} ({found.total_from}): it needs about {needed} at {_step(found.step_seconds)} a step; "
        f"--max-run {_duration(limit_that_would_do(found) or 0.0)} is long enough{cost}"
    )


def _without_limit(found: Forecast) -> str:
    needed = found.needed_seconds or 0.0
    left = _duration(max(needed - found.elapsed_seconds, 0.0))
    return (
        f"the job will be done in about {left}, {_duration(needed)} after its start: step {found.step} of "
        f"{found.total_steps} ({found.total_from}) at {_step(found.step_seconds)} a step"
    )


def _duration(seconds: float) -> str:
    """As --max-run reads it."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if n) or "0s"


def _step(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# -------------------------------------------------------------------------------------------------- after the limit has cut


def where_the_time_went(case: Case, ranks: Sequence[RankRecord] | None = None) -> tuple[tuple[str, float | None], ...]:
    """A run's wall time by what its mean rank did: (name, seconds), the largest first. Values that are not judged are None and come last.

    `ranks`: the records of all attempts. Evaluation is separated from computation by steps that took many times their
    usual time, so every step must be known.

    Holds:   the values add up to the wall time, if everything but evaluation is known
    """
    end_ns = case.run.finished_ns or case.now_ns
    records = tuple(case.ranks.values() if ranks is None else ranks)
    spent = time_spent(records, case.run.started_ns, end_ns)
    parts = _parts(spent, _evaluation(records), _stalls(case, end_ns))
    known = [(name, seconds) for name, seconds in parts.items() if seconds is not None and seconds >= 0.05]
    unknown = [(name, None) for name, seconds in parts.items() if seconds is None]
    return (*sorted(known, key=lambda part: -part[1]), *unknown)


def _parts(spent: TimeSpent, evaluation: float | None, stalls: float) -> dict[str, float | None]:
    """Subtracts a stall from the parts that may contain it."""
    compute = spent.compute_seconds
    if compute is not None and evaluation is not None:
        evaluation = min(evaluation, compute)
        compute -= evaluation
    parts: dict[str, float | None] = {
        "start-up": spent.startup_seconds,
        "data": spent.data_seconds,
        "compute": compute,
        "exposed communication": spent.communication_seconds,
        "evaluation": evaluation,
        "checkpoint": spent.checkpoint_seconds,
        "between attempts": spent.restarts_seconds,
        "after the last step": spent.end_seconds,
    }
    left = stalls
    for name in ("after the last step", "evaluation", "exposed communication", "compute", "between attempts"):
        found = parts[name]
        if found is not None and left > 0:
            taken = min(found, left)
            parts[name], left = found - taken, left - taken
    return {**parts, "stalls": stalls - left}


def _evaluation(records: Sequence[RankRecord]) -> float | None:
    """Time of some steps above the usual in their own code. An evaluation is between two optimizer steps, so it counts in one step."""
    found = []
    for record in records:
        if not record.steps or len(record.steps) < 0.9 * (record.step_count or 0) or len(record.steps) < 10:
            continue
        # The first step starts up, loads and compiles.
        own = [s.duration_ns - s.data_ns - s.communication_ns - s.checkpoint_ns for s in record.steps[1:]]
        usual = median(own)
        found.append(sum(part - usual for part in own if part > max(_MANY * usual, _PAUSE_NS)) / 1e9)
    return fmean(found) if found else None


def _stalls(case: Case, end_ns: int) -> float:
    """Seconds of all recorded stalls; a stall without an end lasted to the end of the run."""
    total, began = 0.0, None
    for event in case.events:
        if event.get("event") == "standstill" and began is None:
            still = fact_or_none(Stall, event.get("standstill"))
            began = event.get("t_ns") if still is None else still.since_ns
        elif event.get("event") == "standstill_over" and began is not None:
            total += max((event.get("t_ns") or began) - began, 0) / 1e9
            began = None
    return total + (max(end_ns - began, 0) / 1e9 if began is not None else 0.0)
