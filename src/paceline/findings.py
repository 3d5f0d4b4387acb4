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
    """The page of `paceline explain`."""
    severity: Severity
    """How bad it is."""
    what: str
    """What happened, naming the thing."""
    saw: str
    """What was seen and what was expected."""
    next: str
    """One command or one edit."""
    more: str = ""
    """Where to read more."""
    confidence: Confidence = Confidence.HIGH
    """How sure it is."""
    file: str = ""
    """The source file that it is about, as messages name it; empty: it is about none."""
    line: int | None = None
    """The line in that file, from 1."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure function from facts to findings, with the page that explains it."""

    code: str
    """Never reused."""
    page: str
    """What `paceline explain` prints."""
    find: Callable[[Any], Iterable[Finding]]
    """Facts -> findings; raises Unknown where a fact is missing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule said."""

    code: str
    """Of the rule."""
    judgement: Judgement
    """Fired, silent or not judged."""
    findings: tuple[Finding, ...] = ()
    """What it found."""
    missing: str = ""
    """The fact that was not there; empty unless it was not judged."""
    ignored: tuple[Finding, ...] = ()
    """What it found and a comment of the user's ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFinding:
    """One cause of trouble that a rule found in a running or ended job.

    Holds:   a finding that contradicts itself cannot be made: NO_CODE is always unclear and no level is foreign to its code
    Raises:  ValueError: it would
    """

    code: str
    """Of the cause."""
    title: str
    """The cause in one line."""
    level: str
    """One of Level."""
    ranks: tuple[int, ...] = ()
    """Whom it names: the culprits, never the victims."""
    hosts: tuple[str, ...] = ()
    """Hosts that it names."""
    confidence: Confidence = Confidence.HIGH
    """How sure it is."""
    since_step: int | None = None
    """The last step that was still well."""
    detected_after_seconds: float | None = None
    """From the beginning of the trouble to this finding."""
    saw: tuple[str, ...] = ()
    """The deciding evidence, the strongest first."""
    ruled_out: tuple[str, ...] = ()
    """What it could be taken for, and why it is not that."""
    next: tuple[str, ...] = ()
    """What to type or change."""

    def __post_init__(self) -> None:
        if self.code == NO_CODE and self.confidence != Confidence.UNCLEAR:
            raise ValueError(f"a cause that is not known cannot be {self.confidence}: {self.title}")
        fitting = _LEVELS_OF.get(self.code[:1])
        if fitting is not None and self.level not in fitting:
            raise ValueError(f"{self.code} cannot be at level {self.level}: {self.title}")


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule for one cause: what `find` says of a case, and the page that explains it."""

    code: str
    """Never reused."""
    title: str
    """The cause in one line."""
    page: str
    """What `paceline explain` prints."""
    find: Callable[[Any], Iterable[CauseFinding]]
    """A case -> findings."""
    levels: tuple[Level, ...] = ()
    """Of its findings, where it is not the one that its letter stands for."""
    beats: tuple[str, ...] = ()
    """Codes of less specific causes, which are not reported for the same ranks when this one is found."""
    preview: bool = False
    """Tested on recorded or made-up evidence only, never with the real fault."""


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
