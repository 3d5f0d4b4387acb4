"""The options of `paceline bench`: nccl-tests' own, ours beside them, and those of `paceline run`, which are passed on."""

import argparse
from collections.abc import Sequence

from paceline.cli.job.option_tables import OURS, TORCHRUN
from paceline.cli.parsing import VerbParser, add_common, nearest
from paceline.errors import UsageError
from paceline.planner.nccl_tests import FACTORS

STEP = "step"
ABOUT = "Time collectives as nccl-tests does, on any backend, find slow pairs of hosts, compare gradient strategies on a script."
EXAMPLES = (
    ("paceline bench all_reduce -b 1M -e 64M", "time and bandwidth of each size, as nccl-tests prints them"),
    ("paceline bench step --local-hosts 2 train.py", "which exchange of gradients is fastest for this script"),
)
USAGE = "paceline bench COLLECTIVE [OPTIONS]\n       paceline bench step [OPTIONS] SCRIPT [ARGUMENTS ...]"

# nccl-tests' options whose default is what happens here anyway; any other value is refused. Letter -> (long name, what it is about).
ONLY_THEIRS = {
    "p": ("parallel_init", "threads that open NCCL communicators"),
    "z": ("blocking", "waiting between operations"),
    "y": ("stream_null", "CUDA's null stream"),
    "G": ("cudagraph", "CUDA graphs"),
    "C": ("report_cputime", "the host's time"),
    "R": ("local_register", "NCCL's buffer registration"),
    "D": ("device_implementation", "NCCL's device API"),
    "M": ("memory", "GPU memory of NCCL"),
    "u": ("unalign", "buffers out of alignment"),
    "S": ("report_timestamps", "a column of stamps"),
    "I": ("per_iter_timing", "columns of single iterations, which --json has always"),
    "K": ("per_iter_skip", "leaving the first of these out"),
}
# Of `paceline run`, and chosen by the bench itself.
_CHOSEN = frozenset(
    {
        "run-dir",
        "progress",
        "stop-grace",
        "no-python",
        "run-path",
        "max-restarts",
        "on-hang",
        "redirects",
        "tee",
        "log-dir",
    }
)


def add_collective(parser: argparse.ArgumentParser) -> None:
    """nccl-tests' options, in its own spelling and with dashes, and ours for a collective."""
    theirs = parser.add_argument_group("as in nccl-tests")

    def add(letter: str, name: str, metavar: str, about: str, default: str | None = None) -> None:
        spellings = [f"-{letter}", f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else [])]
        theirs.add_argument(*spellings, metavar=metavar, help=about, default=default, dest=name)

    add("b", "minbytes", "SIZE", "smallest size: bytes, or 4K, 1.5M, 1G, binary (8; 8 and 4M with --pairs)")
    add("e", "maxbytes", "SIZE", "largest size (128M)")
    add("f", "stepfactor", "N", "each size so many times the one before (2)")
    add("i", "stepbytes", "SIZE", "each size so many bytes more instead")
    add("n", "iters", "N", "iterations of each size (20)", "20")
    add("w", "warmup_iters", "N", "iterations before, which are not counted (5)", "5")
    add("m", "agg_iters", "N", "operations of one iteration (1)", "1")
    add("N", "run_cycles", "N", "measure all sizes so often (1)", "1")
    add("d", "datatype", "TYPE", "int8, uint8, int32, int64, half, float, double, bfloat16, or all (float)", "float")
    add("o", "op", "OP", "sum, prod, max, min, avg, or all (sum)", "sum")
    add("r", "root", "RANK", "root of a broadcast, or all (0)", "0")
    add("c", "check", "N", "check the data so many times; 0 for never (1)", "1")
    add("a", "average", "0..3", "ranks' times as one: 0 rank 0's, 1 mean, 2 least, 3 most (1)", "1")
    add("g", "ngpus", "N", "ranks of each host, as --nproc-per-node")
    add("t", "nthreads", "N", "times so many, as -g counts for each thread there")
    for letter, (name, _) in ONLY_THEIRS.items():
        theirs.add_argument(f"-{letter}", f"--{name}", dest=f"theirs_{letter}", default="0", help=argparse.SUPPRESS)
    ours = parser.add_argument_group("a collective")
    ours.add_argument("--backend", metavar="NAME", help="gloo, paceline, nccl, ... (nccl on GPUs, else gloo)")
    ours.add_argument("--device", choices=("cpu", "cuda"), help="where the tensors are (as the backend prefers)")
    ours.add_argument("--pairs", action="store_true", help="a sendrecv between each two hosts, and which are slow")
    ours.add_argument(
        "--size-time", metavar="DURATION", default="10s", help="fewer iterations where a size takes longer (10s)"
    )


def add_step(parser: argparse.ArgumentParser, *, letter: bool = False) -> None:
    """Options of `paceline bench step`. `letter`: -m is --module, which beside nccl-tests' options it cannot be."""
    group = parser.add_argument_group("step")
    group.add_argument("--gradients", metavar="NAME,...", help="strategies (plain, the exact ones and auto)")
    group.add_argument("--steps", metavar="N", default="30", help="steps of each try after its warm-up of 5 (30)")
    group.add_argument("--rounds", metavar="N", help="try each so often, in turn (2 where a round is short, else 1)")
    group.add_argument("--allow-lossy", action="store_true", help="auto may choose a strategy that is not exact")
    spellings = ("-m", "--module") if letter else ("--module",)
    group.add_argument(*spellings, action="store_true", help="the script is a module name, run as `python -m NAME`")


def add_results(parser: argparse.ArgumentParser) -> None:
    """What is done with a result, and how long anything may take."""
    group = parser.add_argument_group("results")
    spellings = ("-J", "--output_file", "--output-file")
    group.add_argument(*spellings, metavar="FILE", dest="output_file", help="write what --json prints here as well")
    group.add_argument("--baseline", metavar="FILE", help="compare with this result (the ones that are kept)")
    group.add_argument("--save-baseline", action="store_true", help="from now on compare with this result alone")
    group.add_argument("--no-baseline", action="store_true", help="neither compare nor keep")
    group.add_argument(
        "--fail-on",
        metavar="WHAT",
        action="append",
        default=[],
        help="exit with 1 on: worse (than the baseline), wrong (data), slow (a pair), or any; may be repeated",
    )
    group.add_argument(
        "-T",
        "--timeout",
        metavar="DURATION",
        help="a collective that takes longer has failed (2m); step: wait so long for one (10m)",
    )


def parse_argv(argv: Sequence[str]) -> argparse.Namespace:
    """What is measured in `what`, options of ours, those of `paceline run` in `run_argv`; a script and its arguments.

    Raises:  UsageError U01 to U03: an option that is unknown or cannot be; X01: nothing to measure
    """
    step = _is_step(argv)
    parser = _parser(step)
    ours, passed, rest = _divided(parser, list(argv), step)
    args = parser.parse_args(ours)
    args.run_argv, args.what = tuple(passed), rest[0] if rest else None
    args.script, args.script_args = None, ()
    if args.what is None and getattr(args, "pairs", False):
        args.what = "sendrecv"
    if args.what is None:
        raise UsageError(
            "X01", "nothing was named to measure", saw=f"there are {', '.join([*FACTORS, STEP])}", next=EXAMPLES[0][0]
        )
    if args.what == STEP:
        if not step:
            raise UsageError(
                "X01",
                "nccl-tests' options are those of a collective, not of step",
                saw=" ".join(argv),
                next="paceline bench step --help",
            )
        if len(rest) < 2:
            raise UsageError(
                "U02", "no training script was given", saw="paceline bench step", next="paceline bench step train.py"
            )
        args.script, args.script_args = rest[1], tuple(rest[2:])
    elif len(rest) > 1:
        raise UsageError(
            "U01",
            f"paceline bench does not know what to do with {rest[1]!r}",
            saw=f"one collective at a time, and {rest[0]} is the first",
            next=f"paceline bench {rest[0]}",
        )
    return args


def _parser(step: bool) -> VerbParser:
    parser = VerbParser("bench", ABOUT, EXAMPLES)
    if step:
        add_step(parser, letter=True)
    else:
        add_collective(parser)
    add_results(parser)
    add_common(parser)
    parser.usage = USAGE
    other = "" if step else " What it compares on a script of yours: paceline bench step --help"
    parser.epilog = (
        f"Options of `paceline run`, such as --nproc-per-node, --local-hosts or --nnodes, are passed on to it.{other}"
    )
    return parser


def _is_step(argv: Sequence[str]) -> bool:
    """Whether the first word that belongs to no option is `step`."""
    for known in (True, False):
        parser = _parser(known)
        _, _, rest = _divided(parser, list(argv), known, strict=False)
        if (rest[:1] == [STEP]) == known:
            return known
    return False


def _divided(
    parser: VerbParser, argv: list[str], step: bool, *, strict: bool = True
) -> tuple[list[str], list[str], list[str]]:
    """Our words, those for `paceline run`, and what is left: the thing to measure, and with `step` everything from the script on.

    Holds:   no word is lost, except a `--` before the script
    """
    theirs = {
        spelling: option for option in (*TORCHRUN, *OURS) for spelling in option.spellings if spelling[:2] == "--"
    }
    ours: list[str] = []
    passed: list[str] = []
    rest: list[str] = []
    place = 0
    while place < len(argv):
        word = argv[place]
        if word == "--" and not (step and rest):
            return ours, passed, rest + argv[place + 1 :]
        if word == "--" or not word.startswith("-") or word == "-":
            if step and rest:
                return ours, passed, rest + argv[place + (word == "--") :]
            rest.append(word)
            place += 1
            continue
        name = word.partition("=")[0]
        action = parser._option_string_actions.get(word)
        option = None if name in parser._option_string_actions else theirs.get(name)
        if (
            strict
            and option is not None
            and (option.name in _CHOSEN or option.name in ("module", "gradients", "allow-lossy"))
        ):
            raise UsageError(
                "U03", f"--{option.name} is chosen by the bench itself", saw=" ".join(argv), next="leave it out"
            )
        if strict and option is None and word.startswith("--") and name not in parser._option_string_actions:
            raise _unknown(name, [*parser._option_string_actions, *theirs])
        if option is not None:
            end = place + (2 if option.kind is not None and "=" not in word else 1)
            passed += argv[place:end]
        else:
            end = place + (2 if action is not None and action.nargs is None else 1)
            ours += argv[place:end]
        place = end
    return ours, passed, rest


def _unknown(name: str, options: Sequence[str]) -> UsageError:
    near = nearest(name, options)
    saw = f"the nearest one is {near}" if near else "neither paceline bench nor paceline run has it"
    return UsageError("U01", f"unknown option {name}", saw=saw, next=near or "paceline bench --help")


def known(option: str, text: str, names: Sequence[str], *, every: str | None = "all") -> tuple[str, ...]:
    """The one name that is meant, or all of them.

    Raises:  UsageError X01: it is none of them, with the nearest
    """
    if text in names:
        return (text,)
    if text == every:
        return tuple(names)
    near = nearest(text, names)
    raise UsageError(
        "X01",
        f"{option} {text!r} is none that can be measured" if option else f"there is no collective {text!r}",
        saw=f"there are {', '.join(names)}",
        next=f"{option or 'paceline bench'} {near or names[0]}",
    )
