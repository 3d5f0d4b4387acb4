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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from paceline.cli.parsing import Example, examples_text, nearest
from paceline.errors import UsageError


def comma_separated(text: str) -> list[str]:
    """Items between commas; a doubled comma stands for one comma inside an item, as in torchrun's duplicate filters."""
    return [item.replace("\0", ",") for item in text.replace(",,", "\0").split(",")]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `kind` None: a flag. `variable` False: torchrun reads no `PET_<DEST>` for it."""

    name: str
    kind: Callable[[str], Any] | None
    default: Any
    help: str
    letter: str | None = None
    choices: tuple[str, ...] | None = None
    metavar: str | None = None
    variable: bool = True
    repeatable: bool = False

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        long = (f"--{self.name}",) if "-" not in self.name else (f"--{self.name}", f"--{self.dest}")
        return (f"-{self.letter}", *long) if self.letter else long


TORCHRUN = (
    Option(
        "nnodes", str, "1:1", "Hosts of the job: N, or MIN:MAX for a job that may shrink and grow.", metavar="N|MIN:MAX"
    ),
    Option("nproc-per-node", str, "1", "Ranks on each host: a number, or gpu, cpu, auto.", metavar="N|gpu|cpu|auto"),
    Option(
        "rdzv-backend",
        str,
        "static",
        "How hosts find each other: static (by --node-rank) or c10d (by arrival).",
        metavar="NAME",
    ),
    Option("rdzv-endpoint", str, "", "Where hosts meet, HOST:PORT.", metavar="HOST:PORT"),
    Option("rdzv-id", str, "none", "Name that all hosts of this job share.", metavar="ID"),
    Option(
        "rdzv-conf",
        str,
        "",
        "Waiting times of the meeting, e.g. join_timeout=600,last_call_timeout=30.",
        metavar="KEY=VALUE,...",
    ),
    Option("standalone", None, False, "One host, on a port that is free; the three --rdzv options are then ignored."),
    Option("max-restarts", int, 0, "How often a failed job is started again, all ranks together.", metavar="N"),
    Option(
        "monitor-interval",
        float,
        0.1,
        "Taken and without effect: the end of a rank is seen at once.",
        metavar="SECONDS",
    ),
    Option(
        "start-method",
        str,
        "spawn",
        "Taken and without effect: every rank is a fresh process here.",
        choices=("spawn", "fork", "forkserver"),
    ),
    Option("event-log-handler", str, "null", "null or console; any other one is a torch plug-in.", metavar="NAME"),
    Option("role", str, "default", "Role name that the ranks see as ROLE_NAME.", metavar="NAME"),
    Option("module", None, False, "The script is a module name, run as `python -m NAME`.", letter="m"),
    Option("no-python", None, False, "The script is a program of its own, run without python in front."),
    Option("run-path", None, False, "Run the script by runpy.run_path; wins over --no-python."),
    Option("log-dir", str, None, "Directory for the files that --redirects and --tee ask for.", metavar="DIR"),
    Option(
        "redirects",
        str,
        "0",
        "Streams kept off the terminal: 1 stdout, 2 stderr, 3 both; or RANK:STREAMS,...",
        letter="r",
        metavar="SPEC",
    ),
    Option("tee", str, "0", "Streams shown and filed; written as --redirects.", letter="t", metavar="SPEC"),
    Option(
        "local-ranks-filter",
        str,
        "",
        "Show only these local ranks on the terminal; files stay complete.",
        metavar="RANK,...",
    ),
    Option(
        "duplicate-stdout-filters",
        comma_separated,
        (),
        "Copy stdout lines that hold one of these texts to a file.",
        metavar="TEXT,...",
    ),
    Option(
        "duplicate-stderr-filters",
        comma_separated,
        (),
        "Copy stderr lines that hold one of these texts to a file.",
        metavar="TEXT,...",
    ),
    Option("node-rank", int, 0, "Number of this host, from 0; the static way of meeting.", metavar="N"),
    Option("master-addr", str, "127.0.0.1", "Name or address of host 0.", metavar="ADDRESS"),
    Option("master-port", int, None, "Port on host 0 (29500 where several hosts meet).", metavar="PORT"),
    Option("local-addr", str, None, "Address of this host that the others can reach.", metavar="ADDRESS"),
    Option(
        "logs-specs",
        str,
        None,
        "A torch plug-in; refused with the torchrun command that takes it.",
        metavar="NAME",
        variable=False,
    ),
    Option(
        "numa-binding",
        str,
        None,
        "Bind each rank to the CPUs near its GPU.",
        choices=("node", "socket", "exclusive", "core-complex"),
        variable=False,
    ),
    Option(
        "signals-to-handle",
        str,
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "Signals that stop the job in order.",
        metavar="SIGNAL,...",
    ),
    Option(
        "shutdown-timeout", int, None, "Seconds between SIGTERM and SIGKILL when a rank failed (30).", metavar="SECONDS"
    ),
    Option("virtual-local-rank", None, False, "LOCAL_RANK is 0 in every rank, each sees its own GPU as device 0."),
)
"""torchrun 2.13's options in its own order; a test holds them against `torch.distributed.run.get_args_parser()`."""

OURS = (
    Option("name", str, None, "Name of the run (the script's own name).", metavar="TEXT"),
    Option("run-dir", str, None, "Directory below which recordings go (.paceline/runs).", metavar="DIR"),
    Option(
        "local-hosts",
        int,
        None,
        "Start N hosts on this machine, algo-1 ... algo-N, each with its own agent.",
        metavar="N",
    ),
    Option(
        "max-run", str, None, "Time limit: seconds, or 12h, 90m, 30s. Then SIGTERM, grace, SIGKILL.", metavar="DURATION"
    ),
    Option(
        "total-steps",
        int,
        None,
        "Optimizer steps of the whole job, to tell early whether --max-run will do.",
        metavar="N",
    ),
    Option(
        "on-hang",
        str,
        "report",
        "On a confirmed stall: report and go on, stop (exit 202), or restart (--max-restarts).",
        choices=("report", "stop", "restart"),
    ),
    Option("stop-grace", str, "120", "Time between SIGTERM and SIGKILL at the limit or a stop.", metavar="DURATION"),
    Option("store-port", int, None, "Port of the ranks' store (a free one, new for each attempt).", metavar="PORT"),
    Option("token-file", str, None, "File with the secret the agents share (or PACELINE_TOKEN).", metavar="FILE"),
    Option("hp", str, None, "A hyperparameter; may be repeated.", metavar="KEY=VALUE", repeatable=True),
    Option("hyperparameters", str, None, "JSON file of hyperparameters; --hp wins over it.", metavar="FILE"),
    Option("hp-profile", str, "v2", "How values are written: as SageMaker's SDK v2 or v3 does.", choices=("v2", "v3")),
    Option(
        "channel", str, None, "An input channel; may be repeated.", metavar="NAME=DIR[:DISTRIBUTION]", repeatable=True
    ),
    Option(
        "source-dir",
        str,
        None,
        "Code directory: the script lies in it, its requirements.txt is installed.",
        metavar="DIR",
    ),
    Option("base-dir", str, None, "Put the /opt/ml tree here (SAGEMAKER_BASE_DIR).", metavar="DIR"),
    Option("opt-ml", None, False, "Use the real /opt/ml."),
    Option("install-requirements", None, False, "Install requirements.txt beside the script, once per host."),
    Option(
        "progress",
        str,
        "auto",
        "Status line: repainted on a terminal, one line per 30 s elsewhere.",
        choices=("auto", "plain", "off"),
    ),
    Option("json", None, False, "Print paceline's own answer as JSON."),
    Option("color", str, "auto", "Colour of paceline's own lines.", choices=("auto", "always", "never")),
)
"""paceline's own options: long ones only, so that a letter torchrun adds one day cannot clash."""

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
        words = list(sys.argv[1:] if args is None else args)
        try:
            parsed, unknown = self.parse_known_args(words, namespace)
        except argparse.ArgumentError as refused:
            # From Python 3.13 on, what is missing arrives here as well, with no argument to name.
            if refused.argument_name is None:
                raise self._unfinished(words, refused.message) from None
            raise self._refused_value(words, refused) from None
        except _Incomplete as incomplete:
            raise self._unfinished(words, str(incomplete)) from None
        if unknown:
            raise self._unknown_option(words, unknown[0])
        return parsed

    def format_help(self) -> str:
        return examples_text(EXAMPLES) + "\n" + super().format_help()

    def error(self, message: str) -> NoReturn:
        raise _Incomplete(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        # argparse's own list of what a prefix may stand for; the first element of each entry is the action.
        return [entry for entry in super()._get_option_tuples(option_string) if entry[0].dest in _ABBREVIATED]

    def _unfinished(self, words: list[str], message: str) -> UsageError:
        for word in words:
            if self._is_unknown(word):
                return self._unknown_option(words, word)
        if message.startswith("ambiguous"):
            return UsageError(
                "U01", message, saw=shlex.join(words), next="write the option in full: paceline run --help"
            )
        return UsageError(
            "U02",
            "no training script was given",
            saw=f"paceline run {shlex.join(words)}".rstrip(),
            next=f"paceline run {shlex.join([*words, 'train.py'])}",
        )

    def _is_unknown(self, word: str) -> bool:
        name = word.partition("=")[0]
        if not re.match(r"--?[A-Za-z]", name) or name in self._option_string_actions:
            return False
        return name[:2] not in self._option_string_actions and not self._get_option_tuples(name)

    def _unknown_option(self, words: list[str], word: str) -> UsageError:
        name, equals, value = word.partition("=")
        near = nearest(name, self._option_string_actions)
        if near:
            corrected = [near + equals + value if other == word else other for other in words]
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

    def _refused_value(self, words: list[str], refused: argparse.ArgumentError) -> UsageError:
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
            saw=shlex.join(words),
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


def parse_run(words: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments of `paceline run WORDS`; raises UsageError U01, U02 or U03 and never exits, except for --help."""
    parser = RunParser()
    add_options(parser, environ)
    return parser.parse_args(words)


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
    words = ["torchrun"]
    for option in TORCHRUN:
        value = getattr(args, option.dest)
        if option.kind is None and value:
            words.append(f"--{option.name}")
        elif option.kind is not None and value != _plain(option.default):
            words.append(f"--{option.name}={_written(value)}")
    return shlex.join([*words, args.training_script, *args.training_script_args])


def _written(value: Any) -> str:
    return ",".join(item.replace(",", ",,") for item in value) if isinstance(value, list) else str(value)
