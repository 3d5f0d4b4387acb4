"""The command line of `paceline plan`: what is trained, what was measured, on which machines, how far, within which limits."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cli.parsing import VerbParser, add_common, split_at_script
from paceline.errors import UsageError

EXAMPLES = (
    (
        "paceline plan --where 'gpus>=4' --hosts 1,2 --epochs 10 train.py",
        "fit, pace and price of each type, from the script alone",
    ),
    (
        "paceline plan --instance p4d.24xlarge --hosts 1,2,4 --gradient-mib 1272 --measured-step-ms 310 --steps 50000",
        "more hosts, from one measured step",
    ),
)


@dataclass(frozen=True, slots=True)
class PlanOption:
    """One option; `metavar` "" is a flag, `repeatable` collects a list. Values stay text until the question is built."""

    name: str
    metavar: str
    help: str
    repeatable: bool = False
    choices: tuple[str, ...] = ()


WORKLOAD = (
    PlanOption("trace", "FILE", "a saved trace instead of a script"),
    PlanOption("save-trace", "FILE", "keep the trace of this script for later plans"),
    PlanOption("model", "MODULE:FACTORY", "a function that makes the model, where the script itself cannot be traced"),
    PlanOption("trace-timeout", "DURATION", "give the script so long to reach its first optimizer step (10m)"),
    PlanOption("batch", "N", "samples of one microbatch on one device"),
    PlanOption("accumulate", "N", "microbatches before each exchange (1)"),
    PlanOption("precision", "NAME", "what products are computed in", choices=("fp32", "tf32", "fp16", "bf16")),
    PlanOption("strategy", "NAME", "a copy of the model on each device, or shards", choices=("ddp", "fsdp")),
    PlanOption("parameters", "N", "parameters of the model; 340M, 7B"),
    PlanOption("gradient-mib", "MIB", "gradients that are exchanged, in MiB"),
    PlanOption("bucket-mib", "MIB", "DDP's bucket_cap_mb (25)"),
    PlanOption("gflops-per-sample", "GFLOPS", "10^9 operations of one sample, forward and backward"),
    PlanOption("activation-mib-per-sample", "MIB", "memory that grows with each sample of a microbatch"),
)
MEASURED = (
    PlanOption("measured-step-ms", "MS", "one measured step of this job"),
    PlanOption("measured-hosts", "N", "on so many hosts (1)"),
    PlanOption(
        "measured-devices", "N", "on so many devices, over all hosts (1; whole hosts beside --measured-step-ms-at)"
    ),
    PlanOption("measured-batch", "N", "samples of one device in that step (those of the plan)"),
    PlanOption(
        "measured-step-ms-at",
        "HOSTS=MS",
        "a step on so many whole hosts, or on HOSTSxDEVICES; may be repeated",
        repeatable=True,
    ),
    PlanOption("measured-device", "NAME", "the accelerator it was measured on (that of the machines)"),
    PlanOption("measured-instance", "NAME", "the instance type it was measured on"),
    PlanOption("rehearsal", "FILE|latest", "what `paceline rehearse` measured"),
    PlanOption("from-run", "RUN", "the steps of a recorded run; repeated, of runs of several sizes", repeatable=True),
    PlanOption("curve", "FILE", "exchange times that were probed on the job's own hosts"),
)
MACHINES = (
    PlanOption("instance", "NAME,...", "these instance types, or all"),
    PlanOption("where", "CONDITION,...", "those that meet every condition, as `paceline instances --where`"),
    PlanOption("file", "FILE", "machine types of your own, in TOML"),
    PlanOption(
        "for",
        "KIND",
        "what the machines must allow (ddp-gpu)",
        choices=("ddp-gpu", "ddp-cpu", "smddp", "sagemaker-training"),
    ),
    PlanOption("hosts", "N,...", "each of these numbers of hosts (1)"),
    PlanOption("devices-per-host", "N,...", "each of these numbers of devices (all that a type has)"),
    PlanOption("device", "NAME", "machines by hand: their accelerator"),
    PlanOption("device-memory-gib", "GIB", "memory of one device"),
    PlanOption(
        "intra", "LINK", "what joins the devices of a host: nvlink1..5, nvswitch, nvlink-bridge, pcie3..5, none"
    ),
    PlanOption("inter-gbps", "GBPS", "network of one host, 10^9 bits a second"),
    PlanOption("inter-kind", "NAME", "what that network is", choices=("efa", "tcp", "infiniband", "roce")),
    PlanOption("zones", "N", "availability zones that the hosts stand in (1)"),
    PlanOption("usd-per-hour", "USD", "price of one host, instead of the catalogue's"),
    PlanOption("spot", "", "pay spot prices"),
    PlanOption("sagemaker-prices", "", "pay SageMaker's prices where they are known"),
)
GOAL = (
    PlanOption("epochs", "N", "passes over the data"),
    PlanOption("steps", "N", "optimizer steps, whatever the number of devices"),
    PlanOption("samples", "N", "samples of an epoch"),
    PlanOption("startup", "DURATION", "from the start of billing to the first step, data download included (5m)"),
    PlanOption("per-epoch", "DURATION", "evaluation and checkpoint after each epoch (0)"),
    PlanOption("max-run", "DURATION", "the job's time limit: how likely it ends within"),
    PlanOption("deadline", "DURATION", "choose what is done by then"),
    PlanOption("budget", "USD", "choose what costs no more"),
)
ANSWER = (
    PlanOption("explain", "", "every formula with its numbers and sources"),
    PlanOption("all", "", "every row, not only the best 20"),
    PlanOption("against", "RUN", "hold the plan against a recorded run, term by term"),
    PlanOption(
        "fail-on",
        "WHAT",
        "exit with 1 on: P10 (nothing keeps the limits), memory, warning, or any; may be repeated",
        repeatable=True,
    ),
)
GROUPS = {
    "the step": WORKLOAD,
    "measured": MEASURED,
    "machines": MACHINES,
    "how far, within which limits": GOAL,
    "the answer": ANSWER,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Every option, and -m; the script and its arguments are split off before."""
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for option in options:
            _add(group, option)
    parser.add_argument(
        "-m", "--module", action="store_true", help="the script is a module name, run as `python -m NAME`"
    )


def parse_plan(argv: Sequence[str], about: str) -> argparse.Namespace:
    """The options, and in `script` and `script_args` the first word that belongs to none of them and what follows it.

    `own_argv` keeps the words before the script.

    Raises:  UsageError U01 or U03: an option that is unknown or has a value that it cannot take
    """
    parser = VerbParser("plan", about, EXAMPLES)
    arguments(parser)
    add_common(parser)
    parser.usage = "paceline plan [OPTIONS] [SCRIPT [ARGUMENTS ...]]"
    ours, script = split_at_script(parser, list(argv))
    args = parser.parse_args(ours)
    _nothing_empty(args)
    args.own_argv = tuple(ours)
    args.script, args.script_args = (script[0], tuple(script[1:])) if script else (None, ())
    return args


def words_of_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of `paceline plan` among words, each with its value, and the other words."""
    takes_value = {f"--{one.name}": bool(one.metavar) for options in GROUPS.values() for one in options}
    takes_value |= {"--json": False, "--color": True, "--help": False}
    ours, others, rest = [], [], list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if name not in takes_value:
            others.append(word)
            continue
        ours.append(word)
        if takes_value[name] and not equals and rest:
            ours.append(rest.pop(0))
    return ours, others


def _nothing_empty(args: argparse.Namespace) -> None:
    """Refuse a value of no characters: a shell's unset variable would otherwise be read as if the option were not there."""
    for option in (one for options in GROUPS.values() for one in options if one.metavar):
        value = getattr(args, option.name.replace("-", "_"))
        if value == "" or (option.repeatable and "" in value):
            raise UsageError(
                "U03",
                f"--{option.name} has an empty value",
                saw=f"--{option.name} ''",
                next=f"--{option.name} {option.metavar}",
            )


def _add(group: argparse._ArgumentGroup, option: PlanOption) -> None:
    flag, dest = f"--{option.name}", option.name.replace("-", "_")
    if not option.metavar:
        group.add_argument(flag, dest=dest, action="store_true", help=option.help)
    elif option.repeatable:
        group.add_argument(flag, dest=dest, action="append", default=[], metavar=option.metavar, help=option.help)
    else:
        group.add_argument(flag, dest=dest, metavar=option.metavar, choices=option.choices or None, help=option.help)
