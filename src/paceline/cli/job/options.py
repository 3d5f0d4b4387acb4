"""The command line of `paceline run`: torchrun's own grammar, option by option, and paceline's options in addition.

torchrun's parser is argparse with two actions that read `PET_<DEST>`. This parser is the same, without importing torch. Two
things differ on purpose:

* If argparse refuses a word, the result is a UsageError in four parts, not a usage dump and SystemExit.
* Unambiguous prefixes are accepted for torchrun's options only (`--nnode 2`), exactly where torchrun accepts them.
  paceline's own options must be written in full, so a new one never changes the meaning of an abbreviated torchrun option.
"""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from paceline.cli.job.keys import refuse_former, set_keys
from paceline.cli.job.option_tables import KEYS, OURS, TORCHRUN
from paceline.cli.parsing import NO_VALUE, VerbParser, example, spelled, split_at_script
from paceline.errors import UsageError
from paceline.option import Verb

VERB = Verb(
    "run",
    "Start a training job here: every option of torchrun, the SageMaker contract around the ranks, and a recording of what they do. "
    "What follows the script is the script's.",
    (
        ("paceline run --nproc-per-node 2 train.py --lr 3e-4", "train on 2 ranks of this machine"),
        ("paceline run --nnodes 2 --node-rank 1 --master-addr algo-1 train.py", "the second of two hosts"),
    ),
    (*TORCHRUN, *OURS),
    KEYS,
    script_place=1,
    usage="paceline run [OPTIONS] SCRIPT [ARGUMENTS ...]",
    epilog=f"The keys of --set, named as in a job file: {', '.join(row.name for row in KEYS)}. "
    "`paceline help keys` says what each is.",
    page="How a job runs, ends and fails is in [running.md](running.md). Every option is taken with underscores too.",
    section_texts={
        TORCHRUN[0].section: "Unambiguous beginnings are taken, as torchrun takes them (`--nnode 2`). "
        "A default is read from the variable beside it, as torchrun reads it.",
        OURS[
            0
        ].section: "Write these in full. Otherwise a new option could change the meaning of an abbreviated torchrun option.",
    },
)


class RunParser(VerbParser):
    """The grammar of torchrun. It accepts abbreviations for torchrun's options only, and passes on everything after the script."""

    def __init__(self, environ: Mapping[str, str], *, has_script: bool = True, **options: Any) -> None:
        super().__init__(VERB, environ, **{"allow_abbrev": True, **options})
        # Their parts may be absent, and others ask whether they were given.
        self.set_defaults(hosts=None, local_hosts=None)
        if has_script:
            self.add_argument("training_script")
            self.add_argument("training_script_args", nargs=argparse.REMAINDER)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        argv = list(sys.argv[1:] if args is None else args)
        try:
            parsed, unknown = self.parse_known_args(argv, namespace)
        except argparse.ArgumentError as refused:
            # From Python 3.13 on, a missing value arrives here as well, without the name of an argument.
            if refused.argument_name is None:
                raise self._unfinished(argv, refused.message) from None
            raise self.refused_value(argv, refused) from None
        except _Incomplete as incomplete:
            raise self._unfinished(argv, str(incomplete)) from None
        if unknown:
            raise self._unknown_option(argv, unknown[0])
        set_keys(parsed, self.verb)
        return parsed

    def error(self, message: str) -> NoReturn:
        raise _Incomplete(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # argparse's own list of the options that a prefix can mean; the first element of each entry is the action. Two spellings of one
        # option count once.
        entries = (entry for entry in super()._get_option_tuples(option_string) if entry[0].dest in _ABBREVIATED)
        return list({entry[0].dest: entry for entry in entries}.values())

    def _unfinished(self, argv: list[str], message: str) -> UsageError:
        for word in argv:
            if self.is_unknown(word):
                return self._unknown_option(argv, word)
        if message.startswith("ambiguous"):
            return UsageError(
                "U01", message, saw=shlex.join(argv), next="write the option in full: paceline run --help"
            )
        row = spelled(VERB.rows).get(argv[-2]) if len(argv) > 1 else None
        if row is not None and not row.is_flag and argv[-1].endswith((".py", ".sh")):
            return UsageError(
                "U03",
                f"{argv[-2]}: {NO_VALUE}: {argv[-1]!r} behind it looks like the script",
                next=f"{shlex.join([argv[-2], example(row), argv[-1]])} instead of {shlex.join(argv[-2:])}",
            )
        return UsageError(
            "U02",
            "no training script was given",
            saw=f"paceline run {shlex.join(argv)}".rstrip(),
            next=f"paceline run {shlex.join([*argv, 'train.py'])}",
        )

    def is_unknown(self, word: str) -> bool:
        """Whether the word looks like an option and is not one."""
        name = word.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", name) or name in self._option_string_actions:
            return False
        return name[:2] not in self._option_string_actions and not self._get_option_tuples(name)

    def _unknown_option(self, argv: list[str], word: str) -> UsageError:
        return self.unknown_option(
            argv,
            word,
            saw="neither torchrun nor paceline has it",
            next="put the script's own options after the script, or look here: paceline run --help",
        )


class _Incomplete(Exception):
    """argparse called error(): a required argument is missing, or an abbreviation is ambiguous."""


_ABBREVIATED = frozenset({"help", *(option.dest for option in TORCHRUN)})


def parse_run(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments of `paceline run WORDS`; raises UsageError U01, U02, U03 or U05 and never exits, except for --help."""
    refuse_former(VERB.name, VERB.rows, argv)
    ours, script = split_at_script(VERB.rows, argv)
    if not any(word.partition("=")[0] == "--job" for word in ours):
        return RunParser(environ).parse_args(argv)
    # A job file describes the whole job. torchrun's variables are only for command lines that leave something out.
    parser = RunParser({}, has_script=False)
    if script and not any(map(parser.is_unknown, ours)):
        raise UsageError(
            "U05",
            "--job names the job, and a script names another one",
            saw=shlex.join(argv),
            next=f"paceline run {shlex.join(ours)}",
        )
    return parser.parse_args(argv)


def torchrun_command(args: argparse.Namespace) -> str:
    """The torchrun command for the same job: the options that differ from their defaults, then the script.

    Holds:  torchrun's parser reads it back to the values it was made from.
    """
    argv = ["torchrun"]
    for option in TORCHRUN:
        value = getattr(args, option.dest)
        if option.is_flag and value:
            argv.append(f"--{option.name}")
        elif not option.is_flag and value != option.unset:
            argv.append(f"--{option.name}={_written(value)}")
    return shlex.join([*argv, args.training_script, *args.training_script_args])


def _written(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(item.replace(",", ",,") for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
