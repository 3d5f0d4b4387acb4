"""docs/causes.md: a table of all causes and the page of each, made from the rules, so it cannot differ from them."""

from collections.abc import Iterator, Sequence

from paceline.findings import Cause
from paceline.views.page import heading_anchor, page_sections

_KINDS = {
    "N": ("stall", "The job makes no progress: a rank does not come, or comes seconds late."),
    "M": (
        "divergence",
        "The ranks do different things, or train on the wrong data: wrong numbers, a stall or a crash follow.",
    ),
    "C": ("crash", "A rank ends."),
    "R": ("start", "The ranks do not find each other."),
    "S": ("slow", "The job runs but loses time."),
}


def causes_page(causes: Sequence[Cause]) -> str:
    """The whole file."""
    lines = [
        "# Causes",
        "",
        "Made by `make docs` from `src/paceline/rules/causes/`; `paceline help CODE` prints the same pages.",
        "What a finding looks like and how one is judged is in [diagnosis.md](diagnosis.md).",
        "",
        "*Preview*: tested on recorded or made-up evidence only, never with the real fault.",
        "",
        *_table(causes),
    ]
    for letter, (_, about) in _KINDS.items():
        of_this_kind = [cause for cause in causes if cause.code.startswith(letter)]
        if of_this_kind:
            lines += ["", f"## {letter}: {about.rstrip('.')}"]
            lines += [line for cause in of_this_kind for line in _page(cause)]
    return "\n".join(lines) + "\n"


def _table(causes: Sequence[Cause]) -> Iterator[str]:
    yield "| Code | Cause | Level | | Beats |"
    yield "|---|---|---|---|---|"
    for cause in causes:
        level = ", ".join(cause.levels) or _KINDS.get(cause.code[:1], ("", ""))[0]
        beats = ", ".join(sorted(cause.beats))
        yield f"| [{cause.code}](#{cause_anchor(cause)}) | {cause.title} | {level} | {'preview' if cause.preview else ''} | {beats} |"


def _page(cause: Cause) -> Iterator[str]:
    sections = page_sections(cause.page)
    yield ""
    yield f"### {cause.code} {cause.title}"
    for name, text in sections.items():
        yield ""
        yield text + "." if name == "title" else f"**{name.replace('_', ' ').capitalize()}.** {text}"


def cause_anchor(cause: Cause) -> str:
    """The anchor of a cause's page within the file."""
    return heading_anchor(f"{cause.code} {cause.title}")
