"""Rules applied to facts: a rule says what it found, that it found nothing, or that it could not look.

Pure: no rule reads, sleeps, logs or imports torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class Confidence(StrEnum):
    HIGH = "high"
    LIKELY = "likely"
    UNCLEAR = "unclear"


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
