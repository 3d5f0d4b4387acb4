"""`paceline VERB --help`: two examples, the forms of the command line, and one line or more for each option."""

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence

from paceline.option import HELP, Example, Option, Verb

WIDTH = 80
_NAMES_WIDTH = 26


def help_text(verb: Verb, width: int = WIDTH) -> str:
    """The help of a verb. No line is wider than `width`, unless one word is."""
    parts = [examples_text(verb.examples, width), _usage_text(verb, width), _wrapped(verb.about, width)]
    positionals = [row for row in verb.options if row.is_positional]
    if positionals:
        parts.append("arguments:\n" + rows_text(positionals, width))
    sections = {title: [row for row in rows if not row.is_positional] for title, rows in verb.sections.items()}
    sections.setdefault("", []).append(HELP)
    # If a verb has headings, the options that every verb has come last.
    for title in sorted(sections, key=lambda title: title == ""):
        text = plain(verb.section_texts.get(title, ""))
        parts.append(
            f"{title or 'options'}:\n"
            + (textwrap.indent(_wrapped(text, width - 2), "  ") + "\n" if text else "")
            + rows_text(sections[title], width)
        )
    if verb.epilog:
        parts.append(_wrapped(verb.epilog, width))
    return "\n".join(parts)


def examples_text(examples: Sequence[Example], width: int = WIDTH) -> str:
    """Examples as the first lines of a help text. The explanation is beside the command if there is room, else below."""
    longest = max(len(command) for command, _ in examples)
    beside = "".join(f"  {command:<{longest}}   {says}\n" for command, says in examples)
    if all(len(line) <= width for line in beside.splitlines()):
        return beside
    return "".join(f"{_continued(command, width - 2)}\n      {says}\n" for command, says in examples)


def plain(markdown: str) -> str:
    """Markdown as plain text: a link becomes its text."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)


def _continued(command: str, width: int) -> str:
    """A command over as many lines as it needs, with the continuation characters of a shell."""
    lines, line = [], " "
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if len(line) + len(quoted) + 3 > width:
            lines.append(line)
            line = "     "
        line += f" {quoted}"
    return " \\\n".join([*lines, line])


def _usage_text(verb: Verb, width: int) -> str:
    lines = []
    for place, form in enumerate(verb.forms):
        before = "usage: " if place == 0 else "       "
        lines += textwrap.wrap(form, width, initial_indent=before, subsequent_indent=" " * 11, break_on_hyphens=False)
    return "".join(f"{line}\n" for line in lines)


def rows_text(rows: Iterable[Option], width: int = WIDTH) -> str:
    """A line or more for each row."""
    lines = []
    for row in rows:
        head = f"  {heading(row)}"
        text = textwrap.wrap(_help_of(row), width - _NAMES_WIDTH, break_on_hyphens=False, break_long_words=False)
        # At least two spaces separate an option from its help.
        beside = text.pop(0) if len(head) <= _NAMES_WIDTH - 2 else ""
        lines.append(f"{head:<{_NAMES_WIDTH}}{beside}".rstrip())
        lines += [f"{'':<{_NAMES_WIDTH}}{line}" for line in text]
    # The character that kept two words together is no longer needed.
    return "".join(f"{line}\n" for line in lines).replace("\N{NO-BREAK SPACE}", " ")


def heading(row: Option) -> str:
    """The option as it is typed, with its metavar."""
    if row.is_positional:
        return row.value
    if row.is_key:
        return f"{row.name}={row.value}"
    return ", ".join(row.shown_spellings) + (f" {row.value}" if row.value else "")


def _help_of(row: Option) -> str:
    known = [f"default:\N{NO-BREAK SPACE}{row.shown_default}" if row.shown_default else "", row.variable]
    brackets = ", or ".join(part for part in known if part)
    return f"{row.help} [{brackets}]" if brackets else row.help


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False) + "\n"
