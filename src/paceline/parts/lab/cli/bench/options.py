"""The options of `paceline bench`: those of nccl-tests, paceline's own, and those of `paceline run`, which are passed on."""

import argparse
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from paceline.cli.job.keys import keys_in, refuse_former
from paceline.cli.job.option_tables import OURS, TORCHRUN
from paceline.cli.moved import with_network
from paceline.cli.parsing import VerbParser, called, spelled, split_at_script
from paceline.cli.picture_file import SVG
from paceline.errors import UsageError
from paceline.option import HELP, MODULE, Option, Verb, section
from paceline.parts.lab.cli.rehearse import verb as rehearse
from paceline.parts.lab.nccl_tests import FACTORS, OPERATIONS, TYPES
from paceline.spelling import nearest

STEP = "step"


def _theirs(letter: str, name: str, metavar: str, help: str, **default: Any) -> Option:
    """An option of nccl-tests, in its own spelling and with dashes."""
    return Option(name, help, metavar, letter=letter, has_underscores=True, **default)


COLLECTIVE = (
    *section(
        "a collective, as in nccl-tests",
        _theirs("b", "minbytes", "SIZE", "Smallest size: bytes, or 4K, 1.5M, 1G, binary.", default_text="8"),
        _theirs("e", "maxbytes", "SIZE", "Largest size.", default_text="128M; 4M with --pairs"),
        _theirs("f", "stepfactor", "N", "Factor from each size to the next.", default_text="2"),
        _theirs("i", "stepbytes", "SIZE", "Bytes from each size to the next, instead of a factor."),
        _theirs("n", "iters", "N", "Iterations of each size.", default="20"),
        _theirs("w", "warmup-iters", "N", "Warm-up iterations, which are not counted.", default="5"),
        _theirs("m", "agg-iters", "N", "Operations of one iteration.", default="1"),
        _theirs("N", "run-cycles", "N", "Number of cycles over all sizes.", default="1"),
        _theirs("d", "datatype", "|".join([*TYPES, "all"]), "Type of the elements.", default="float"),
        _theirs("o", "op", "|".join([*OPERATIONS, "all"]), "Reduction of the elements.", default="sum"),
        _theirs("r", "root", "RANK|all", "Root of a broadcast, or every rank in turn.", default="0"),
        _theirs("c", "check", "N", "How often the data are checked; 0 for never.", default="1"),
        _theirs(
            "a",
            "average",
            "0..3",
            "How the ranks' times are combined: 0 rank 0's, 1 mean, 2 minimum, 3 maximum.",
            default="1",
        ),
        _theirs("g", "ngpus", "N", "Ranks of each host, as --nproc-per-node."),
        _theirs("t", "nthreads", "N", "Threads per process; multiplies -g."),
    ),
    *section(
        "a collective, ours",
        Option("backend", "gloo, paceline, nccl, ...", "NAME", default_text="nccl on GPUs, else gloo"),
        Option(
            "device",
            "Device of the tensors.",
            choices=("cpu", "cuda"),
            default_text="as the backend prefers",
        ),
        Option("pairs", "Time a sendrecv between each two hosts, or ranks of one host, and name the slow pairs."),
        Option("size-time", "A size that takes longer gets fewer iterations.", "DURATION", default="10s"),
    ),
)
SCRIPT = section(
    "step: a script",
    Option("gradients", "Strategies to compare with plain.", "NAME,...", default_text="the exact ones and auto"),
    rehearse.STEPS,
    Option("rounds", "Tries of each strategy, in turn.", "N", default_text="2 if a round is short, else 1"),
    Option("allow-lossy", "auto may choose a strategy that is not exact."),
    MODULE,
)
REHEARSAL = section("--rehearse: a script at growing sizes", *rehearse.OWN)
RESULTS = section(
    "results",
    Option("output-file", "Write what --json prints to this file as well.", "FILE", letter="J", has_underscores=True),
    SVG,
    Option("baseline", "Compare with this result, which -J wrote.", "FILE"),
    Option(
        "fail-on",
        "Exit with 1 on: worse (than the baseline), wrong (data), slow (a pair), or any. May be repeated.",
        "WHAT",
        default=(),
        repeatable=True,
    ),
    Option(
        "timeout",
        "A collective that takes longer has failed. With a script: how long to wait for one step.",
        "DURATION",
        default_text="2m; 10m with a script",
        letter="T",
    ),
)

# Options of `paceline run` that the bench chooses itself.
_CHOSEN = frozenset(
    {
        "run-dir",
        "stop-grace",
        "no-python",
        "run-path",
        "max-restarts",
        "on-hang",
        "redirects",
        "tee",
        "log-dir",
        "module",
        "gradients",
    }
)
_CHOSEN_KEYS = ("progress", "allow_lossy")
_OURS = frozenset(row.name for row in (*COLLECTIVE, *SCRIPT, *REHEARSAL, *RESULTS))

VERB = Verb(
    "bench",
    "Time collectives as nccl-tests does, on any backend; find slow pairs of hosts; compare gradient strategies on a script; "
    "rehearse a script at small sizes.",
    (
        ("paceline bench all_reduce -b 1M -e 64M", "time and bandwidth of each size"),
        ("paceline bench step --local-hosts 2 train.py", "fastest exchange for a script"),
    ),
    (*COLLECTIVE, *SCRIPT, *REHEARSAL, *RESULTS),
    operand="|".join([*FACTORS, STEP, "SCRIPT"]),
    script_place=2,
    usage="paceline bench COLLECTIVE [OPTIONS]\n"
    "paceline bench --pairs [OPTIONS]\n"
    f"paceline bench step [OPTIONS] SCRIPT [ARGUMENTS ...]\n{rehearse.USAGE}",
    section_texts={
        "--rehearse: a script at growing sizes": "`--steps`, `--timeout`, `--svg` and `-m` are taken too, and numbers of hosts by "
        "`--local-hosts N,...` with `--nproc-per-node` ranks each. How a size is made and read is in "
        "[rehearse.md](rehearse.md). `--help` beside `--rehearse` has only these."
    },
    passed_on=tuple(row for row in (*TORCHRUN, *OURS) if row.name not in _CHOSEN | _OURS),
    epilog="Options of `paceline run`, such as --nproc-per-node, --local-hosts or --nnodes, are passed on to it. "
    "Without a number of ranks there are as many as GPUs, or 2.",
    page="""\
The collectives are `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `all_to_all` and `sendrecv`; columns,
options and definitions are those of nccl-tests. What is measured how, and how a result is compared with an earlier one:
[bench.md](bench.md). Exit codes: 0 answered, 1 only with `--fail-on`, 2 usage, 3 the ranks ended early or no figure
could be judged.

Options of [`paceline run`](#paceline-run) are passed on to it: `--nproc-per-node`, `--local-hosts`, `--nnodes`,
`--node-rank`, `--master-addr`, those of an emulated network, ... Without a number of ranks there are as many as GPUs,
or 2.""",
    notes="Names with an underscore are taken too (`--warmup_iters`).",
)


def parse_argv(argv: Sequence[str]) -> argparse.Namespace:
    """The thing to measure in `what`, paceline bench's own options, those of `paceline run` in `run_argv`; a script and its arguments.

    Raises:  UsageError U01 to U03: an unknown or invalid option; nothing to measure
    """
    step = _is_step(argv)
    form = _form(step)
    refuse_former(VERB.name, (*form.rows, *TORCHRUN, *OURS), argv, script_place=VERB.script_place)
    ours, passed, rest = _divided(form.rows, list(argv), step)
    for key in keys_in(passed):
        if key in _CHOSEN_KEYS:
            raise _chosen(f"--set {key}", argv)
    args = VerbParser(form).parse_args(ours)
    args.run_argv, args.what = tuple(passed), rest[0] if rest else None
    args.script, args.script_args = None, ()
    if args.what is None and getattr(args, "pairs", False):
        args.what = "sendrecv"
    if args.what is None:
        raise UsageError(
            "U03",
            "nothing was named to measure",
            saw=f"there are {', '.join([*FACTORS, STEP])}",
            next=VERB.examples[0][0],
        )
    if args.what == STEP:
        if not step:
            raise UsageError(
                "U03",
                "nccl-tests' options are those of a collective, not of step",
                saw=" ".join(argv),
                next="paceline bench step --help",
            )
        if len(rest) < 2:
            raise UsageError("U02", "no training script was given", next=f"paceline bench {shlex.join(argv)} train.py")
        args.script, args.script_args = rest[1], tuple(rest[2:])
    elif len(rest) > 1:
        raise UsageError(
            "U01",
            f"paceline bench does not know what to do with {rest[1]!r}",
            saw=f"one collective at a time, and {rest[0]} is the first",
            next=f"paceline bench {rest[0]}",
        )
    return args


def form(argv: Sequence[str]) -> Verb:
    """The verb in the form that these words ask for: a rehearsal, a script, or a collective."""
    ours, _ = split_at_script(rehearse.FORM.rows, argv)
    return rehearse.FORM if f"--{rehearse.REHEARSE.name}" in ours else _form(_is_step(argv))


def _form(step: bool) -> Verb:
    """The verb for a script or a collective: -m has another meaning in each."""
    if step:
        return replace(VERB, options=(*SCRIPT, *RESULTS))
    other = "What it does with a script of yours: paceline bench step --help, paceline bench --rehearse --help"
    rows = (*COLLECTIVE, *RESULTS)
    return replace(VERB, options=rows, epilog=f"{VERB.epilog} {other}")


def _is_step(argv: Sequence[str]) -> bool:
    """Whether the first word that belongs to no option is `step`."""
    for known in (True, False):
        _, _, rest = _divided(_form(known).rows, list(argv), known, strict=False)
        if (rest[:1] == [STEP]) == known:
            return known
    return False


def _divided(
    rows: Iterable[Option], argv: list[str], step: bool, *, strict: bool = True
) -> tuple[list[str], list[str], list[str]]:
    """The bench's own words, the words for `paceline run`, and the rest: the thing to measure; with `step`, the script and all after it.

    Holds:   no word is lost, except a `--` before the script
    """
    ours_by_spelling = spelled((*rows, HELP))
    theirs_by_spelling = {
        spelling: row for spelling, row in spelled((*TORCHRUN, *OURS)).items() if spelling.startswith("--")
    }
    own_rows, in_full = {row.name for row in (*rows, HELP)}, {row.name for row in OURS}
    every = theirs_by_spelling | ours_by_spelling
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
        row = called(every, name)
        own = row if row is not None and row.name in own_rows else None
        # Of the options of `paceline run`, only torchrun's may be abbreviated.
        their = row if own is None and row is not None and (name in every or row.name not in in_full) else None
        if strict and their is not None and their.name in _CHOSEN:
            raise _chosen(f"--{their.name}", argv)
        if strict and own is None and their is None and word.startswith("--"):
            raise _unknown(name, [*ours_by_spelling, *theirs_by_spelling], argv)
        row = own or their
        end = place + (2 if row is not None and not row.is_flag and "=" not in word else 1)
        (ours if their is None else passed).extend(argv[place:end])
        place = end
    return ours, passed, rest


def _chosen(option: str, argv: Sequence[str]) -> UsageError:
    return UsageError("U03", f"{option} is chosen by the bench itself", saw=" ".join(argv), next=f"leave {option} out")


def _unknown(name: str, options: Sequence[str], argv: Sequence[str]) -> UsageError:
    if instead := with_network(argv):
        next = shlex.join(["paceline", "bench", *instead])
        return UsageError("U01", f"unknown option {name}", saw="--network says it", next=next)
    alike = [option for option in options if ("_" in option) == ("_" in name)]
    near = nearest(name, alike) or nearest(name, options)
    if name == f"--{rehearse.REHEARSE.name}":
        saw, first = "what is rehearsed is a script, behind the options", rehearse.FORM.examples[0][0]
        return UsageError("U03", f"{name} stands before everything that is no option", saw=saw, next=first)
    if near is None:
        saw = "neither paceline bench nor paceline run has it"
        return UsageError("U01", f"unknown option {name}", saw=saw, next="paceline bench --help")
    words = [near + word[len(name) :] if word.partition("=")[0] == name else word for word in argv]
    return UsageError(
        "U01", f"unknown option {name}", saw=f"the nearest one is {near}", next=f"paceline bench {shlex.join(words)}"
    )


def known(option: str, text: str, names: Sequence[str], *, every: str | None = "all") -> tuple[str, ...]:
    """The one name that the text means, or all names.

    Raises:  UsageError U03: an unknown name; the error has the nearest known name
    """
    if text in names:
        return (text,)
    if text == every:
        return tuple(names)
    near = nearest(text, names)
    raise UsageError(
        "U03",
        f"{option} {text!r} is none that can be measured" if option else f"there is no collective {text!r}",
        saw=f"there are {', '.join(names)}",
        next=f"{option or 'paceline bench'} {near or names[0]}",
    )
