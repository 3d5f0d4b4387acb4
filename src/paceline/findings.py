"""Rules applied to facts: a rule says what it found, that it found nothing, or that it could not look.

Pure: no rule reads, sleeps, logs or imports torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NO_CODE = "unclear"
"""Code of a finding that no cause explains: what is wrong is known, and not why."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Confidence(StrEnum):
    HIGH = "high"
    LIKELY = "likely"
    UNCLEAR = "unclear"


class Level(StrEnum):
    """How bad a finding is while the job runs, and what kind of trouble it names."""

    WAITING = "waiting"
    STALL = "stall"
    DIVERGENCE = "divergence"
    CRASH = "crash"
    LIMIT = "limit"
    START = "start"
    QUALITY = "quality"
    SLOW = "slow"


# What the findings of a cause can be about, by the letter of its code.
_LEVELS_OF = {
    "N": (Level.STALL, Level.WAITING),
    "M": (Level.DIVERGENCE, Level.QUALITY),
    "C": (Level.CRASH, Level.LIMIT),
    "R": (Level.START, Level.STALL),
    "S": (Level.SLOW, Level.STALL),
}


class Judgement(StrEnum):
    FIRED = "fired"
    SILENT = "silent"
    NOT_JUDGED = "not judged"


class Unknown(Exception):
    """A rule raises this when a fact it needs is missing; the text names the fact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found, in the four parts of every message: what, saw, next, more."""

    code: str
    severity: Severity
    what: str
    saw: str
    next: str
    more: str = ""
    confidence: Confidence = Confidence.HIGH


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure function from facts to findings, with the page that explains it."""

    code: str
    page: str
    find: Callable[[Any], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule said. `missing` names the fact that was not there when the judgement is NOT_JUDGED."""

    code: str
    judgement: Judgement
    findings: tuple[Finding, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFinding:
    """One cause of trouble that a rule found in a running or ended job.

    `ranks`, `hosts`: whom it names; the culprits, never the victims. `saw`: the deciding evidence, the strongest first.
    `ruled_out`: what it could be taken for, and why it is not that. `next`: what to type or change. `since_step`: the last step
    that was still well.

    Holds:   a finding that contradicts itself cannot be made: NO_CODE is always unclear and no level is foreign to its code
    Raises:  ValueError: it would
    """

    code: str
    title: str
    level: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    confidence: Confidence = Confidence.HIGH
    since_step: int | None = None
    detected_after_seconds: float | None = None
    saw: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    next: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.code == NO_CODE and self.confidence != Confidence.UNCLEAR:
            raise ValueError(f"a cause that is not known cannot be {self.confidence}: {self.title}")
        fitting = _LEVELS_OF.get(self.code[:1])
        if fitting is not None and self.level not in fitting:
            raise ValueError(f"{self.code} cannot be at level {self.level}: {self.title}")


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule for one cause: what `find` says of a case, and the page that explains it.

    `beats`: codes of less specific causes, which are not reported for the same ranks when this one is found. `preview`: judged on recorded
    or made-up evidence only, never yet on the real fault. `levels`: of its findings, where it is not the one that its letter stands for.
    """

    code: str
    title: str
    page: str
    find: Callable[[Any], Iterable[CauseFinding]]
    levels: tuple[Level, ...] = ()
    beats: tuple[str, ...] = ()
    preview: bool = False


def judge(rules: Iterable[Rule], facts: Any) -> Iterator[Verdict]:
    """One verdict per rule, in the order given.

    Holds: len(list(judge(rules, facts))) == len(list(rules))
    """
    for rule in rules:
        try:
            findings = tuple(rule.find(facts))
        except Unknown as unknown:
            yield Verdict(rule.code, Judgement.NOT_JUDGED, missing=str(unknown))
        else:
            yield Verdict(rule.code, Judgement.FIRED if findings else Judgement.SILENT, findings)
