"""The options of `paceline run` as tables: torchrun's own, and ours beside them. `options.py` makes a command line of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
    Option("run-id", str, None, "Id of the recording (r- and six hex digits, new for each run).", metavar="ID"),
    Option("run-dir", str, None, "Directory below which recordings go (.paceline/runs).", metavar="DIR"),
    Option(
        "run-dir-mode",
        str,
        None,
        "Who may read the recording, as chmod has it, e.g. 0750 (0700).",
        metavar="MODE",
    ),
    Option("hosts", str, None, "Run on these hosts, reached by ssh; the code is shipped there.", metavar="HOST,..."),
    Option(
        "option",
        str,
        None,
        "An option of the ssh engine, with --hosts; may be repeated.",
        metavar="KEY=VALUE",
        repeatable=True,
    ),
    Option(
        "env",
        str,
        None,
        "A variable for every rank, with --hosts; may be repeated.",
        metavar="NAME[=VALUE]",
        repeatable=True,
    ),
    Option(
        "local-hosts",
        int,
        None,
        "Start N hosts on this machine, algo-1 ... algo-N, each with its own agent.",
        metavar="N",
    ),
    Option(
        "link-rate",
        str,
        None,
        "Rate of each local host's link, e.g. 1gbit. Needs root, as the next six.",
        metavar="RATE",
    ),
    Option("link-delay", str, None, "Time from one local host to another, e.g. 5ms.", metavar="DELAY"),
    Option("link-loss", str, None, "Share of frames lost between local hosts, e.g. 0.1%%.", metavar="PERCENT"),
    Option("zones", int, None, "Share the local hosts out over N zones, in order.", metavar="N"),
    Option("zone-delay", str, None, "Further delay between local hosts of different zones, e.g. 1ms.", metavar="DELAY"),
    Option("host-cpus", str, None, "CPUs of each local host, e.g. 0.5.", metavar="N"),
    Option("host-memory", str, None, "Memory of each local host, e.g. 2gib.", metavar="SIZE"),
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
        "On a confirmed hang: report and go on, stop (exit 202), or restart (--max-restarts).",
        choices=("report", "stop", "restart"),
    ),
    Option(
        "gradients",
        str,
        None,
        "How DDP exchanges gradients: auto, ring, hierarchical, direct, ... with +bf16, +int8 (the script's own way).",
        metavar="NAME",
    ),
    Option("allow-lossy", None, False, "Let --gradients auto choose a strategy that is not exact."),
    Option("stop-grace", str, "120", "Time between SIGTERM and SIGKILL at the limit or a stop.", metavar="DURATION"),
    Option(
        "tf-config",
        str,
        None,
        "Give the one process of each host TF_CONFIG, in the form of this strategy.",
        choices=("multi_worker_mirrored", "parameter_server"),
    ),
    Option("store-port", int, None, "Port of the ranks' store (a free one, new for each attempt).", metavar="PORT"),
    Option(
        "token-file",
        str,
        None,
        "File with the secret the agents share (PACELINE_TOKEN, else this user's own, made once).",
        metavar="FILE",
    ),
    Option("no-token", None, False, "Take hosts in without a token: whoever reaches the port can join and run code."),
    Option("hp", str, None, "A hyperparameter; may be repeated.", metavar="KEY=VALUE", repeatable=True),
    Option("hyperparameters", str, None, "JSON file of hyperparameters; --hp wins over it.", metavar="FILE"),
    Option("hp-profile", str, "v2", "How values are written: as SageMaker's SDK v2 or v3 does.", choices=("v2", "v3")),
    Option(
        "channel",
        str,
        None,
        "An input channel, a directory or a URL; may be repeated.",
        metavar="NAME=URL[:DISTRIBUTION]",
        repeatable=True,
    ),
    Option("output", str, None, "Send model.tar.gz and output.tar.gz below this URL.", metavar="URL"),
    Option("checkpoints", str, None, "Keep the checkpoints directory and this URL alike.", metavar="URL"),
    Option("checkpoints-delete", None, False, "Deletions in the checkpoints directory count there too."),
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
