"""Makes the exception that fit() raises for a failed job: which rank failed first, and its exit code."""

from pathlib import Path

from paceline.diagnosis.crash.known_exceptions import ways_out
from paceline.diagnosis.crash.root_cause import by_blame, how_it_ended
from paceline.facts import RankExit, SecondaryStatus
from paceline.part import Observation
from paceline.parts.sagemaker.estimator.exceptions import CapacityError, TrainingTimeout, UnexpectedStatusException
from paceline.recording.evidence import listed_ranks, read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import newest_try

LIMITS = (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)
_NO_MACHINE = ("CapacityError", "InsufficientCapacity", "InsufficientInstanceCapacity", "capacity error")


def failure_of(seen: Observation, name: str, run_id: str, run_dir: Path) -> UnexpectedStatusException:
    """The exception for a job that did not complete."""
    first = first_failure(run_dir)
    kind, what = UnexpectedStatusException, f"training job {name} failed: {seen.reason or 'no reason given'}"
    if seen.secondary_status in LIMITS:
        kind, what = TrainingTimeout, f"training job {name} came to its time limit: {seen.reason or 'max_run'}"
    elif any(word in seen.reason for word in _NO_MACHINE):
        kind = CapacityError
    return kind(
        "U50",
        what,
        job_name=name,
        run_id=run_id,
        actual_status=str(seen.status),
        reason=seen.reason,
        run_exit_code=seen.exit_code,
        rank=first.rank if first else None,
        host=first.host if first else None,
        rank_exit_code=first.code if first else None,
        saw=_saw(seen, first),
    )


def first_failure(run_dir: Path) -> RankExit | None:
    """The rank that failed first in the last attempt; None if no rank failed, or the recording is not on this machine."""
    directories = (RunDirectory(newest_try(run_dir)),)
    _, events, _ = read_run(directories)
    exits = [record.exit for record in listed_ranks(directories, events) if record.exit is not None]
    last = max((one.attempt for one in exits), default=0)
    return next(iter(by_blame([one for one in exits if one.attempt == last])), None)


def _saw(seen: Observation, first: RankExit | None) -> str:
    code = "not known" if seen.exit_code is None else str(seen.exit_code)
    if first is None:
        return f"status {seen.status}, {seen.secondary_status}, exit code {code}"
    said = f"rank {first.rank} on {first.host} {how_it_ended(first)}, exit code {code}"
    error = first.error
    if error is None:
        words = first.tail.strip().rpartition("\n")[2]
        return "\n".join((said, *([words] if words else ()), *ways_out(words)))
    where = f" ({error.file}:{error.line})" if error.file else ""
    text = f"{error.type}: {error.message}"
    return "\n".join((said, f"{text}{where}", *ways_out(text)))
