"""The possible values of each option and operand, as far as a shell can complete them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paceline.option import HELP, Option, Verb


class Kind(StrEnum):
    """What a shell looks up during completion."""

    NOTHING = "nothing"
    FILE = "file"
    DIRECTORY = "directory"
    RUN = "run"


_KINDS = {"FILE": Kind.FILE, "SCRIPT": Kind.FILE, "SOCKET": Kind.FILE, "DIR": Kind.DIRECTORY, "RUN": Kind.RUN}


@dataclass(frozen=True, slots=True)
class Completions:
    """Offered words, and what the shell looks up in addition."""

    words: tuple[str, ...] = ()
    """Words that are offered as they are."""
    kind: Kind = Kind.NOTHING
    """Kinds of words that the shell looks up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedVerb:
    """One verb in the form for a completion script."""

    name: str
    """The verb as it is typed."""
    about: str
    """The verb's line in `paceline --help`."""
    rows: tuple[Option, ...]
    """The verb's options, including those that it passes on."""
    operand: Completions
    """The possible values of its first word."""
    script_place: int
    """The position of the script among its words. Words after the script belong to the script. 0: it has no script."""


def completed_verb(verb: Verb, about: str, names: Mapping[str, Sequence[str]]) -> CompletedVerb:
    """`about`: the verb's line in the list of verbs; `names`: the possible words for a metavar such as CODE."""
    own = {row.name for row in verb.rows}
    rows = (*verb.rows, *(row for row in verb.passed_on if row.name not in own), HELP)
    positionals = [row.metavar or "|".join(row.choices) for row in verb.options if row.is_positional]
    return CompletedVerb(
        name=verb.name,
        about=about,
        rows=tuple(row for row in rows if not row.is_positional),
        operand=completions("|".join(positionals) or verb.operand or ("SCRIPT" if verb.script_place else ""), names),
        script_place=verb.script_place,
    )


def completions(metavar: str, names: Mapping[str, Sequence[str]]) -> Completions:
    """The values that a metavar stands for: a word in lower case is the value itself, a word in capitals names a kind of values.

    Holds:   "FILE|latest" -> the word latest, and files
    """
    parts = [part for part in metavar.split("|") if part]
    words = [word for part in parts for word in names.get(part, [] if part != part.lower() else [part])]
    return Completions(
        words=tuple(word for word in words if not set(word) & set(" ,:'\"")),
        kind=next((_KINDS[part] for part in parts if part in _KINDS), Kind.NOTHING),
    )


def completions_of(row: Option, names: Mapping[str, Sequence[str]]) -> Completions:
    """The possible values of an option."""
    return completions("|".join(row.choices) or row.metavar, names)
