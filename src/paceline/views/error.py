"""An error or a finding in its four parts: what, saw, next, more."""

from typing import Any

from paceline.errors import PacelineError
from paceline.findings import Finding
from paceline.terminal_text import BOLD_RED, BOLD_YELLOW, painted

_INDENT = " " * 12


def error_text(error: PacelineError | Finding, *, color: bool = False) -> str:
    """The four parts in lines; a part that is unknown is left out."""
    severity = "error" if isinstance(error, PacelineError) else str(error.severity)
    head = f"{severity}[{error.code}]"
    if color:
        head = painted(BOLD_RED if severity == "error" else BOLD_YELLOW, head)
    more = error.more or f"paceline help {error.code}"
    parts = (("saw", error.saw), ("next", error.next), ("more", more))
    lines = [f"{head}: {error.what}"]
    lines += [f"  {name:<8}  {_continued(text)}" for name, text in parts if text]
    return "\n".join(lines)


def error_json(error: PacelineError) -> dict[str, Any]:
    """The same four parts for a program."""
    return {
        "schema": "paceline.error/1",
        "code": error.code,
        "exit_code": error.exit_code,
        "what": error.what,
        "saw": error.saw,
        "next": error.next,
        "more": error.more,
    }


def _continued(text: str) -> str:
    return text.rstrip("\n").replace("\n", f"\n{_INDENT}")
