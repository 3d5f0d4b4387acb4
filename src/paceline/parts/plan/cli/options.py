"""The command line of `paceline plan`: the training, measurements, machines, length and limits."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from paceline.cli.parsing import VerbParser, parted, refuse_other_forms, split_at_script
from paceline.cli.picture_file import SVG
from paceline.option import EVERY_VERB, HELP, MODULE, Option, Verb, section

EVERY_TYPE = ("all",)


def type_names(text: str) -> tuple[str, ...]:
    """The machine types of --instance, as they were typed; EVERY_TYPE for `all`.

    Holds:  type_names("p4d.24xlarge, ml.g5.xlarge,") == ("p4d.24xlarge", "ml.g5.xlarge")
    """
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    return EVERY_TYPE if [name.lower() for name in names] == [*EVERY_TYPE] else names


INSTANCES = Option("instances", "Show machine types instead of a plan; what is behind it are their names.")
OF_INSTANCES = (
    Option("here", "This machine, as far as it can be read; on EC2 with the catalogue's figures of its type."),
    Option("accelerators", "Show the accelerators instead; ? marks a figure that no source confirms."),
)
OPTIONS = (
    *section(
        "the step",
        Option("trace", "A saved trace instead of a script.", "FILE"),
        Option("save-trace", "Keep the trace of this script for later plans.", "FILE"),
        Option(
            "model",
            "A function that makes the model, if the script itself cannot be traced.",
            "MODULE:FACTORY",
        ),
        Option(
            "trace-timeout",
            "How long the script may take to reach its first optimizer step.",
            "DURATION",
            default_text="10m",
        ),
        MODULE,
        Option("batch", "Samples of one microbatch on one device.", "N"),
        Option("accumulate", "Microbatches before each exchange.", "N", default_text="1"),
        Option("precision", "Matmul precision.", choices=("fp32", "tf32", "fp16", "bf16")),
        Option(
            "strategy", "A copy of the model on each device (ddp), or shards of it (fsdp).", choices=("ddp", "fsdp")
        ),
        Option("parameters", "Parameters of the model, such as 340M or 7B.", "N"),
        Option("gradient-mib", "Gradients that are exchanged, in MiB.", "MIB"),
        Option("bucket-mib", "DDP's bucket_cap_mb.", "MIB", default_text="25"),
        Option("gflops-per-sample", "10^9 operations of one sample, forward and backward.", "GFLOPS"),
        Option("activation-mib-per-sample", "Memory that grows with each sample of a microbatch.", "MIB"),
    ),
    *section(
        "what was measured",
        Option("measured-step-ms", "One measured step of this job.", "MS"),
        Option("measured-hosts", "How many hosts that step was measured on.", "N", default_text="1"),
        Option(
            "measured-devices",
            "How many devices, over all hosts, that step was measured on.",
            "N",
            default_text="1; whole hosts with --measured-step-ms-at",
        ),
        Option("measured-batch", "Samples of one device in that step.", "N", default_text="those of the plan"),
        Option(
            "measured-step-ms-at",
            "A step on this many whole hosts, or on HOSTSxDEVICES. May be repeated.",
            "HOSTS=MS",
            default=(),
            repeatable=True,
        ),
        Option("measured-device", "The accelerator it was measured on.", "NAME", default_text="that of the machines"),
        Option("measured-instance", "The instance type it was measured on.", "NAME"),
        Option("rehearsal", "What `paceline bench --rehearse` measured.", "FILE|latest"),
        Option(
            "from-run",
            "The steps of a recorded run. May be repeated, for runs of several sizes.",
            "RUN",
            default=(),
            repeatable=True,
        ),
        Option("curve", "Exchange times that were probed on the job's own hosts.", "FILE"),
    ),
    *section(
        "machines",
        Option("instance", "These instance types, or all.", "NAME,...|all", kind=type_names),
        Option("where", "Types that meet every condition, as in `paceline plan --instances --where`.", "CONDITION,..."),
        Option("file", "Machine types of your own, in TOML.", "FILE"),
        Option(
            "for",
            "What the machines must allow.",
            choices=("ddp-gpu", "ddp-cpu", "smddp", "sagemaker-training"),
            default_text="ddp-gpu",
        ),
        Option("host-counts", "Each of these numbers of hosts.", "N,...", default_text="1", stored_as="hosts"),
        # Until 0.3: on every other verb this option names hosts.
        Option("hosts", "The old name of --host-counts.", "N,...", stored_as="hosts_before", hidden=True),
        Option("devices-per-host", "Each of these numbers of devices.", "N,...", default_text="all that a type has"),
        Option("device", "Accelerator of machines that options describe.", "NAME"),
        Option("device-memory-gib", "Memory of one device.", "GIB"),
        Option(
            "intra",
            "Link between the devices of a host: nvlink1..5, nvswitch, nvlink-bridge, pcie3..5, none.",
            "LINK",
        ),
        Option("inter-gbps", "Network of one host, 10^9 bits a second.", "GBPS"),
        Option("inter-kind", "Kind of that network.", choices=("efa", "tcp", "infiniband", "roce")),
        Option("zones", "Availability zones of the hosts.", "N", default_text="1"),
        Option("usd-per-hour", "Price of one host, instead of the catalogue's.", "USD"),
        Option("spot", "Pay spot prices."),
        Option("sagemaker-prices", "Use SageMaker's prices if they are known."),
    ),
    *section("the machine types themselves", INSTANCES, *OF_INSTANCES),
    *section(
        "goal and limits",
        Option("epochs", "Passes over the data.", "N"),
        Option("steps", "Optimizer steps, whatever the number of devices.", "N"),
        Option("samples", "Samples of an epoch.", "N"),
        Option(
            "startup",
            "From the start of billing to the first step, data download included.",
            "DURATION",
            default_text="5m",
        ),
        Option("per-epoch", "Evaluation and checkpoint after each epoch.", "DURATION", default_text="0"),
        Option("max-run", "The job's time limit. The plan says how likely the job ends within it.", "DURATION"),
        Option("deadline", "Choose machines on which the job ends by then.", "DURATION"),
        Option("budget", "Choose machines on which the job costs at most this.", "USD"),
    ),
    *section(
        "the answer",
        Option("explain", "Show every formula with its numbers and sources."),
        Option("all", "Show every row, not only the best 20."),
        SVG,
        Option("against", "Compare the plan with a recorded run, term by term.", "RUN"),
        Option(
            "fail-on",
            "Exit with 1 on: P10 (no row meets the limits), memory, warning, or any. May be repeated.",
            "WHAT",
            default=(),
            repeatable=True,
        ),
    ),
)
"""Values stay text until the question is made."""

VERB = Verb(
    "plan",
    "Predict before a job starts what it needs, how fast it runs, when it ends and what it costs, on any machines, and which "
    "machines to take.",
    (
        (
            "paceline plan --where 'gpus>=4' --host-counts 1,2 --epochs 10 train.py",
            "fit, pace and price of each type, from the script alone",
        ),
        (
            "paceline plan --instance p4d.24xlarge --host-counts 1,2,4 --gradient-mib 1272 --measured-step-ms 310 --steps 50000",
            "more hosts, from one measured step",
        ),
    ),
    OPTIONS,
    operand="SCRIPT|MACHINE",
    script_place=1,
    usage="paceline plan [OPTIONS] [SCRIPT [ARGUMENTS ...]]\npaceline plan --instances [OPTIONS] [MACHINE ...]",
    section_texts={
        "the machine types themselves": "With `--instances`, `--where`, `--for` and `--file` choose what is shown; no other option "
        "is taken: `paceline plan --instances --help`. How the catalogue is made and what is doubtful in it: "
        "[instances.md](instances.md)."
    },
    page="""\
Options after the script belong to the script. [plan.md](plan.md) explains what the answer rests on. Exit codes: 0 answered, 1 only
with `--fail-on`, 2 usage.""",
    notes="""\
`--instances --json` prints `{"schema": "paceline.instances/1", "instances": [...], "not_judged": [...]}`: each instance with
every figure (null is unknown), `sources`, `accelerator_figures`, `spot`, and `support` by kind: `allowed` (null: not
judged), `reasons` (`text`, `forbids`, `numbers`), `nearest`.""",
)
_INSTANCES = Verb(
    "plan",
    "Show machine types: devices, links, network and price, each figure with its source, and which jobs they can and cannot run.",
    (
        ("paceline plan --instances p4d.24xlarge", "one type: every figure, and what jobs it is for"),
        ("paceline plan --instances --where 'gpus>=4,efa=yes' --for smddp", "those types, judged for one kind of job"),
    ),
    (
        Option(
            "names",
            "EC2 or ml. names, or names from --file. One name is shown whole, several as lines.",
            "MACHINE",
            default_text="all types",
            count="*",
            is_positional=True,
        ),
        INSTANCES,
        Option(
            "where",
            "Only types that meet all conditions, such as 'gpus>=8,efa=yes,gpu=a100,price<40' or 'smddp=yes'.",
            "CONDITION,...",
            default="",
        ),
        Option(
            "for",
            "Judge for one kind of job; smddp@2.3 names a version. Without a name, the types that allow it come first.",
            "sagemaker-training|smddp|ddp-gpu|ddp-cpu|multi-host|efa",
            stored_as="kind",
        ),
        Option("file", "Add the machines of a TOML file; alone, show only those.", "FILE"),
        *OF_INSTANCES,
    ),
    usage="paceline plan --instances [OPTIONS] [MACHINE ...]",
)


def form(argv: Sequence[str]) -> Verb:
    """The verb in the form that these words ask for: the catalogue, or a plan."""
    ours, _ = split_at_script(VERB.rows, argv)
    return _INSTANCES if f"--{INSTANCES.name}" in ours else VERB


def parse_plan(argv: Sequence[str]) -> argparse.Namespace:
    """The options, with `--instances` those of that form. Else `script` and `script_args` have the first word that belongs to no option,
    and the words after it; `own_argv` has the words before the script.

    Raises:  UsageError U01 or U03: an unknown option, or an invalid value
    """
    if form(argv) is _INSTANCES:
        return VerbParser(_INSTANCES).parse_args(argv)
    ours, script = split_at_script(VERB.rows, argv)
    args = VerbParser(VERB).parse_args(ours)
    refuse_other_forms(args, VERB, "", {f"--{INSTANCES.name}": [row.name for row in OF_INSTANCES]})
    if args.hosts_before:
        sys.stderr.write(
            "notice: --hosts names hosts on other verbs; from 0.3 on, counts are given with --host-counts only\n"
        )
        args.hosts = args.hosts or args.hosts_before
    args.own_argv = tuple(ours)
    args.script, args.script_args = (script[0], tuple(script[1:])) if script else (None, ())
    return args


def words_of_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are options of `paceline plan`, each with its value, and the other words. -m is other: many programs have it."""
    return parted((*(row for row in OPTIONS if row.name != MODULE.name), *EVERY_VERB, replace(HELP, letter="")), argv)
