"""The command line of `paceline run`: torchrun's own grammar, option by option, and paceline's options beside it.

torchrun's parser is argparse with two actions that read `PET_<DEST>`; so is this one, without importing torch. Two
things differ on purpose:

* A word that argparse refuses becomes a UsageError in four parts instead of a usage dump and SystemExit.
* Unambiguous prefixes are taken for torchrun's options only (`--nnode 2`), exactly where torchrun takes them.
  paceline's own options are never abbreviated, so adding one can never change what a torchrun command line means.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from paceline.cli.job.option_tables import OURS, TORCHRUN, Option
from paceline.cli.parsing import Example, examples_text, nearest
from paceline.errors import UsageError

EXAMPLES: tuple[Example, ...] = (
    ("paceline run --nproc-per-node 2 train.py --lr 3e-4", "train on 2 ranks of this machine"),
    ("paceline run --nnodes 2 --node-rank 1 --master-addr algo-1 train.py", "the second of two hosts"),
)
_SCRIPT_HELP = "Program that every rank runs."
_ARGUMENTS_HELP = "Its arguments, passed on untouched."


class RunParser(argparse.ArgumentParser):
    """argparse that speaks in UsageErrors and abbreviates torchrun's options only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"prog": "paceline run", "exit_on_error": False, **options})

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        argv = list(sys.argv[1:] if args is None else args)
        try:
            parsed, unknown = self.parse_known_args(argv, namespace)
        except argparse.ArgumentError as refused:
            # From Python 3.13 on, what is missing arrives here as well, with no argument to name.
            if refused.argument_name is None:
                raise self._unfinished(argv, refused.message) from None
            raise self._refused_value(argv, refused) from None
        except _Incomplete as incomplete:
            raise self._unfinished(argv, str(incomplete)) from None
        if unknown:
            raise self._unknown_option(argv, unknown[0])
        return parsed

    def format_help(self) -> str:
        return examples_text(EXAMPLES) + "\n" + super().format_help()

    def error(self, message: str) -> NoReturn:
        raise _Incomplete(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # argparse's own list of what a prefix may stand for; the first element of each entry is the action.
        return [entry for entry in super()._get_option_tuples(option_string) if entry[0].dest in _ABBREVIATED]

    def _unfinished(self, argv: list[str], message: str) -> UsageError:
        for word in argv:
            if self._is_unknown(word):
                return self._unknown_option(argv, word)
        if message.startswith("ambiguous"):
            return UsageError(
                "U01", message, saw=shlex.join(argv), next="write the option in full: paceline run --help"
            )
        return UsageError(
            "U02",
            "no training script was given",
            saw=f"paceline run {shlex.join(argv)}".rstrip(),
            next=f"paceline run {shlex.join([*argv, 'train.py'])}",
        )

    def _is_unknown(self, word: str) -> bool:
        name = word.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", name) or name in self._option_string_actions:
            return False
        return name[:2] not in self._option_string_actions and not self._get_option_tuples(name)

    def _unknown_option(self, argv: list[str], word: str) -> UsageError:
        name, equals, value = word.partition("=")
        near = nearest(name, self._option_string_actions)
        if near:
            corrected = [near + equals + value if other == word else other for other in argv]
            return UsageError(
                "U01",
                f"unknown option {name}",
                saw=f"the nearest one is {near}",
                next=f"paceline run {shlex.join(corrected)}",
            )
        return UsageError(
            "U01",
            f"unknown option {name}",
            saw="neither torchrun nor paceline has it",
            next="put the script's own options after the script, or look here: paceline run --help",
        )

    def _refused_value(self, argv: list[str], refused: argparse.ArgumentError) -> UsageError:
        spellings = (refused.argument_name or "").split("/")
        name = next((spelling for spelling in spellings if spelling.startswith("--")), spellings[0])
        expected = next(
            (
                option.metavar or "|".join(option.choices or ())
                for option in (*TORCHRUN, *OURS)
                if name in option.spellings
            ),
            "",
        )
        return UsageError(
            "U03",
            f"{name}: {refused.message}",
            saw=shlex.join(argv),
            next=f"paceline run {name} {expected} ...".replace("  ", " "),
        )


class _Incomplete(Exception):
    """argparse's error() was called: something required is missing, or an abbreviation is ambiguous."""


_ABBREVIATED = frozenset({"help", *(option.dest for option in TORCHRUN)})


def add_options(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Every option of `paceline run` and its positionals, with `PET_*` defaults taken from `environ`.

    Raises:  UsageError U03: a PET_ variable of a flag that is not a whole number (torchrun reads it with int())
    """
    theirs = parser.add_argument_group("as in torchrun")
    for option in TORCHRUN:
        _add(theirs, option, _default(option, environ))
    ours = parser.add_argument_group("paceline's own")
    for option in OURS:
        _add(ours, option, option.default)
    parser.add_argument("training_script", type=str, help=_SCRIPT_HELP)
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help=_ARGUMENTS_HELP)


def parse_run(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments of `paceline run WORDS`; raises UsageError U01, U02 or U03 and never exits, except for --help."""
    parser = RunParser()
    add_options(parser, environ)
    return parser.parse_args(argv)


def _add(group: Any, option: Option, default: Any) -> None:
    if option.kind is None:
        group.add_argument(*option.spellings, dest=option.dest, action="store_true", default=default, help=option.help)
        return
    group.add_argument(
        *option.spellings,
        dest=option.dest,
        action="append" if option.repeatable else "store",
        type=option.kind,
        default=default,
        choices=option.choices,
        metavar=option.metavar,
        help=option.help,
    )


def _default(option: Option, environ: Mapping[str, str]) -> Any:
    text = environ.get(f"PET_{option.dest.upper()}") if option.variable else None
    if text is None:
        return _plain(option.default)
    if option.kind is not None:
        return text
    try:
        return bool(int(text))
    except ValueError:
        raise UsageError(
            "U03",
            f"PET_{option.dest.upper()} is not a whole number",
            saw=f"PET_{option.dest.upper()}={text}, which torchrun refuses too",
            next=f"export PET_{option.dest.upper()}=1",
        ) from None


def _plain(default: Any) -> Any:
    # argparse hands out a list for these, and a list in a frozen table could be changed by its reader.
    return list(default) if isinstance(default, tuple) else default


def torchrun_command(args: argparse.Namespace) -> str:
    """The torchrun command that asks for the same job: its options that differ from their defaults, then the script.

    Holds:  torchrun's parser reads it back to the values it was made from.
    """
    argv = ["torchrun"]
    for option in TORCHRUN:
        value = getattr(args, option.dest)
        if option.kind is None and value:
            argv.append(f"--{option.name}")
        elif option.kind is not None and value != _plain(option.default):
            argv.append(f"--{option.name}={_written(value)}")
    return shlex.join([*argv, args.training_script, *args.training_script_args])


def _written(value: Any) -> str:
    return ",".join(item.replace(",", ",,") for item in value) if isinstance(value, list) else str(value)
