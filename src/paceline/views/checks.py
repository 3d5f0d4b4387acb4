"""The result of the checks before a run: each finding in its four parts, then one line about the other checks."""

from collections.abc import Iterable, Sequence
from textwrap import wrap

from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.rules.job_facts import findings_of
from paceline.spelling import plural
from paceline.views.error import error_text


def checks_text(verdicts: Sequence[Verdict], *, width: int = 100, color: bool = False) -> str:
    """Errors first, then warnings; the closing line counts the rest and names what was not judged, and why."""
    blocks = [error_text(finding, color=color) for finding in findings_of(verdicts)]
    return "\n".join([*blocks, *wrap(_closing(verdicts), width, subsequent_indent="  ")])


def _closing(verdicts: Sequence[Verdict]) -> str:
    counts = _counts(findings_of(verdicts))
    parts = [f"{count} {plural(count, str(severity))}" for severity in Severity if (count := counts.get(severity, 0))]
    silent = sum(verdict.judgement is Judgement.SILENT for verdict in verdicts)
    parts.append(f"{silent} of {len(verdicts)} found nothing")
    if missing := _missing(verdicts):
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
