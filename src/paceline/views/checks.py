"""The result of the checks before a run: each finding in its four parts, then one line about the other checks."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

import msgspec

from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.rules.job_facts import findings_of
from paceline.spelling import plural
from paceline.views.error import error_text


class MissingFact(msgspec.Struct, frozen=True):
    """A check that could not look."""

    code: str
    """A code with a page: `paceline help CODE`."""
    missing: str
    """The fact that the check lacked."""


class ChecksDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.checks/1"):
    """The result of the checks, for programs."""

    passed: bool
    """Whether nothing was found that stops the job."""
    counts: Mapping[Severity, int]
    """Number of findings of each severity: `error` stops the job, `warning` does not, `notice` is only worth knowing."""
    findings: tuple[Finding, ...]
    """What was found."""
    ignored: tuple[Finding, ...]
    """What a comment in the script switches off."""
    silent: tuple[str, ...]
    """Codes of checks that found nothing."""
    not_judged: tuple[MissingFact, ...]
    """Checks that could not look."""


def checks_text(verdicts: Sequence[Verdict], *, width: int = 100, color: bool = False, more: str = "") -> str:
    """Errors first, then warnings; the closing line counts the rest and names what was not judged, and why.

    `more`: a command that says why, in place of the reasons; before each job they would be the same words again.
    """
    blocks = [error_text(finding, color=color) for finding in findings_of(verdicts)]
    return "\n".join([*blocks, *wrap(_closing(verdicts, more), width, subsequent_indent="  ")])


def checks_facts(verdicts: Sequence[Verdict]) -> ChecksDocument:
    """The same for a program."""
    found = findings_of(verdicts)
    counts = _counts(found)
    return ChecksDocument(
        passed=not counts.get(Severity.ERROR),
        counts={severity: counts.get(severity, 0) for severity in Severity},
        findings=tuple(found),
        ignored=tuple(finding for verdict in verdicts for finding in verdict.ignored),
        silent=tuple(verdict.code for verdict in verdicts if verdict.judgement is Judgement.SILENT),
        not_judged=tuple(MissingFact(code, text) for text, codes in _missing(verdicts).items() for code in codes),
    )


def _closing(verdicts: Sequence[Verdict], more: str) -> str:
    counts = _counts(findings_of(verdicts))
    parts = [f"{count} {plural(count, str(severity))}" for severity in Severity if (count := counts.get(severity, 0))]
    silent = sum(verdict.judgement is Judgement.SILENT for verdict in verdicts)
    parts.append(f"{silent} of {len(verdicts)} found nothing")
    if ignored := sum(len(verdict.ignored) for verdict in verdicts):
        parts.append(f"{ignored} ignored by comments")
    missing = _missing(verdicts)
    if missing and more:
        codes = sorted(code for codes in missing.values() for code in codes)
        parts.append(f"not judged: {', '.join(codes)} ({more} says why)")
    elif missing:
        unseen = "; ".join(f"{', '.join(codes)} (unknown: {text})" for text, codes in missing.items())
        parts.append(f"not judged: {unseen}")
    return f"checks: {', '.join(parts)}"


def _missing(verdicts: Iterable[Verdict]) -> dict[str, list[str]]:
    """Missing fact -> the codes of the checks that needed it."""
    missing: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.judgement is Judgement.NOT_JUDGED:
            missing.setdefault(verdict.missing, []).append(verdict.code)
    return missing


def _counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    counts: dict[Severity, int] = {}
    for finding in findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    return counts
