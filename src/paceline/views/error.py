"""An error or a finding in its four parts: what, saw, next, more."""

import msgspec

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
    parts = (("saw", error.saw), ("next", error.next), ("more", error.more))
    lines = [f"{head}: {error.what}"]
    lines += [f"  {name:<8}  {_continued(text)}" for name, text in parts if text]
    return "\n".join(lines)


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.error/1"):
    """An error, for programs."""

    code: str
    """A code with a page: `paceline help CODE`."""
    exit_code: int
    """Exit code of this command."""
    what: str
    """What happened, with the name of the thing."""
    saw: str
    """What was seen, and what was expected."""
    next: str
    """One command or one edit."""
    more: str
    """Where to read more."""


def error_json(error: PacelineError) -> ErrorDocument:
    """The same four parts for a program."""
    return ErrorDocument(**{name: getattr(error, name) for name in ErrorDocument.__struct_fields__})


def _continued(text: str) -> str:
    return text.rstrip("\n").replace("\n", f"\n{_INDENT}")
