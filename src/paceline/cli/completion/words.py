"""What can stand behind each option and verb, as far as a shell can complete it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paceline.cli.option import HELP, Option, Verb


class Kind(StrEnum):
    """What a shell looks up when it completes."""

    NOTHING = "nothing"
    FILE = "file"
    DIRECTORY = "directory"
    RUN = "run"


_KINDS = {"FILE": Kind.FILE, "SCRIPT": Kind.FILE, "SOCKET": Kind.FILE, "DIR": Kind.DIRECTORY, "RUN": Kind.RUN}


@dataclass(frozen=True, slots=True)
class Completions:
    """Words that are offered, and what is looked up beside them."""

    words: tuple[str, ...] = ()
    """Offered as they are."""
    kind: Kind = Kind.NOTHING
    """Looked up by the shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedVerb:
    """One verb as a completion script knows it."""

    name: str
    """As it is typed."""
    about: str
    """Its line in `paceline --help`."""
    rows: tuple[Option, ...]
    """Its options, those that it passes on too."""
    operand: Completions
    """What its first word may be."""
    script_place: int
    """Which of its words is a script: what follows it is the script's. 0: none is."""


def completed_verb(verb: Verb, about: str, names: Mapping[str, Sequence[str]]) -> CompletedVerb:
    """`about`: a line of the list of verbs; `names`: every word that a metavar such as CODE stands for."""
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
    """What a metavar stands for: small letters for themselves, capitals for what they name.

    Holds:   "FILE|latest" -> the word latest, and files
    """
    parts = [part for part in metavar.split("|") if part]
    words = [word for part in parts for word in names.get(part, [] if part != part.lower() else [part])]
    return Completions(
        words=tuple(word for word in words if not set(word) & set(" ,:'\"")),
        kind=next((_KINDS[part] for part in parts if part in _KINDS), Kind.NOTHING),
    )


def completions_of(row: Option, names: Mapping[str, Sequence[str]]) -> Completions:
    """What can stand behind an option that takes a value."""
    return completions("|".join(row.choices) or row.metavar, names)
