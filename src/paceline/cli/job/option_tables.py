"""The options of `paceline run` as rows: torchrun's options, paceline's own, those of its parts, and the keys of --set."""

import os
from dataclasses import replace
from functools import partial
from typing import Any

from paceline.cli.values import duration_seconds
from paceline.errors import UsageError
from paceline.option import Option, section, switch
from paceline.part import with_options_of_parts


def comma_separated(text: str) -> list[str]:
    """Items between commas. A doubled comma means one comma inside an item, as in torchrun's duplicate filters."""
    return [item.replace("\0", ",") for item in text.replace(",,", "\0").split(",")]


class CompletionAsked(UsageError):
    """--print-completion was read, which ends the parsing, as --help does. Where nothing is printed it is a refusal."""

    def __init__(self, shell: str) -> None:
        super().__init__(
            "U05",
            f"--print-completion {shell} prints a script, and starts nothing",
            next=f"paceline help --completion {shell}",
        )
        self.shell = shell


def _asked_completion(shell: str) -> str:
    if shell == "tcsh":
        raise UsageError(
            "U03", f"paceline has no completion script for {shell}", next="paceline help --completion bash"
        )
    if shell in ("bash", "zsh"):
        raise CompletionAsked(shell)
    return shell


def _theirs(name: str, help: str, metavar: str = "", **more: Any) -> Option:
    """An option of torchrun. It reads PET_<NAME> as torchrun does, unless `variable` says otherwise."""
    variable = f"PET_{name.replace('-', '_').upper()}"
    return Option(name, help, metavar, **{"has_underscores": True, "variable": variable, **more})


def _key(name: str, help: str, metavar: str = "", **more: Any) -> Option:
    # A shell expands ~ at the beginning of a word only.
    kind = os.path.expanduser if metavar in ("FILE", "DIR") else str
    return Option(name, help, metavar, is_key=True, **{"kind": kind, **more})


TORCHRUN = section(
    "as in torchrun",
    _theirs(
        "nnodes", "Hosts of the job: N, or MIN:MAX for a job that may shrink and grow.", "N|MIN:MAX", default="1:1"
    ),
    _theirs("nproc-per-node", "Ranks on each host: a number, or gpu, cpu, auto.", "N|gpu|cpu|auto", default="1"),
    _theirs(
        "rdzv-backend",
        "How hosts find each other: static (by --node-rank) or c10d (by arrival).",
        "static|c10d",
        default="static",
    ),
    _theirs("rdzv-endpoint", "Where hosts meet.", "HOST:PORT", default=""),
    _theirs("rdzv-id", "Name that all hosts of this job share.", "ID", default="none"),
    _theirs(
        "rdzv-conf",
        "Rendezvous timeouts, such as join_timeout=600,last_call_timeout=30.",
        "KEY=VALUE,...",
        default="",
    ),
    _theirs("standalone", "One host, on a port that is free; the three --rdzv options are then ignored."),
    _theirs(
        "max-restarts",
        "How often a failed job is started again, all ranks together.",
        "N",
        default=0,
        kind=int,
    ),
    _theirs(
        "monitor-interval",
        "Accepted for torchrun, ignored: paceline sees the end of a rank at once.",
        "DURATION",
        default=0.1,
        kind=partial(duration_seconds, "--monitor-interval", example="0.1s"),
    ),
    _theirs(
        "start-method",
        "Accepted for torchrun, ignored: every rank is a new process here.",
        choices=("spawn", "fork", "forkserver"),
        default="spawn",
    ),
    _theirs("event-log-handler", "null or console; any other name is a torch plug-in.", "NAME", default="null"),
    _theirs("role", "Role name that the ranks see as ROLE_NAME.", "NAME", default="default"),
    _theirs("module", "The script is a module name, run as `python -m NAME`.", letter="m"),
    _theirs("no-python", "The script is a program of its own, run without python in front."),
    _theirs("run-path", "Run the script by runpy.run_path; wins over --no-python."),
    _theirs("log-dir", "Directory for the files that --redirects and --tee ask for.", "DIR"),
    _theirs(
        "redirects",
        "Streams that go to files and not to the terminal: 1 stdout, 2 stderr, 3 both; or RANK:STREAMS,...",
        "SPEC",
        default="0",
        letter="r",
    ),
    _theirs(
        "tee",
        "Streams that go to files and to the terminal; written as --redirects.",
        "SPEC",
        default="0",
        letter="t",
    ),
    _theirs(
        "log-line-prefix-template",
        "What stands before each line that --tee shows. ${role_name}, ${local_rank}, ${rank} and ${hostname} are replaced.",
        "TEXT",
        default="",
        more="Without it the variable TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE counts.",
    ),
    _theirs(
        "local-ranks-filter",
        "Show only these local ranks on the terminal; files stay complete.",
        "RANK,...",
        default="",
    ),
    _theirs(
        "duplicate-stdout-filters",
        "Copy stdout lines that hold one of these texts to a file.",
        "TEXT,...",
        default=(),
        kind=comma_separated,
    ),
    _theirs(
        "duplicate-stderr-filters",
        "Copy stderr lines that hold one of these texts to a file.",
        "TEXT,...",
        default=(),
        kind=comma_separated,
    ),
    _theirs("node-rank", "Number of this host, from 0, for the static rendezvous.", "N", default=0, kind=int),
    _theirs("master-addr", "Name or address of host 0.", "ADDRESS", default="127.0.0.1"),
    _theirs("master-port", "Port on host 0.", "PORT", default_text="29500 where several hosts meet", kind=int),
    _theirs("local-addr", "Address of this host that the others can reach.", "ADDRESS"),
    _theirs(
        "logs-specs",
        "default; any other name is a torch plug-in, refused with the torchrun command that takes it.",
        "NAME",
        variable="",
    ),
    _theirs(
        "numa-binding",
        "Bind each rank to the CPUs near its GPU.",
        choices=("node", "socket", "exclusive", "core-complex"),
        variable="",
    ),
    _theirs(
        "signals-to-handle",
        "Signals that stop the job in good order.",
        "SIGNAL,...",
        default="SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    ),
    _theirs(
        "shutdown-timeout",
        "Time between SIGTERM and SIGKILL when a rank failed.",
        "DURATION",
        default_text="30s",
        kind=partial(duration_seconds, "--shutdown-timeout", example="30s"),
    ),
    _theirs("virtual-local-rank", "LOCAL_RANK is 0 in every rank; each rank sees its own GPU as device 0."),
    _theirs(
        "print-completion",
        "Print the completion script of paceline for this shell, and do nothing else.",
        choices=("bash", "zsh", "tcsh"),
        variable="",
        kind=_asked_completion,
    ),
)
"""The options of the newest torchrun, in its own order. A test compares them with the grammar that is read from torch's own parsers."""

_ROWS = (
    Option(
        "job",
        "The job as a file, in place of a script and of every option that describes a job.",
        "FILE",
        more="`paceline submit` writes such files. See [job_file.md](job_file.md).",
    ),
    Option("name", "Name of the run.", "TEXT", default_text="the script's own name"),
    Option("run-dir", "Directory below which recordings go.", "DIR", default_text=".paceline/runs"),
    Option("max-run", "Time limit: seconds, or 12h, 90m, 30s. Then SIGTERM, grace, SIGKILL.", "DURATION"),
    Option(
        "on-hang",
        "On a confirmed hang: report and go on, stop (exit 202), restart (--max-restarts), or resume (--resume auto).",
        choices=("report", "stop", "restart", "resume"),
        default="report",
    ),
    Option("stop-grace", "Time between SIGTERM and SIGKILL at the limit or a stop.", "DURATION", default="120"),
    Option("hp", "A hyperparameter. May be repeated.", "KEY=VALUE", repeatable=True),
    Option(
        "channel",
        "An input channel, a directory or a URL. May be repeated.",
        "NAME=URL[:DISTRIBUTION]",
        repeatable=True,
        more="See [data.md](data.md).",
    ),
    Option(
        "output",
        "Send model.tar.gz and output.tar.gz below this URL.",
        "URL",
        more="They lie there in `<run id>/output/`.",
    ),
    Option(
        "checkpoints",
        "Keep the checkpoints directory and this URL alike: fetched at the start, sent as they come.",
        "URL",
    ),
    Option("source-dir", "Code directory: the script lies in it, its requirements.txt is installed.", "DIR"),
    Option("json", "Print paceline's own answer as JSON."),
    Option("color", "Colour of paceline's own lines.", choices=("auto", "always", "never"), default="auto"),
    Option(
        "set",
        "Set what is rarely set. May be repeated. `paceline help keys` says what each key is.",
        "KEY=VALUE",
        repeatable=True,
    ),
)
_KEYS = (
    _key("run_id", "Id of the recording.", "ID", default_text="r- and six hex digits, new for each run"),
    _key(
        "run_dir_mode",
        "Who may read the recording, written as for chmod, such as 0750.",
        "MODE",
        default_text="0700",
        more="See [recording.md](recording.md#who-may-read-it).",
    ),
    _key(
        "plan",
        "What `paceline plan --json` said of this job; it is kept with the recording.",
        "FILE",
        more="The file becomes `plan.json` in the [recording](recording.md).",
    ),
    _key(
        "total_steps",
        "Optimizer steps of the whole job. They tell early whether --max-run is long enough.",
        "N",
        kind=int,
    ),
    _key(
        "fork_server",
        "With --max-restarts: keep a process with torch imported on each host, and fork the ranks of a restart from it (preview).",
        choices=("auto", "off"),
        default_text="off; with --resume auto: auto",
        more="See [running.md](running.md#fast-restarts).",
    ),
    _key("store_port", "Port of the ranks' store.", "PORT", default_text="a free one, new for each attempt", kind=int),
    _key(
        "token_file",
        "File with the secret that the agents share, 16 bytes at least.",
        "FILE",
        default_text="PACELINE_TOKEN, else this user's own, made once",
        more="See [running.md](running.md#several-hosts).",
    ),
    switch("no_token", "Take hosts in without a token: whoever reaches the port can join and run code."),
    _key("hyperparameters", "JSON file of hyperparameters; --hp wins over it.", "FILE"),
    _key(
        "profile",
        "How hyperparameters are written: as SageMaker's SDK v2 or v3 does.",
        choices=("v2", "v3"),
        default="v2",
    ),
    switch("checkpoints_delete", "Deletions in the checkpoints directory count below --checkpoints too."),
    _key("base_dir", "Put the /opt/ml tree here.", "DIR", default_text="SAGEMAKER_BASE_DIR"),
    switch(
        "opt_ml", "Use the real /opt/ml. With --local-hosts each host has an /opt/ml of its own, which is its tree."
    ),
    switch("install_requirements", "Install requirements.txt beside the script, once per host."),
    switch(
        "no_check",
        "Do not look at the script before the ranks start; with --job none is looked at.",
        more="See [checks.md](checks.md).",
    ),
    _key(
        "progress",
        "Status line: repainted on a terminal, one line per 30 s elsewhere.",
        choices=("auto", "plain", "off"),
        default="auto",
    ),
    _key(
        "json_file",
        "Write paceline's own answer as JSON to this file. It holds nothing else: on stderr, the ranks write beside --json.",
        "FILE",
    ),
)
_OURS = with_options_of_parts("run", _ROWS)
OURS = tuple(
    replace(row, section=row.section or "paceline's own", has_underscores=True) for row in _OURS if not row.is_key
)
"""paceline's own options and those of its parts. They have long names only, so that a letter that torchrun adds later cannot clash."""
KEYS = (*_KEYS, *(row for row in _OURS if row.is_key))
"""The keys of --set, with the names that they have in a job file."""
