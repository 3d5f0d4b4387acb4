"""The nouns of paceline: frozen data with units in the names. Imports nothing of ours.

`None` means unknown, never "fine".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# Public, as what `paceline.recording.evidence` returns. The other nouns are for our own modules.
__all__ = ["Evidence", "RankError", "RankExit", "RankRecord", "Run", "SecondaryStatus", "Status", "Step"]

_NUMBER = re.compile(r"([0-9]+)")


class Status(StrEnum):
    """Status of a run, in SageMaker's own words (TrainingJobStatus of CreateTrainingJob's API)."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class SecondaryStatus(StrEnum):
    """Secondary status of a run, in SageMaker's own words."""

    STARTING = "Starting"
    PENDING = "Pending"
    DOWNLOADING = "Downloading"
    TRAINING = "Training"
    INTERRUPTED = "Interrupted"
    UPLOADING = "Uploading"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    FAILED = "Failed"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_TIME_EXCEEDED = "MaxWaitTimeExceeded"
    UPDATING = "Updating"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as the machine's driver numbers it."""

    index: int
    """As the driver numbers it."""
    name: str | None = None
    """The model, as the driver spells it."""
    uuid: str | None = None
    """The same on every boot."""
    memory_bytes: int | None = None
    """All of its memory."""


def host_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key that compares the digits in a name as numbers.

    Holds:   host_key("algo-2") < host_key("algo-10")
    """
    pieces = _NUMBER.split(name)
    return tuple(int(piece) if index % 2 else piece for index, piece in enumerate(pieces)), name


def host_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names in numeric order, each once. Every list of hosts whose order is ours to choose comes from here."""
    return tuple(sorted(set(names), key=host_key))


class ProgramKind(StrEnum):
    SCRIPT = "script"
    MODULE = "module"
    EXECUTABLE = "executable"
    RUN_PATH = "run_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank executes: the user's file or module and its arguments, never a shell string."""

    kind: ProgramKind
    """How `target` is to be read."""
    target: str
    """A file, or the name of a module."""
    arguments: tuple[str, ...] = ()
    """The program's own arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """An input channel of the SageMaker contract."""

    name: str
    """As SM_CHANNEL_NAME has it."""
    source: str
    """A directory, a file or a URL."""
    distribution: str = "FullyReplicated"
    """FullyReplicated or ShardedByS3Key."""
    input_mode: str = "File"
    """File, FastFile or Pipe."""
    data_type: str = "S3Prefix"
    """S3Prefix, ManifestFile or AugmentedManifestFile."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of CreateTrainingJob's Channel, for SageMaker alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the user asked of the SageMaker contract."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """The values, as Python has them."""
    profile: str = "v2"
    """Whose encoding they get: v2 or v3 of the SDK."""
    channels: tuple[Channel, ...] = ()
    """The input channels."""
    base_dir: str | None = None
    """Where the tree stands; None: below the recording."""
    opt_ml: bool = False
    """The tree is the real /opt/ml."""
    install_requirements: bool = False
    """requirements.txt beside the script is installed before the ranks start."""
    code_dir: str | None = None
    """The directory of the job's code; None: that of the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Which output of which rank reaches the terminal, and which extra files torchrun's options ask for."""

    redirects: dict[int, int] = field(default_factory=dict)
    """Local rank -> bits of what stays off the terminal: 1 stdout, 2 stderr. Key -1 is every local rank."""
    tee: dict[int, int] = field(default_factory=dict)
    """Local rank -> bits of what the terminal shows with a prefix."""
    local_ranks_filter: frozenset[int] | None = None
    """Local ranks that reach the terminal; None: all."""
    stdout_filters: tuple[str, ...] = ()
    """Only lines of stdout that contain one of these reach the filtered file."""
    stderr_filters: tuple[str, ...] = ()
    """The same for stderr."""
    log_dir: str | None = None
    """Where torchrun's files go; None: below the recording."""
    line_prefix_template: str | None = None
    """What each line begins with; None: the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as this host's command line describes it."""

    name: str
    """How people call the job."""
    program: Program
    """What every rank executes."""
    min_hosts: int = 1
    """The job starts with this many hosts at least."""
    max_hosts: int = 1
    """More hosts are not taken in."""
    ranks_per_host: int = 1
    """Ranks on this host."""
    node_rank: int | None = 0
    """None: the first agent assigns one by arrival."""
    master_addr: str = "127.0.0.1"
    """The first host, as the others reach it."""
    agents_port: int | None = None
    """Port of the first host's agent. None: a job of one host has none; 0: a free port, chosen by whoever starts all the hosts."""
    store_port: int | None = None
    """Port of torch's store on the first host; None: a free port."""
    is_first: bool = True
    """A guess from the address where `node_rank` is None: who finds the agents' port taken is not the first."""
    host_name: str | None = None
    """How this host is called; None: algo-N."""
    local_address: str | None = None
    """How other hosts reach this one; None: found out."""
    role: str = "default"
    """torchrun's name for a group of ranks."""
    rendezvous_id: str = "none"
    """torchrun's name of the rendezvous."""
    join_timeout_seconds: float = 900.0
    """How long hosts may take to come together."""
    last_call_seconds: float = 30.0
    """How long more hosts are waited for once there are `min_hosts`."""
    max_restarts: int = 0
    """How often all ranks are started again after a failure."""
    max_run_seconds: float | None = None
    """Time limit of the job; None: none."""
    total_steps: int | None = None
    """Optimizer steps of the whole job, where the user said so."""
    on_hang: str = "report"
    """On a confirmed hang: report, stop or restart."""
    gradients: str | None = None
    """The strategy of --gradients; None: the script's own exchange."""
    allow_lossy: bool = False
    """`auto` may choose a strategy that is not exact."""
    tf_config: str | None = None
    """The form of TF_CONFIG that each host's one process gets; None: none."""
    output_url: str | None = None
    """Where model.tar.gz and output.tar.gz go."""
    checkpoint_url: str | None = None
    """What the checkpoints directory is kept in step with."""
    checkpoints_delete: bool = False
    """Files that are deleted here are deleted there too."""
    stop_grace_seconds: float = 120.0
    """Between SIGTERM and SIGKILL at a time limit or a request to stop."""
    shutdown_timeout_seconds: float = 30.0
    """Between SIGTERM and SIGKILL after a failure."""
    monitor_interval_seconds: float = 0.1
    """Between two looks at the ranks."""
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    """Signals that end the job in order."""
    virtual_local_rank: bool = False
    """Every rank sees LOCAL_RANK 0 and its own device alone."""
    numa_binding: str | None = None
    """How ranks are bound to NUMA nodes; None: not at all."""
    contract: Contract = field(default_factory=Contract)
    """What was asked of the SageMaker contract."""
    console: Console = field(default_factory=Console)
    """What reaches the terminal."""

    @property
    def fetches(self) -> bool:
        """Whether its hosts have something to fetch before their ranks may start: they then wait for each other."""
        return self.checkpoint_url is not None or any("://" in channel.source for channel in self.contract.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that ended a rank, as its process reported it."""

    type: str
    """Name of the exception."""
    message: str
    """Its text."""
    time_ns: int
    """When it was raised."""
    file: str | None = None
    """The user's own frame: its file."""
    line: int | None = None
    """The line in that file."""
    function: str | None = None
    """The function of that line."""
    source: str | None = None
    """The text of that line."""
    own_file: str | None = None
    """Where `file` is a copy that was made for the job: the file on this machine that it was made from."""
    python: str | None = None
    """The interpreter that could not import something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one worker process ended."""

    host: str
    """The host that it ran on."""
    rank: int
    """Its global rank."""
    attempt: int
    """The attempt, counted from 0."""
    code: int
    """An exit code, or minus a signal's number as in subprocess."""
    time_ns: int
    """When it ended."""
    error: RankError | None = None
    """The exception that ended it; None: it reported none."""
    note: str = ""
    """What the agent has to say of it."""
    signalled_by_us: bool = False
    """The agent sent the signal that ended it."""
    tail: str = ""
    """The end of its stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one rank, from optimizer step to optimizer step."""

    index: int
    """Of the step, as the rank counts."""
    end_ns: int
    """When the optimizer step was over."""
    duration_ns: int
    """From the step before."""
    data_ns: int
    """Of it, waiting for the DataLoader."""
    communication_ns: int
    """Of it, in collectives that the rank waited for."""
    checkpoint_ns: int
    """Of it, saving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank left in the recording. Totals cover the whole process."""

    host: str
    """The host that it ran on."""
    rank: int
    """Its global rank."""
    attempt: int
    """The attempt, counted from 0."""
    pid: int | None = None
    """Process id on its host."""
    world_size: int | None = None
    """As the rank was told."""
    step_count: int | None = None
    """Optimizer steps so far."""
    first_step_ns: int | None = None
    """When the first step was over."""
    last_step_ns: int | None = None
    """When the newest step was over."""
    step_seconds: float | None = None
    """Time of all steps together."""
    data_seconds: float | None = None
    """Of it, waiting for the DataLoader."""
    communication_seconds: float | None = None
    """Of it, in collectives."""
    checkpoint_seconds: float | None = None
    """Of it, saving."""
    checkpoint_outside_seconds: float | None = None
    """Saves before the first and after the last step, which belong to no step."""
    collective_count: int | None = None
    """Collectives so far."""
    batches_taken: int | None = None
    """What the training thread took from all its DataLoaders."""
    ran_out_steps: int | None = None
    """Steps made when the DataLoader that feeds them had no more the last time."""
    ran_out_batches: int | None = None
    """Batches taken at that time."""
    loader_batches: int | None = None
    """Length of the DataLoader in use."""
    left_by: int | None = None
    """0 without last words, 1 at the end of its program, 2 by a call of sys.exit."""
    dropped_records: int = 0
    """Records that the ring had no room for."""
    steps: tuple[Step, ...] = ()
    """Those that are still in the segment."""
    step_lengths: tuple[tuple[int, int], ...] = ()
    """(index, ns) of these steps where nothing more of them was read."""
    exit: RankExit | None = None
    """How it ended; None: it has not, or nobody saw it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The identity and the end of one run, from run.json and the run_finished event."""

    id: str
    """Such as r-37f901."""
    name: str
    """The job's name."""
    directory: str
    """Where its recording is."""
    command: tuple[str, ...]
    """The command line that started it."""
    started_ns: int
    """When its agent started."""
    first_host: str
    """Name of the first host."""
    agent_pid: int | None = None
    """The first host's agent, on its host."""
    agent_start_ticks: int | None = None
    """When that process started, in clock ticks after the boot: tells it from a later one of the same pid."""
    machine: str | None = None
    """The first host's own name for itself."""
    boot_id: str | None = None
    """Id of the boot that it ran in."""
    pid_namespace: str | None = None
    """The one that `agent_pid` counts in."""
    hosts_wanted: tuple[int, int] | None = None
    """(least, most) hosts."""
    version: str | None = None
    """The version of paceline."""
    control_socket: str | None = None
    """Where the agent answers."""
    status: Status = Status.IN_PROGRESS
    """InProgress while it lasts."""
    secondary_status: SecondaryStatus = SecondaryStatus.STARTING
    """What it is at, or how it ended."""
    finished_ns: int | None = None
    """When it ended."""
    exit_code: int | None = None
    """Exit code of `paceline run`."""
    reason: str = ""
    """Why it ended so, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a recording holds about one run, complete or partial, finished or running."""

    run: Run
    """Identity and end of the run."""
    hosts: tuple[str, ...]
    """Names, in numeric order."""
    ranks: tuple[RankRecord, ...]
    """Every rank of every attempt."""
    events: tuple[dict[str, Any], ...]
    """What happened, by time; docs/recording.md lists them."""
    telemetry: dict[str, tuple[dict[str, Any], ...]]
    """Name of a host -> its samples, by time."""
    not_judged: tuple[str, ...] = ()
    """What could not be read, in words."""
