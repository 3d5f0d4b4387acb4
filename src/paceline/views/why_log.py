"""Findings from plain logs of a job that ran without paceline, as text."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from paceline.diagnosis.logs.flight_recorder_dumps import RecorderDump
from paceline.diagnosis.logs.lines import Log
from paceline.diagnosis.verdict import Diagnosis
from paceline.findings import CauseFinding, Confidence
from paceline.spelling import plural
from paceline.views.table import crop
from paceline.views.units import counted
from paceline.views.why import WhyPage, finding_lines


def logs_text(
    diagnosis: Diagnosis, logs: Sequence[Log], dumps: Sequence[RecorderDump], pages: Collection[str], page: WhyPage
) -> str:
    """The files that were read, the candidates with the commands that would decide between them, and what was not judged.

    `pages`: codes that `paceline help` knows.
    """
    blocks = [crop(_read(logs, dumps), page.width, ascii_only=page.ascii_only)]
    if not diagnosis.findings:
        blocks.append("no line found that indicates a cause")
    elif diagnosis.findings[0].confidence is Confidence.UNCLEAR:
        several = len(diagnosis.findings) > 1
        blocks.append(
            f"the text does not decide here: {'candidates' if several else 'what is known'}, and what would tell"
        )
    before: CauseFinding | None = None
    for finding in diagnosis.findings:
        if before is not None and (finding.saw, finding.next) == (before.saw, before.next):
            # The same lines fit several causes, so they are printed once.
            finding = replace(finding, saw=("the same",), next=())
        else:
            before = finding
        blocks.append("\n".join(finding_lines(finding, page, more=finding.code in pages)))
    if diagnosis.not_judged:
        blocks.append("\n".join(["not judged", *(f"  {text}" for text in diagnosis.not_judged)]))
    return "\n\n".join(blocks)


def _read(logs: Sequence[Log], dumps: Sequence[RecorderDump]) -> str:
    lines = sum(log.line_count for log in logs)
    parts = []
    if logs:
        parts.append(f"{len(logs)} {plural(len(logs), 'log')}, {counted(lines, 'line')}")
    if dumps:
        parts.append(f"{len(dumps)} flight-recorder {plural(len(dumps), 'dump')}")
    return f"read {' and '.join(parts)}: {', '.join([*(log.name for log in logs), *(dump.name for dump in dumps)])}"
