"""The argument parser that every verb shares. It is built from the verb's rows, and refuses with an error in four parts."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from paceline.cli import other_names
from paceline.cli.moved import with_network
from paceline.errors import UsageError
from paceline.option import HELP, Option, Verb
from paceline.spelling import nearest


class VerbParser(argparse.ArgumentParser):
    """argparse without exits or usage dumps.

    `environ`: the variables that give defaults. `passed_on`: rows of another verb, whose words stay as they are.
    """

    def __init__(
        self,
        verb: Verb,
        environ: Mapping[str, str] = os.environ,
        passed_on: Iterable[Option] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**{"prog": f"paceline {verb.name}", "allow_abbrev": False, "exit_on_error": False, **options})
        self.verb = verb
        self.passed_on = tuple(verb.passed_on if passed_on is None else passed_on)
        self.spellings = [
            *(HELP.spellings if self.add_help else ()),
            *(spelling for row in verb.rows for spelling in row.spellings),
        ]
        _add_rows(self, verb.rows, environ)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        argv = list(args or ())
        parsed, unknown = self.parse_own(argv, namespace)
        if unknown:
            raise self._unknown(argv, unknown[0])
        return parsed

    def parse_own(self, argv: list[str], namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        """The options of this verb, of which unambiguous beginnings are taken, and the other words in order."""
        argv = self._in_full(argv)
        try:
            parsed, others = self.parse_known_args(argv, namespace)
        except argparse.ArgumentError as refused:
            # From Python 3.13 on, a missing value arrives here as well, without the name of an argument.
            if refused.argument_name is None:
                self.error(refused.message)
            raise self.refused_value(argv, refused) from None
        self._refuse_empty(parsed)
        return parsed, others

    def _refuse_empty(self, parsed: argparse.Namespace) -> None:
        """Refuse an empty value: a shell's unset variable would otherwise be read as if the option were not given."""
        for row in self.verb.rows:
            value = getattr(parsed, row.dest)
            if not row.is_positional and row.unset != "" and (value == "" or (row.repeatable and "" in (value or ()))):
                raise UsageError(
                    "U03",
                    f"--{row.name} has an empty value",
                    saw=f"--{row.name} ''",
                    next=f"--{row.name} {example(row)}",
                )

    def _in_full(self, argv: Sequence[str]) -> list[str]:
        """The words with every option of this verb in full; options that are passed on stay as they are typed."""
        row_of = spelled((*self.passed_on, HELP, *self.verb.rows))
        own = {HELP.name, *(row.name for row in self.verb.rows)}
        found = list(argv)
        for place, word in enumerate(argv):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            row = called(row_of, name) if word.startswith("--") else None
            if row is not None and name not in row_of and row.name in own:
                found[place] = f"--{row.name}{equals}{value}"
        return found

    def error(self, message: str) -> NoReturn:
        missing = message.rpartition("arguments are required: ")[2]
        row = next((row for row in self.verb.rows if row.is_positional and row.choices and row.value == missing), None)
        instead = row.choices[0] if row is not None else "--help"
        raise UsageError("U03", _in_our_words(message), saw=self.prog, next=f"{self.prog} {instead}")

    def refused_value(self, argv: Sequence[str], refused: argparse.ArgumentError) -> UsageError:
        """argparse's refusal of one option's value, with the option as it should be written."""
        spellings = (refused.argument_name or "").split("/")
        long = (spelling for spelling in spellings if spelling.startswith("--"))
        name = next((spelling for spelling in spellings if spelling in argv), None) or next(long, spellings[0])
        row = spelled(self.verb.rows).get(name)
        if row is None and (word := re.search(r"invalid choice: '(.*?)' \(choose from '(.*?)'", refused.message)):
            meant = [word[2] if other == word[1] else other for other in argv]
            return UsageError("U03", _in_our_words(refused.message), next=f"{self.prog} {shlex.join(meant)}")
        what = _in_our_words(refused.message)
        behind = argv[argv.index(name) + 1 :][:1] if name in argv else []
        if what == NO_VALUE and behind:
            what += f": {behind[0]!r} behind it begins with a dash"
        return UsageError(
            "U03",
            f"{name}: {what}",
            next=f"leave {name} out"
            if "not allowed with" in refused.message
            else f"{name} {example(row, refused.message)}".rstrip(),
        )

    def format_help(self) -> str:
        from paceline.cli.help_text import help_text

        return help_text(self.verb)

    def unknown_option(self, argv: Sequence[str], word: str, *, saw: str, next: str) -> UsageError:
        """U01 with the spelling that was meant. If none is near, it may be the script's own option, which stands behind the script; `saw`
        and `next` apply if there is no script either.
        """
        name, equals, value = word.partition("=")
        row_of = spelled((*self.passed_on, *self.verb.rows))
        if "--network" in row_of and (instead := with_network(argv)):
            return UsageError(
                "U01",
                f"unknown option {name}",
                saw="--network says it",
                next=shlex.join([*self.prog.split(), *instead]),
            )
        if len(name) > 3 and len(meant := meant_by(row_of, name)) > 1:
            names = ", ".join(f"--{row.name}" for row in meant)
            return UsageError(
                "U01", f"{name} is the beginning of several options", saw=names, next=f"{self.prog} --help"
            )
        if name == "--version":
            return UsageError(
                "U01", f"unknown option {name}", saw="it has no verb beside it", next="paceline --version"
            )
        near = self._near(name, row_of)
        if near is not None and name == f"--no-{near.removeprefix('--')}":
            return UsageError(
                "U01", f"unknown option {name}", saw=f"{near} is off unless it is given", next=f"leave {name} out"
            )
        if near is None:
            if behind := _for_the_script(argv, word):
                saw, next = "the script's own options stand behind it", f"put {shlex.join(behind)} behind the script"
            return UsageError("U01", f"unknown option {name}", saw=saw, next=next)
        return UsageError(
            "U01",
            f"unknown option {name}",
            saw=f"the nearest one is {near}",
            next=f"{shlex.quote(near + equals + value)} instead of {shlex.quote(word)}",
        )

    def _near(self, name: str, row_of: Mapping[str, Option]) -> str | None:
        """The spelling that was meant: what another program calls so, or one that is spelled alike."""
        other = other_names.OPTIONS.get(name.lstrip("-").replace("_", "-"))
        if other is not None:
            return f"--{other}" if f"--{other}" in row_of else None
        alike = [spelling for spelling in self.spellings if ("_" in spelling) == ("_" in name)]
        return nearest(name, alike, MISSPELT) or nearest(name, self.spellings, MISSPELT)

    def _unknown(self, argv: list[str], word: str) -> UsageError:
        if word.startswith("-"):
            return self.unknown_option(argv, word, saw=f"{self.prog} has no such option", next=f"{self.prog} --help")
        return UsageError(
            "U01",
            f"{self.prog} does not know what to do with {word!r}",
            next=f"{self.prog} {shlex.join(other for other in argv if other != word)}".rstrip(),
        )


# How alike an option must be to be named in place of another: with less, --verbose is --role, or --version.
MISSPELT = 0.75


def _for_the_script(argv: Sequence[str], option: str) -> list[str]:
    """This option, with what may be its value, if a script follows; else []."""
    place = argv.index(option)
    script = next((at for at, word in enumerate(argv) if at > place and word.endswith((".py", ".sh"))), None)
    if script is None:
        return []
    has_value = "=" not in option and script > place + 1 and not argv[place + 1].startswith("-")
    return list(argv[place : place + 1 + has_value])


NO_VALUE = "it has no value"
_ARGPARSE = (
    (re.compile(r"invalid (?:int|float) value: (.*)"), r"\1 is not a number"),
    (re.compile(r"invalid \w+ value: (.*)"), r"\1 cannot be read"),
    (re.compile(r"invalid choice: ('.*?') \(choose from (.*)\)"), r"\1 is none of \2"),
    (re.compile(r"expected (?:one|at least one) argument"), NO_VALUE),
    (re.compile(r"not allowed with argument (\S+)"), r"it excludes \1"),
    (re.compile(r"the following arguments are required: (.*)"), r"\1 is missing"),
)


def example(row: Option | None, message: str = "") -> str:
    """A value that the option takes: the choice that was meant, its default, 1, or the name of what is to be given; "" for a flag."""
    if row is None or row.is_flag:
        return ""
    if row.choices:
        given = re.search(r"invalid choice: '(.*?)'", message)
        return nearest(given[1], row.choices, 0.5) or row.choices[0] if given else row.choices[0]
    default = row.unset
    if isinstance(default, str | int | float) and not isinstance(default, bool) and str(default):
        return str(default)
    number = re.match(r"\d+", row.default_text)
    if row.kind in (int, float):
        return number[0] if number else "1"
    return row.value.removesuffix(" ...")


def _in_our_words(message: str) -> str:
    """argparse's message in the wording of paceline's other refusals."""
    for pattern, words in _ARGPARSE:
        if pattern.search(message):
            return pattern.sub(words, message)
    return message


def _add_rows(parser: argparse.ArgumentParser, rows: Iterable[Option], environ: Mapping[str, str]) -> None:
    exclusive: dict[str, Any] = {}  # by attribute: flags that set the same one
    for row in rows:
        default = _default(row, environ)
        if row.is_positional:
            parser.add_argument(
                row.dest,
                metavar=row.value.removesuffix(" ..."),
                nargs=row.count or None,
                default=default,
                choices=row.choices or None,
            )
        elif row.is_flag:
            if row.dest not in exclusive:
                exclusive[row.dest] = parser.add_mutually_exclusive_group()
            exclusive[row.dest].add_argument(
                *row.spellings, dest=row.dest, action="store_const", const=row.const, default=default
            )
        else:
            parser.add_argument(
                *row.spellings,
                dest=row.dest,
                action="append" if row.repeatable else "store",
                type=row.kind,
                default=default,
                choices=row.choices or None,
                metavar=row.metavar or None,
                nargs=row.count or None,
                required=row.required,
            )


def _default(row: Option, environ: Mapping[str, str]) -> Any:
    text = environ.get(row.variable) if row.variable else None
    if text is None:
        return row.unset
    if not row.is_flag:
        return text
    try:
        return bool(int(text))
    except ValueError:
        raise UsageError(
            "U03",
            f"{row.variable} is not a whole number",
            saw=f"{row.variable}={text}, which torchrun refuses too",
            next=f"export {row.variable}=1",
        ) from None


def spelled(rows: Iterable[Option]) -> dict[str, Option]:
    """Every spelling of every row -> its row."""
    return {spelling: row for row in rows for spelling in row.spellings}


def called(row_of: Mapping[str, Option], name: str) -> Option | None:
    """The row of which `name` is a spelling, or of which alone it is the beginning."""
    if name in row_of or not name.startswith("--") or len(name) < 4:
        return row_of.get(name)
    meant = meant_by(row_of, name)
    return meant[0] if len(meant) == 1 else None


def meant_by(row_of: Mapping[str, Option], beginning: str) -> list[Option]:
    """The rows whose long spelling has this beginning; a hidden row has to be written in full."""
    rows = {row.name: row for spelling, row in row_of.items() if spelling.startswith(beginning) and not row.hidden}
    return list(rows.values())


def split_at_script(rows: Iterable[Option], argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Paceline's options, and the script with its arguments. The script is the first word that belongs to no option; `--` ends the options.

    Holds:   no word is lost, except a `--` in between
    """
    row_of, words = spelled(rows), list(argv)
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return words[:place], words[place + 1 :]
        if not word.startswith("-") or word == "-":
            return words[:place], words[place:]
        row = called(row_of, word)
        place += 2 if row is not None and not row.is_flag and "=" not in word else 1
    return words, []


def parted(rows: Iterable[Option], argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of these rows, each with its value, and the other words."""
    row_of = spelled(rows)
    ours: list[str] = []
    others: list[str] = []
    place = 0
    while place < len(argv):
        name, equals, _ = argv[place].partition("=")
        row = called(row_of, name)
        end = place + (1 if row is None or row.is_flag or equals else 2)
        (others if row is None else ours).extend(argv[place:end])
        place = end
    return ours, others


def refuse_other_forms(args: argparse.Namespace, verb: Verb, form: str, forms: Mapping[str, Collection[str]]) -> None:
    """Refuse an option of another form of a verb than that of this command line.

    `forms`: the words that ask for a form -> the options that only this form takes; "": the form without such words.

    Raises:  UsageError U03: such an option is given
    """
    of_form = {name: words for words, names in forms.items() if words != form for name in names}
    for row in verb.rows:
        words = of_form.get(row.name)
        if words is not None and getattr(args, row.dest) != row.unset:
            raise UsageError(
                "U03",
                f"--{row.name} is an option of {' '.join(filter(None, ('paceline', verb.name, words)))}",
                saw=f"this is {' '.join(filter(None, ('paceline', verb.name, form)))}",
                next=f"paceline {verb.name} {words} ..." if words else f"leave --{row.name} out",
            )


def find_directories(args: argparse.Namespace, verb: str) -> list[Path]:
    """The recording that RUN names, then the recordings of --dir. `verb`: the command's name for the error message.

    Raises:  UsageError U09: one of them is not a recording, or they belong to different runs
    """
    from paceline.recording.runs import at_path, find_run, first_try, is_submitted, newest_try, of_one_run

    root = Path(args.run_dir) if args.run_dir else None
    found = find_run(args.run, root, verb=verb)
    say_where(found, args.run, root)
    if is_submitted(found):
        from paceline.cli.progress import ProgressLine
        from paceline.recording.submitted import brought_up_to_date

        with ProgressLine(f"asking the engine about {found.name}", shown=not args.json):
            why_not = brought_up_to_date(found, os.environ)
        if why_not:
            print(f"not judged: what the engine would say of {found.name}: {why_not}", file=sys.stderr)
        found = newest_try(first_try(found))
    return of_one_run([found, *(at_path(Path(text)) for text in args.directories)])


def say_where(found: Path, text: str | None, root: Path | None = None) -> None:
    """Print the directory of a run that was found by its id in another directory. `root`: the folder of runs that was searched first."""
    from paceline.recording.runs import found_elsewhere

    if (directory := found_elsewhere(found, text, root)) is not None:
        print(f"{found.name} is a run of {directory}", file=sys.stderr)
