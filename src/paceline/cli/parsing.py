"""The argument parser that every verb shares: two examples first, and a refusal in four parts instead of a usage dump."""

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from paceline.errors import UsageError

Example = tuple[str, str]


class VerbParser(argparse.ArgumentParser):
    """argparse without abbreviations, exits or usage dumps."""

    def __init__(self, verb: str, about: str, examples: Sequence[Example]) -> None:
        super().__init__(prog=f"paceline {verb}", description=about, allow_abbrev=False, exit_on_error=False)
        self._examples = examples

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        words = list(args or ())
        parsed, unknown = self.parse_own(words, namespace)
        if unknown:
            raise self._unknown(words, unknown[0])
        return parsed

    def parse_own(self, words: list[str], namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        """The options that this verb has, and the words that it has not, in order."""
        try:
            return self.parse_known_args(words, namespace)
        except argparse.ArgumentError as refused:
            raise UsageError(
                "U03", str(refused), saw=f"{self.prog} {shlex.join(words)}", next=f"{self.prog} --help"
            ) from None

    def error(self, message: str) -> NoReturn:
        raise UsageError("U03", message, saw=self.prog, next=f"{self.prog} --help")

    def format_help(self) -> str:
        return examples_text(self._examples) + "\n" + super().format_help()

    def _unknown(self, words: list[str], word: str) -> UsageError:
        if not word.startswith("-"):
            return UsageError(
                "U01",
                f"{self.prog} does not know what to do with {word!r}",
                saw=f"{self.prog} {shlex.join(words)}",
                next=f"{self.prog} --help",
            )
        name, equals, value = word.partition("=")
        near = nearest(name, self._option_string_actions)
        if near is None:
            return UsageError(
                "U01", f"unknown option {name}", saw=f"{self.prog} has no such option", next=f"{self.prog} --help"
            )
        corrected = [near + equals + value if other == word else other for other in words]
        return UsageError(
            "U01",
            f"unknown option {name}",
            saw=f"the nearest one is {near}",
            next=f"{self.prog} {shlex.join(corrected)}",
        )


def nearest(word: str, known: Any) -> str | None:
    """The known word that is most likely meant, if any is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return near[0] if near else None


def examples_text(examples: Sequence[Example]) -> str:
    """Examples as the first lines of a help text, what each does beside it."""
    width = max(len(command) for command, _ in examples)
    return "".join(f"  {command:<{width}}   {says}\n" for command, says in examples)


def add_common(parser: argparse.ArgumentParser) -> None:
    """--json and --color, which every verb has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colour of the text (auto)"
    )


def split_at_script(parser: argparse.ArgumentParser, words: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and the script with its arguments: what begins at the first word that belongs to no option; `--` ends ours.

    Holds:   no word is lost, except a `--` in between
    """
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return words[:place], words[place + 1 :]
        if not word.startswith("-") or word == "-":
            return words[:place], words[place:]
        action = parser._option_string_actions.get(word)
        place += 2 if action is not None and action.nargs is None else 1
    return words, []


def find_directories(args: argparse.Namespace, verb: str) -> list[Path]:
    """The recording that RUN means, then those of --dir. `verb` is the command that asks, as a refusal names it.

    Raises:  UsageError U09: one of them is none, or they are of different runs
    """
    from paceline.recording.runs import at_path, find_run, first_try, is_submitted, newest_try, of_one_run

    found = find_run(args.run, verb=verb)
    say_where(found, args.run)
    if is_submitted(found):
        from paceline.launch.engines.jobs import brought_up_to_date

        if why_not := brought_up_to_date(found, os.environ):
            print(f"not judged: what the engine would say of {found.name}: {why_not}", file=sys.stderr)
        found = newest_try(first_try(found))
    return of_one_run([found, *(at_path(Path(text)) for text in args.directories)])


def say_where(found: Path, text: str | None) -> None:
    """Say of a run that was found by its id in another directory which one that is."""
    from paceline.recording.runs import found_elsewhere

    if (directory := found_elsewhere(found, text)) is not None:
        print(f"{found.name} is a run of {directory}", file=sys.stderr)


def add_run(parser: argparse.ArgumentParser) -> None:
    """RUN and --dir, for the verbs that read one recording."""
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="id, beginning of an id, or directory (the newest run here)"
    )
    parser.add_argument(
        "--dir",
        action="append",
        default=[],
        metavar="DIR",
        dest="directories",
        help="a further directory of the same run, from another host; may be repeated",
    )
