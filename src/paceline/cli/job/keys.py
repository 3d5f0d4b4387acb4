"""`--set KEY=VALUE` of `paceline run`: what is rarely set, with the names that a job file has for it."""

import argparse
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from paceline.cli import other_names
from paceline.cli.job.option_tables import KEYS
from paceline.cli.parsing import MISSPELT, called, example, spelled
from paceline.errors import UsageError
from paceline.option import Option, Verb
from paceline.spelling import nearest


def set_keys(parsed: argparse.Namespace, verb: Verb) -> None:
    """Give each key of the verb its value: of the last --set that names it, else its default.

    Raises:  UsageError U01: there is no such key; U03: no key with a value, or a value that the key does not take
    """
    rows = {row.name: row for row in verb.keys}
    for row in verb.keys:
        setattr(parsed, row.dest, row.unset)
    for text in parsed.set or ():
        name, equals, value = text.partition("=")
        key = rows.get(name)
        if key is None:
            raise _unknown(name, text, verb)
        if not equals:
            raise UsageError("U03", f"--set {text} is not KEY=VALUE", next=_instead(name, example(key), text))
        setattr(parsed, key.dest, _value(key, value, text))


def _value(row: Option, value: str, text: str) -> Any:
    if not value:
        what = f"--set {text} has an empty value"
    elif row.choices and value not in row.choices:
        what = f"--set {row.name}: {value!r} is none of {', '.join(map(repr, row.choices))}"
    else:
        try:
            return row.kind(value)
        except ValueError:
            what = f"--set {row.name}: {value!r} is not a number"
    wanted = nearest(value, row.choices, 0.5) or example(row)
    raise UsageError("U03", what, saw=f"--set {shlex.quote(text)}", next=_instead(row.name, wanted, text))


def _instead(name: str, value: str, text: str) -> str:
    return f"--set {name}={value} instead of --set {shlex.quote(text)}"


def _unknown(name: str, text: str, verb: Verb) -> UsageError:
    if not name:
        return UsageError("U03", f"--set {text!r} is not KEY=VALUE", next="paceline help keys")
    value = text.partition("=")[2]
    option = next((row for row in verb.options if row.dest == name.replace("-", "_")), None)
    if option is not None:
        words = [f"--{option.name}", *([] if option.is_flag else [value or example(option)])]
        return UsageError(
            "U01",
            f"--set has no key {name}",
            saw=f"it is an option: --{option.name}",
            next=f"{shlex.join(words)} instead of --set {shlex.quote(text)}",
        )
    rows = {row.name: row for row in verb.keys}
    near = nearest(name.replace("-", "_"), rows, MISSPELT)
    if near is None:
        return UsageError(
            "U01", f"--set has no key {name}", saw="every key has its line there", next="paceline help keys"
        )
    return UsageError(
        "U01",
        f"--set has no key {name}",
        saw=f"the nearest one is {near}",
        next=_instead(near, shlex.quote(value) if value else example(rows[near]), text),
    )


def refuse_former(verb: str, rows: Iterable[Option], argv: Sequence[str], *, script_place: int = 1) -> None:
    """Refuse a key of --set that is typed as an option before the script, which it was once. `rows`: every option that the verb takes.

    Raises:  UsageError U01: there is such a word; the error has the whole command line that does the same
    """
    row_of = spelled(rows)
    words: list[str] = []
    former = ""
    place = operands = 0
    while place < len(argv):
        name, equals, value = argv[place].partition("=")
        if name in ("--", "-") or not name.startswith("-"):
            operands += 1
            if name == "--" or operands == script_place:
                break
        row = called(row_of, name)
        key = _key_of(name) if row is None else None
        takes = key or row
        has_value = takes is not None and not (takes.is_flag or takes.default is False)
        end = place + (2 if has_value and not equals else 1)
        if key:
            former = former or name
            words += ["--set", f"{key.name}={''.join([value, *argv[place + 1 : end]]) if has_value else 'true'}"]
        else:
            words += argv[place:end]
        place = end
    if former:
        raise UsageError(
            "U01",
            f"unknown option {former}",
            saw="it is a key of --set now",
            next=shlex.join(["paceline", verb, *words, *argv[place:]]),
        )


def _key_of(name: str) -> Option | None:
    """The key that has this option's name, or the name that is meant by it; None: there is none."""
    if not name.startswith("--"):
        return None
    bare = name[2:].replace("_", "-")
    meant = other_names.OPTIONS.get(bare, bare).replace("-", "_")
    return next((row for row in KEYS if row.name == meant), None)


def keys_in(argv: Sequence[str]) -> list[str]:
    """The keys that the words set."""
    return [key for key, _ in _by_key(argv) if key]


def without_key(name: str, argv: Sequence[str]) -> list[str]:
    """The words without those that set this key."""
    return [word for key, words in _by_key(argv) if key != name for word in words]


def _by_key(argv: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The words of each --set, with its key; each other word, with ""."""
    place = 0
    while place < len(argv):
        name, equals, text = argv[place].partition("=")
        end = place + (2 if name == "--set" and not equals else 1)
        words = argv[place:end]
        yield (text or words[-1]).partition("=")[0] if name == "--set" else "", words
        place = end
