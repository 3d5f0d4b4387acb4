"""Turns the advice of an error into the command that the user typed, with the advised change, so that it can be pasted.

Code that refuses something does not know the whole command line. Its advice has one of these forms:

* `paceline VERB OPTIONS ...`: the same command with these options, in place of those with the same name
* `OPTIONS`, beginning with a dash and without an alternative: the same, of any verb
* `OPTIONS instead of OPTION VALUE`: the same, and without that use of an option
* `WORDS instead of WORDS`: the same command with these words in place of those
* `leave OPTION out`, `leave OPTION VALUE out` or `leave OPTION KEY out`: the same command without this option, or without this use of it
* `leave WORD out`: the same command without a word that is no option
* `put OPTION VALUE behind the script`: the same command, and its last words are these

Any other advice is complete, and stays as it is.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.cli.parsing import called, spelled, split_at_script
from paceline.option import Option, Verb

_SAME_COMMAND = re.compile(r"(?P<before>(?:.*; |\w+=\S+ |sudo )?)paceline [\w-]+ (?P<options>-(?:(?!; ).)*)?\.\.\.")
_OPTIONS = re.compile(r"(?P<options>--?\w(?:(?![,;] ).)*)")
_INSTEAD = re.compile(r"(?P<options>-.*) instead of (?P<option>--?[\w-]+) (?P<value>\S+)")
_OTHER_WORDS = re.compile(r"(?P<words>.+) instead of (?P<given>(?:(?! instead of ).)+)")
_WORD_LEFT_OUT = re.compile(r"(?P<words>)leave (?P<given>[^-\s]\S*) out")
_BEHIND = re.compile(r"put (?P<given>-.*) behind the script")
_LEFT_OUT = re.compile(r"leave (?P<option>--?[\w-]+)(?: (?P<value>\S+))? out\b.*")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One option with its value, or one other word."""

    row: Option | None
    words: tuple[str, ...]

    @property
    def value(self) -> str:
        """The value; "" without one."""
        return self.words[1] if len(self.words) > 1 else self.words[0].partition("=")[2]

    @property
    def key(self) -> str:
        return self.value.partition("=")[0]


def corrected(advice: str, argv: Sequence[str], verb: Verb) -> str:
    """The advice as a whole command line if it is about options of this one. `argv`: the words after the verb.

    Values of `--env` are not shown, because they may be secrets.

    Holds:   "--port 2 ..." for ["--port", "1", "train.py"] -> "paceline run --port 2 train.py"
    """
    try:
        return _corrected(advice, argv, verb)
    except ValueError:
        # An apostrophe: the advice is a sentence, no words of a shell.
        return advice


def _corrected(advice: str, argv: Sequence[str], verb: Verb) -> str:
    # A shell must evaluate what is between $( and ), so quoting would change it. With --job, what is wrong is in that file.
    if "$(" in advice or any(word.partition("=")[0] == "--job" for word in argv):
        return advice
    for form in (_OTHER_WORDS, _WORD_LEFT_OUT, _BEHIND):
        if (match := form.fullmatch(advice)) and (exchanged := _exchanged(argv, match)):
            return shlex.join(["paceline", verb.name, *_without_values_of_env(verb, exchanged)])
    rows = spelled(_rows(verb))
    ours, script = _split(verb, argv)
    pieces = _pieces(rows, ours)
    forms = (_INSTEAD, _LEFT_OUT, _SAME_COMMAND, _OPTIONS)
    match = next((match for form in forms if (match := form.fullmatch(advice))), None)
    if match is None:
        return advice
    parts = match.groupdict()
    changed = pieces
    if option := parts.get("option"):
        row, value = rows.get(option), shlex.split(parts["value"])[0] if parts["value"] else None
        changed = [
            piece for piece in pieces if row is None or piece.row != row or value not in (None, piece.value, piece.key)
        ]
        if len(changed) == len(pieces):
            return advice
    for piece in _pieces(rows, shlex.split(parts.get("options") or "")):
        if piece.row is None:
            return advice
        changed = _with(changed, piece)
    words = [word for piece in changed for word in _shown(piece)]
    return parts.get("before", "") + shlex.join(["paceline", verb.name, *words, *script])


def _exchanged(argv: Sequence[str], match: re.Match[str]) -> list[str]:
    """The words with others in place of those given, or with these at the end; [] if they are not among them."""
    given = shlex.split(match["given"])
    places = range(len(argv) - len(given) + 1)
    place = next((place for place in places if list(argv[place : place + len(given)]) == given), None)
    if place is None:
        return []
    before, behind = argv[:place], argv[place + len(given) :]
    return [*before, *behind, *given] if match.re is _BEHIND else [*before, *shlex.split(match["words"]), *behind]


def _without_values_of_env(verb: Verb, argv: Sequence[str]) -> list[str]:
    ours, script = _split(verb, argv)
    return [word for piece in _pieces(spelled(_rows(verb)), ours) for word in _shown(piece)] + script


def _split(verb: Verb, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the script with its arguments."""
    if verb.script_place == 0 or (verb.script_place == 2 and argv[:1] != ["step"]):
        return list(argv), []
    head = list(argv[: verb.script_place - 1])
    ours, script = split_at_script(_rows(verb), argv[len(head) :])
    return head + ours, (["--", *script] if "--" in argv[: len(argv) - len(script)] else script)


def _rows(verb: Verb) -> tuple[Option, ...]:
    if not verb.passed_on:
        return verb.rows
    from paceline.cli.job.options import VERB as RUN

    return (*RUN.rows, *verb.rows)


def _pieces(rows: dict[str, Option], words: Sequence[str]) -> list[_Piece]:
    pieces = []
    place = 0
    while place < len(words):
        name, equals, _ = words[place].partition("=")
        row = called(rows, name)
        end = place + (1 if row is None or row.is_flag or equals else 2)
        pieces.append(_Piece(row, tuple(words[place:end])))
        place = end
    return pieces


def _with(given: Sequence[_Piece], advised: _Piece) -> list[_Piece]:
    """The pieces with the advised one in place of the one that it corrects, or at the end."""
    row = advised.row
    assert row is not None
    same = [piece for piece in given if piece.row is not None and piece.row.dest == row.dest]
    if same and not advised.value and not row.is_flag:
        return list(given)
    if row.repeatable:
        same = [piece for piece in same if _is_meant(advised, piece, len(same))]
    if not same:
        return [*given, advised]
    return [advised if piece is same[0] else piece for piece in given if piece not in same[1:]]


def _is_meant(advised: _Piece, piece: _Piece, count: int) -> bool:
    """Whether the advice for an option that may be repeated is about this use of it."""
    return piece.key == advised.key or (count == 1 and not ("=" in piece.value and "=" in advised.value))


def _shown(piece: _Piece) -> Iterable[str]:
    if piece.row is None or piece.row.name != "env" or "=" not in piece.value:
        return piece.words
    return ("--env", f"{piece.key}=...")
