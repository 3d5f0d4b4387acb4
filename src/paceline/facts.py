"""The nouns of paceline: frozen data with units in the names. Imports nothing of ours.

`None` means unknown, never "fine".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None


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
    target: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """An input channel of the SageMaker contract. `distribution` is FullyReplicated or ShardedByS3Key.

    `source`: a directory, a file or a URL. `input_mode`: File, FastFile or Pipe. `data_type`: S3Prefix, ManifestFile or
    AugmentedManifestFile. `extra`: further fields of CreateTrainingJob's Channel, for SageMaker alone.
    """

    name: str
    source: str
    distribution: str = "FullyReplicated"
    input_mode: str = "File"
    data_type: str = "S3Prefix"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the user asked of the SageMaker contract. `base_dir` None means below the recording."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    profile: str = "v2"
    channels: tuple[Channel, ...] = ()
    base_dir: str | None = None
    opt_ml: bool = False
    install_requirements: bool = False
    code_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Which output of which rank reaches the terminal, and which extra files torchrun's options ask for.

    `redirects` and `tee` map local rank -> bits (1 stdout, 2 stderr); key -1 stands for every local rank.
    """

    redirects: dict[int, int] = field(default_factory=dict)
    tee: dict[int, int] = field(default_factory=dict)
    local_ranks_filter: frozenset[int] | None = None
    stdout_filters: tuple[str, ...] = ()
    stderr_filters: tuple[str, ...] = ()
    log_dir: str | None = None
    line_prefix_template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as this host's command line describes it.

    `node_rank` None: the first agent assigns one by arrival. `agents_port` None: a job of one host without an agents' port; 0: a free
    port, chosen by whoever starts all the hosts (`--local-hosts`). `is_first` is a guess from the address where `node_rank` is None: the
    host that finds the port taken by another agent is not the first. `local_address`: how other hosts reach this one (`--local-addr`).
    `total_steps`: optimizer steps of the whole job, where the user said so.
    `on_hang`: report, stop or restart, on a stall that is confirmed.
    `gradients`: the strategy for the exchange of gradients, as --gradients has it; None: the script's own way. `allow_lossy`: `auto` may
    choose one that is not exact. `tf_config`: the form of TF_CONFIG that each host's one process gets. `output_url`, `checkpoint_url`:
    where model.tar.gz and output.tar.gz go, and what the checkpoints directory is kept like; `checkpoints_delete`: deletions too.
    """

    name: str
    program: Program
    min_hosts: int = 1
    max_hosts: int = 1
    ranks_per_host: int = 1
    node_rank: int | None = 0
    master_addr: str = "127.0.0.1"
    agents_port: int | None = None
    store_port: int | None = None
    is_first: bool = True
    host_name: str | None = None
    local_address: str | None = None
    role: str = "default"
    rendezvous_id: str = "none"
    join_timeout_seconds: float = 900.0
    last_call_seconds: float = 30.0
    max_restarts: int = 0
    max_run_seconds: float | None = None
    total_steps: int | None = None
    on_hang: str = "report"
    gradients: str | None = None
    allow_lossy: bool = False
    tf_config: str | None = None
    output_url: str | None = None
    checkpoint_url: str | None = None
    checkpoints_delete: bool = False
    stop_grace_seconds: float = 120.0
    shutdown_timeout_seconds: float = 30.0
    monitor_interval_seconds: float = 0.1
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    virtual_local_rank: bool = False
    numa_binding: str | None = None
    contract: Contract = field(default_factory=Contract)
    console: Console = field(default_factory=Console)

    @property
    def fetches(self) -> bool:
        """Whether its hosts have something to fetch before their ranks may start: they then wait for each other."""
        return self.checkpoint_url is not None or any("://" in channel.source for channel in self.contract.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that ended a rank, as its process reported it. `file`, `line`, `source`: the user's own frame.

    `own_file`: where `file` is a copy that was made for the job, the file on this machine that it was made from.
    `python`: the interpreter, where it could not import something.
    """

    type: str
    message: str
    time_ns: int
    file: str | None = None
    line: int | None = None
    function: str | None = None
    source: str | None = None
    own_file: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one worker process ended. `code` is an exit code, or minus the signal's number as in subprocess. `tail`: the end
    of its stderr.
    """

    host: str
    rank: int
    attempt: int
    code: int
    time_ns: int
    error: RankError | None = None
    note: str = ""
    signalled_by_us: bool = False
    tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one rank, from optimizer step to optimizer step."""

    index: int
    end_ns: int
    duration_ns: int
    data_ns: int
    communication_ns: int
    checkpoint_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank left in the recording. Totals cover the whole process; `steps` only those still in the segment.

    `step_lengths`: (index, ns) of these steps where nothing more of them was read.
    `batches_taken`: what the training thread took from all its DataLoaders; `loader_batches`: the length of the one in use.
    `ran_out_steps`, `ran_out_batches`: steps made and batches taken when the DataLoader that feeds the steps had no more the last
    time. `left_by`: 0
    without last words, 1 at the end of its program, 2 by a call of sys.exit. `checkpoint_outside_seconds`: saves before the first and
    after the last step, which belong to no step.
    """

    host: str
    rank: int
    attempt: int
    pid: int | None = None
    world_size: int | None = None
    step_count: int | None = None
    first_step_ns: int | None = None
    last_step_ns: int | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    communication_seconds: float | None = None
    checkpoint_seconds: float | None = None
    checkpoint_outside_seconds: float | None = None
    collective_count: int | None = None
    batches_taken: int | None = None
    ran_out_steps: int | None = None
    ran_out_batches: int | None = None
    loader_batches: int | None = None
    left_by: int | None = None
    dropped_records: int = 0
    steps: tuple[Step, ...] = ()
    step_lengths: tuple[tuple[int, int], ...] = ()
    exit: RankExit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The identity and the end of one run, from run.json and the run_finished event. `status` InProgress while it lasts."""

    id: str
    name: str
    directory: str
    command: tuple[str, ...]
    started_ns: int
    first_host: str
    agent_pid: int | None = None
    agent_start_ticks: int | None = None
    machine: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    hosts_wanted: tuple[int, int] | None = None
    version: str | None = None
    control_socket: str | None = None
    status: Status = Status.IN_PROGRESS
    secondary_status: SecondaryStatus = SecondaryStatus.STARTING
    finished_ns: int | None = None
    exit_code: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a recording holds about one run, complete or partial, finished or running.

    `not_judged` lists, in words, what could not be read.
    """

    run: Run
    hosts: tuple[str, ...]
    ranks: tuple[RankRecord, ...]
    events: tuple[dict[str, Any], ...]
    telemetry: dict[str, tuple[dict[str, Any], ...]]
    not_judged: tuple[str, ...] = ()
