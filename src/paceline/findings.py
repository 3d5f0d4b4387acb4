"""Applies rules to facts. A rule says what it found, that it found nothing, or that it could not judge.

Pure: no rule reads, sleeps, logs or imports torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NO_CODE = "unclear"
"""Code of a finding that no cause explains: the symptom is known, and the cause is not."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Confidence(StrEnum):
    HIGH = "high"
    LIKELY = "likely"
    UNCLEAR = "unclear"


class Level(StrEnum):
    """How severe a finding is while the job runs, and what kind of trouble it names."""

    WAITING = "waiting"
    STALL = "stall"
    DIVERGENCE = "divergence"
    CRASH = "crash"
    LIMIT = "limit"
    START = "start"
    QUALITY = "quality"
    SLOW = "slow"


class Ground(StrEnum):
    """A kind of evidence on which a finding may rest."""

    EXIT = "how a process ended"
    WORDS = "what a process raised or printed"
    SNAPSHOT = "a look at the rank or at its host"
    CALLS = "what the ranks issued, by their calls or by a flight recorder"
    MARKS = "settings, parameters and samples of the ranks"
    TIMES = "how the job steps"
    EVENTS = "what agents told"


# The possible levels of a cause's findings, by the letter of its code.
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
    """A code with a page: `paceline help CODE`."""
    severity: Severity
    """`error`, `warning` or `notice`."""
    what: str
    """What happened, with the name of the thing."""
    saw: str
    """What was seen and what was expected."""
    next: str
    """One command or one edit."""
    more: str = ""
    """Where to read more; by default the page of the code."""
    confidence: Confidence = Confidence.HIGH
    """`high`, `likely` or `unclear`: how certain it is."""
    file: str | None = None
    """The source file, as messages name it; None: it is about no file."""
    line: int | None = None
    """The line in that file, from 1; None: it is about no line."""

    def __post_init__(self) -> None:
        if not self.more:
            object.__setattr__(self, "more", f"paceline help {self.code}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pure function from facts to findings, with the page that explains it."""

    code: str
    """The rule's code, which is never reused."""
    page: str
    """The page that `paceline help` prints."""
    find: Callable[[Any], Iterable[Finding]]
    """Facts -> findings. It raises Unknown if a fact is missing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one rule."""

    code: str
    """The code of the rule."""
    judgement: Judgement
    """Fired, silent or not judged."""
    findings: tuple[Finding, ...] = ()
    """The findings of the rule."""
    missing: str = ""
    """The missing fact; empty unless the rule was not judged."""
    ignored: tuple[Finding, ...] = ()
    """Findings that a comment of the user ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFinding:
    """One cause of trouble that a rule found in a running or ended job.

    Holds:   a finding that contradicts itself cannot be made: NO_CODE is always unclear and no level is foreign to its code
    Raises:  ValueError: the finding would contradict itself
    """

    code: str
    """The code of the cause."""
    title: str
    """The cause in one line."""
    level: str
    """One of Level."""
    ranks: tuple[int, ...] = ()
    """The ranks that it names: the culprits, never the victims."""
    hosts: tuple[str, ...] = ()
    """The hosts that it names."""
    confidence: Confidence = Confidence.HIGH
    """How certain the finding is."""
    since_step: int | None = None
    """The last step without the trouble."""
    detected_after_seconds: float | None = None
    """Time from the beginning of the trouble to this finding."""
    saw: tuple[str, ...] = ()
    """The deciding evidence, the strongest first."""
    ruled_out: tuple[str, ...] = ()
    """Causes that look similar, and why it is not one of them."""
    next: tuple[str, ...] = ()
    """The command to run, or the edit to make."""

    def __post_init__(self) -> None:
        if self.code == NO_CODE and self.confidence != Confidence.UNCLEAR:
            raise ValueError(f"a cause that is not known cannot be {self.confidence}: {self.title}")
        fitting = _LEVELS_OF.get(self.code[:1])
        if fitting is not None and self.level not in fitting:
            raise ValueError(f"{self.code} cannot be at level {self.level}: {self.title}")


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule for one cause: `find` looks for it in a case, and the page explains it."""

    code: str
    """The code, which is never reused."""
    title: str
    """The cause in one line."""
    page: str
    """The page that `paceline help` prints."""
    find: Callable[[Any], Iterable[CauseFinding]]
    """A case -> findings."""
    levels: tuple[Level, ...] = ()
    """The level of its findings, if the code's letter does not determine it."""
    beats: tuple[str, ...] = ()
    """Codes of less specific causes, which are not reported for the same ranks when this one is found."""
    sure_by: tuple[Ground, ...] = ()
    """Kinds of evidence of which one at least is needed for a finding of high confidence."""
    preview: bool = False
    """Whether it was tested on recorded or synthetic evidence only, and never with the real fault."""


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
