"""Findings of checks as SARIF 2.1.0, which editors and code hosts show at the line."""

import json
from collections.abc import Sequence
from typing import Any

from paceline import __version__
from paceline.findings import Finding, Severity, Verdict
from paceline.rules import pages

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTICE: "note"}


def sarif_text(verdicts: Sequence[Verdict]) -> str:
    """One run of one tool: every check as a rule, every finding as a result, what a comment ignores as suppressed.

    Source:  SARIF 2.1.0, OASIS standard, sections 3.13, 3.27, 3.35
    """
    titles = pages()
    rules = [
        {"id": verdict.code, "shortDescription": {"text": titles[verdict.code].partition("\n")[0]}}
        for verdict in verdicts
    ]
    numbers = {verdict.code: number for number, verdict in enumerate(verdicts)}
    results = [_result(finding, numbers) for verdict in verdicts for finding in verdict.findings]
    results += [
        {**_result(finding, numbers), "suppressions": [{"kind": "inSource"}]}
        for verdict in verdicts
        for finding in verdict.ignored
    ]
    driver = {"name": "paceline check", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(finding: Finding, numbers: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": numbers[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.what}\n{finding.saw}\nnext: {finding.next}"},
    }
    if finding.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": finding.file}}
        if finding.line:
            place["region"] = {"startLine": finding.line}
        result["locations"] = [{"physicalLocation": place}]
    return result
