"""Lines in which a platform says that it ended a job at its time limit, and what the job wrote last before it. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log, Moment, RankLine, in_words, seconds_between, stamp_in
from paceline.diagnosis.logs.prefilter import needed_words
from paceline.findings import CauseFinding, Confidence

# Pattern, the limit as the platform calls it. Sources: SageMaker DescribeTrainingJob, SecondaryStatus and StatusMessage; slurmstepd,
# common/slurmstepd_proctrack; Kubernetes pkg/controller/job and kubelet active_deadline; LSF bhist, TERM_RUNLIMIT; PBS mom, "walltime";
# AWS Batch, job timeouts.
_LIMITS = tuple(
    (re.compile(pattern), needed_words(pattern), name)
    for pattern, name in (
        (r"MaxRuntimeExceeded|runtime exceeded MaxRuntimeInSeconds|exceeded (?:its )?maximum runtime", "MaxRuntimeInSeconds"),
        (r"CANCELLED AT \S+ DUE TO TIME LIMIT", "--time of Slurm"),
        (r"active (?:on the node )?longer than (?:the )?specified deadline|\breason: ?\"?DeadlineExceeded", "activeDeadlineSeconds"),
        (r"TERM_RUNLIMIT|job killed after reaching LSF run time limit", "-W of LSF"),
        (r"job killed: walltime \d+ exceeded limit \d+", "walltime of PBS"),
        (r"Job attempt duration exceeded timeout", "attemptDurationSeconds of AWS Batch"),
    )
)  # fmt: skip
# What a launcher and a dying rank write while the job is being ended says nothing of what went on before.
_OF_THE_END = re.compile(
    r"SIGTERM|SIGKILL|SIGCONT|[Ss]ignal 15|death signal|slurmstepd|srun: |Sending process|Force Terminated|Terminated$|"
    r"[Cc]losing signal|CANCELLED|^\s*$"
)
_LOOKED_BACK_LINES = 400
_SILENT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Limit:
    """One line about a time limit that was reached."""

    line: RankLine
    """The line."""
    at: Moment | None
    """When it was written."""
    place: tuple[int, int]
    """Number of its file, number of its line."""
    name: str
    """Name of the limit."""


def limits(logs: Sequence[Log]) -> list[Limit]:
    """Every line that speaks of a limit that was reached, in order."""
    return sorted(_found(logs), key=lambda limit: limit.place)


def judge_limit(found: Sequence[Limit], logs: Sequence[Log], trouble: RankLine | None = None) -> list[CauseFinding]:
    """The limit as the end of the job, with what the job wrote last. `trouble`: a line that says that ranks waited or were gone."""
    if not found:
        return []
    first = found[0]
    silent, before = what_went_on(logs[first.place[0]], first)
    if trouble is not None:
        silent, before = True, (*before, f"ranks may have waited until then: {trouble.shown(120)}")
    return [
        CauseFinding(
            code="C04",
            title="the job reached its time limit",
            level=Level.LIMIT,
            confidence=Confidence.HIGH,
            saw=(first.line.shown(), *before),
            ruled_out=("a crash: the platform ended the job",),
            next=(
                *([_HANG] if silent else []),
                f"raise the limit ({first.name}), or save checkpoints and resume",
                "paceline run --max-run LIMIT ...: it reports within the first minute whether the limit is long enough",
            ),
        )
    ]


_HANG = "paceline run ... the same script: was it training in that time, or did a rank wait for another?"


def what_went_on(log: Log, limit: Limit) -> tuple[bool, tuple[str, ...]]:
    """Whether the job had been silent for long before the limit, and its last line."""
    for number in range(limit.line.number - 1, max(limit.line.number - _LOOKED_BACK_LINES, 0), -1):
        whole = log.raw(number)
        if _OF_THE_END.search(whole) or any(pattern.search(whole) for pattern, *_ in _LIMITS):
            continue
        line, at = log.line(number), stamp_in(whole)
        gap = seconds_between(at, limit.at) if at is not None and limit.at is not None else None
        if gap is None or gap < 0:
            return False, (f"the last line before it: {line.shown(120)}",)
        silent = gap >= _SILENT_SECONDS
        said = "nothing was written after it" if silent else "the job still wrote"
        return silent, (f"the last line, {in_words(gap)} before it: {line.shown(120)}", said)
    return False, ()


def _found(logs: Sequence[Log]) -> Iterator[Limit]:
    for place, log in enumerate(logs):
        for pattern, words, name in _LIMITS:
            if any(word in log.text for word in words) and (match := pattern.search(log.text)) is not None:
                line = log.line_at(match.start())
                yield Limit(line, stamp_in(line.whole), (place, line.number), name)
