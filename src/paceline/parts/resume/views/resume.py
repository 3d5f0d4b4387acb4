"""What `--resume auto` would do with a script: its loops, then what hinders it."""

import msgspec

from paceline.findings import Finding
from paceline.parts.resume.resumable import InspectedLoop, ResumeInspection
from paceline.views.error import error_text
from paceline.views.table import table


class ResumeDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.resume/1"):
    """The same for programs."""

    can_resume: bool | None
    """Whether a job with --resume auto goes on after a killed rank, as far as its files show; None: it cannot be seen."""
    loops: tuple[InspectedLoop, ...]
    """The loops that go on, in the order of the files and of their text."""
    findings: tuple[Finding, ...]
    """What hinders a resume."""
    diffs: tuple[str, ...]
    """Each file with such loops as it is and as it runs, a unified diff."""
    not_judged: tuple[str, ...]
    """Files that are not Python."""


def resume_text(
    inspection: ResumeInspection, *, width: int | None = 100, ascii_only: bool = False, color: bool = False
) -> str:
    """One line per loop, each finding in its four parts, then one line that sums it up."""
    rows = [
        (f"{loop.file}:{loop.line}", loop.text, "trains" if loop.trains else "named by steps" if loop.by_hand else "")
        for loop in inspection.loops
    ]
    blocks = [table(("LOOP", "LINE", ""), rows, width=width, ascii_only=ascii_only)] if rows else []
    blocks += [error_text(finding, color=color) for finding in inspection.findings]
    return "\n".join(
        [*blocks, *(f"not judged: {path} is not Python" for path in inspection.not_judged), _closing(inspection)]
    )


def resume_facts(inspection: ResumeInspection) -> ResumeDocument:
    """The same for a program."""
    shown = {name: getattr(inspection, name) for name in ("loops", "findings", "diffs", "not_judged")}
    return ResumeDocument(can_resume=can_resume(inspection), **shown)


def can_resume(inspection: ResumeInspection) -> bool | None:
    """Whether `--resume auto` would go on after a kill, as far as its files show; None: that cannot be seen."""
    if any(str(finding.severity) == "error" for finding in inspection.findings):
        return False
    return True if any(loop.trains for loop in inspection.loops) and not inspection.findings else None


def _closing(inspection: ResumeInspection) -> str:
    found = can_resume(inspection)
    if found is None:
        return "resume: not certain; `paceline run --resume auto` trains, and says if it cannot keep the state"
    if not found:
        return "resume: no; `paceline run --resume auto` trains, and keeps no state"
    places = ", ".join(f"{loop.file}:{loop.line}" for loop in inspection.loops if loop.trains)
    return f"resume: yes, at the head of {places}"
