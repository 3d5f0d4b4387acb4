"""docs/verbs.md: the options of each verb, from the same rows as its parser."""

import re
import textwrap
from collections.abc import Iterable, Sequence

from paceline.option import EVERY_VERB, Option, Verb

_WIDTH = 140
_INTRODUCTION = """\
# Verbs and options

This page is made from the rows that the command line itself is made of; `paceline VERB --help` shows the same, after two examples.

Every verb takes `--json`, `--color auto|always|never` and `--help`. `--json` prints one object with a `schema` on stdout; `logs` prints
one for each line; `run`, whose stdout belongs to your script, writes it to stderr. `NO_COLOR` is obeyed. Exit codes of the reading verbs:
0 answered, 2 usage, 3 the recording does not hold what was asked for, 130 Ctrl-C, 141 the reader of a pipe closed it
(`paceline logs | head`). Exit codes of `run` are in [running.md](running.md#exit-codes).

A RUN is an id (`r-37f901`), the beginning of an id, or a directory. Without RUN, a verb takes the newest run of this directory. If this
directory has no runs, the verb refuses (U09) and names the runs of other directories, with the command for the newest of them: no verb
takes a run of another directory without its id. Runs that `bench` makes for itself are never the newest.

A word has one meaning over all verbs. `--run-dir` is the directory below which recordings are, `--dir` a further directory of the same
run from another host. `--hosts` names hosts, and `--host-counts` counts them. `--local-hosts` makes hosts on this machine. A time is a
duration: `90`, `90s`, `15m`, `12h`, `1d` or `1h30m`.

Unambiguous beginnings of options are taken (`--inter 5s`). Of the options of [`run`](#paceline-run) only torchrun's are, there and where
they are passed on. Letters are those of torchrun and of nccl-tests: with `bench COLLECTIVE`, `-m`, `-r`, `-t`, `-f`, `-n`, `-o`, `-g`
and `-b` mean what they mean in nccl-tests, and not `--module`, `--redirects`, `--tee`, `--follow`, `--tail` and
`--save`. With `bench step`, `-m` is `--module`.

`paceline --version` prints the version, `paceline --help` the verbs, `paceline help VERB` the options of one verb."""


def verbs_page(verbs: Iterable[Verb]) -> str:
    """The content of docs/verbs.md."""
    return "\n\n".join([_INTRODUCTION, *map(_section, verbs)]) + "\n"


def _section(verb: Verb) -> str:
    parts = [f"## paceline {verb.name}", "```\n" + "\n".join(verb.forms) + "\n```"]
    parts.append(_paragraphs(" ".join(part for part in (_code(verb.about), verb.page) if part)))
    for title, rows in verb.sections.items():
        shown = [row for row in rows if row not in EVERY_VERB]
        if not shown:
            continue
        if title:
            parts.append(f"### {title[0].upper()}{title[1:]}")
        if text := verb.section_texts.get(title):
            parts.append(_paragraphs(_code(text)))
        parts.append(_table(shown))
    if verb.keys:
        parts += ["### Keys of `--set`", _table(verb.keys, "Key")]
    if verb.notes:
        parts.append(_paragraphs(verb.notes))
    return "\n\n".join(parts)


def _table(rows: Sequence[Option], title: str = "Option") -> str:
    """One line for each row. Columns that would be empty are left out."""
    columns = {
        title: [_heading(row) for row in rows],
        "Default": [_default(row) for row in rows],
        "Variable": [f"`{row.variable}`" if row.variable else "" for row in rows],
        "What it does": [" ".join(part for part in (_code(row.help), row.more) if part) for row in rows],
    }
    used = {title: cells for title, cells in columns.items() if any(cells)}
    lines = [list(used), ["---"] * len(used), *map(list, zip(*used.values(), strict=True))]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _heading(row: Option) -> str:
    value = row.value
    if row.is_positional:
        return f"`{value}`"
    if row.is_key:
        return f"`{row.name}={value}`"
    return ", ".join(f"`{one}`" for one in row.shown_spellings) + (f" `{value}`" if value else "")


def _default(row: Option) -> str:
    shown = row.shown_default
    return f"`{shown}`" if shown and " " not in shown else _code(shown)


def _code(text: str) -> str:
    """The text with every option formatted as code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"(?<![\w-])(--[a-z][\w-]*\b)", r"`\1`", part) for part in parts
    )


def _paragraphs(text: str) -> str:
    """Prose in lines of one width; code and tables as they are."""
    return "\n\n".join(
        part
        if part.startswith(("```", "|"))
        else textwrap.fill(part, _WIDTH, break_long_words=False, break_on_hyphens=False)
        for part in text.split("\n\n")
    )
