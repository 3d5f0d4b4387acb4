"""The data classes of paceline: frozen, with units in the field names. This module imports nothing else of paceline.

`None` means unknown, never "fine".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# These are public, because `paceline.recording.evidence` returns them. The other classes are internal.
__all__ = ["Evidence", "Placement", "RankError", "RankExit", "RankRecord", "Run", "SecondaryStatus", "Status", "Step"]

# Of so many digits Python makes a number without complaint; a longer number is several.
_NUMBER = re.compile(r"([0-9]{1,18})")


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
    """One accelerator with the number that the machine's driver gives it."""

    index: int
    """The driver's number."""
    name: str | None = None
    """The model name, as the driver spells it."""
    uuid: str | None = None
    """The device's id, which is the same after every boot."""
    memory_bytes: int | None = None
    """The total memory of the device."""


def host_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key that compares the digits in a name as numbers.

    Holds:   host_key("algo-2") < host_key("algo-10")
    """
    pieces = _NUMBER.split(name)
    return tuple(int(piece) if index % 2 else piece for index, piece in enumerate(pieces)), name


def host_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names in numeric order, without duplicates. Every list of hosts whose order paceline chooses comes from this function."""
    return tuple(sorted(set(names), key=host_key))


class ProgramKind(StrEnum):
    SCRIPT = "script"
    MODULE = "module"
    EXECUTABLE = "executable"
    RUN_PATH = "run_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of every rank: the user's file or module and its arguments, never a shell string."""

    kind: ProgramKind
    """How `target` must be read."""
    target: str
    """A file, or the name of a module."""
    arguments: tuple[str, ...] = ()
    """The program's own arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """An input channel of the SageMaker contract."""

    name: str
    """The channel's name. The script gets its directory in SM_CHANNEL_<name>."""
    source: str
    """A directory, a file or a URL."""
    distribution: str = "FullyReplicated"
    """FullyReplicated or ShardedByS3Key."""
    input_mode: str = "File"
    """File, FastFile or Pipe."""
    data_type: str = "S3Prefix"
    """S3Prefix, ManifestFile or AugmentedManifestFile."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of CreateTrainingJob's Channel, which only SageMaker reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The user's settings for the SageMaker contract."""

    hyperparameters: dict[str, Any] = field(default_factory=dict)
    """The hyperparameters as Python values."""
    profile: str = "v2"
    """The SDK version whose encoding the hyperparameters get: v2 or v3."""
    channels: tuple[Channel, ...] = ()
    """The input channels."""
    base_dir: str | None = None
    """The location of the /opt/ml tree; None: below the recording."""
    opt_ml: bool = False
    """Whether the tree is the real /opt/ml."""
    shown_at_opt_ml: bool = False
    """Whether the ranks on hosts of this machine see the tree at /opt/ml too. The tree itself lies where it lies without this."""
    install_requirements: bool = False
    """Whether requirements.txt beside the script is installed before the ranks start."""
    code_dir: str | None = None
    """The directory of the job's code; None: the script's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Which output of which rank reaches the terminal, and which extra files torchrun's options request."""

    redirects: dict[int, int] = field(default_factory=dict)
    """Local rank -> bits of the streams that do not reach the terminal: 1 stdout, 2 stderr. Key -1 is every local rank."""
    tee: dict[int, int] = field(default_factory=dict)
    """Local rank -> bits of the streams that the terminal shows with a prefix."""
    local_ranks_filter: frozenset[int] | None = None
    """Local ranks whose output reaches the terminal; None: all."""
    stdout_filters: tuple[str, ...] = ()
    """Only lines of stdout that contain one of these texts reach the filtered file."""
    stderr_filters: tuple[str, ...] = ()
    """Only lines of stderr that contain one of these texts reach the filtered file."""
    log_dir: str | None = None
    """The directory of torchrun's files; None: below the recording."""
    line_prefix_template: str | None = None
    """The prefix of each line; None: the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as described by this host's command line."""

    name: str
    """The job's name."""
    program: Program
    """The program that every rank runs."""
    min_hosts: int = 1
    """Smallest number of hosts with which the job starts."""
    max_hosts: int = 1
    """Largest number of hosts."""
    ranks_per_host: int = 1
    """Ranks on this host."""
    node_rank: int | None = 0
    """The node rank of this host; None: the first agent assigns one in the order of arrival."""
    master_addr: str = "127.0.0.1"
    """The address of the first host for the other hosts."""
    agents_port: int | None = None
    """Port of the first host's agent. None: a job of one host has no port; 0: the program that starts all hosts chooses a free port."""
    store_port: int | None = None
    """Port of torch's store on the first host; None: a free port."""
    is_first: bool = True
    """Whether this host is the first one. If `node_rank` is None, this is a guess from the address, and a host that finds the agents' port

    in use is not the first.
    """
    host_name: str | None = None
    """The name of this host; None: algo-N."""
    local_address: str | None = None
    """The address of this host for other hosts; None: it is determined at the start."""
    role: str = "default"
    """torchrun's name for a group of ranks."""
    rendezvous_id: str = "none"
    """torchrun's name of the rendezvous."""
    join_timeout_seconds: float = 900.0
    """Longest wait until the hosts have met."""
    last_call_seconds: float = 30.0
    """How long to wait for more hosts once `min_hosts` are there."""
    max_restarts: int = 0
    """How often all ranks are started again after a failure."""
    max_run_seconds: float | None = None
    """Time limit of the job; None: no limit."""
    total_steps: int | None = None
    """Optimizer steps of the whole job; None: the user did not give the number."""
    on_hang: str = "report"
    """What happens on a confirmed hang: report, stop, restart, or resume (only with `resume`)."""
    fork_server: bool = False
    """Whether the ranks of a restart may be forked from a process that has imported torch already."""
    resume: bool = False
    """Whether the ranks' training state is kept outside of them, so that a killed rank does not cost the steps that were made."""
    resume_from: str | None = None
    """The run, URL or directory whose saved state the job goes on from; None: it begins at the start of the script."""
    resume_anyway: bool = False
    """Whether the job goes on from a saved state although its script or its torch is another one."""
    submission_id: str | None = None
    """Run id of the first attempt of a submitted job, whose attempts go on from each other's saved steps; None: it was not submitted."""
    state_dir: str | None = None
    """The directory of saved steps, which outlives an attempt; None: below `checkpoint_url`, or in the first attempt's recording."""
    gradients: str | None = None
    """The strategy of --gradients; None: the script's own exchange."""
    allow_lossy: bool = False
    """Whether `auto` may choose a strategy that is not exact."""
    tf_config: str | None = None
    """The form of TF_CONFIG, multi_worker_mirrored or parameter_server; None: no TF_CONFIG."""
    output_url: str | None = None
    """The location of model.tar.gz and output.tar.gz."""
    checkpoint_url: str | None = None
    """The location that is kept in sync with the checkpoints directory."""
    checkpoints_delete: bool = False
    """Whether files that are deleted from the checkpoints directory are also deleted at that location."""
    stop_grace_seconds: float = 120.0
    """Time between SIGTERM and SIGKILL at a time limit or a request to stop."""
    shutdown_timeout_seconds: float = 30.0
    """Time between SIGTERM and SIGKILL after a failure."""
    monitor_interval_seconds: float = 0.1
    """Time between two checks of the ranks."""
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    """Signals that end the job cleanly."""
    virtual_local_rank: bool = False
    """Whether every rank sees LOCAL_RANK 0 and only its own device."""
    numa_binding: str | None = None
    """How ranks are bound to NUMA nodes; None: they are not bound."""
    contract: Contract = field(default_factory=Contract)
    """The settings for the SageMaker contract."""
    console: Console = field(default_factory=Console)
    """The output that reaches the terminal."""

    @property
    def ends_with_rank_0(self) -> bool:
        """Whether the job is done when rank 0 has ended well: workers of parameter servers wait for its orders for ever."""
        return self.tf_config == "parameter_server"

    @property
    def fetches(self) -> bool:
        """Whether the hosts must fetch something before their ranks may start. If so, the hosts wait for each other."""
        return self.checkpoint_url is not None or any("://" in channel.source for channel in self.contract.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One host's part of an attempt: ranks first_rank .. first_rank + ranks - 1."""

    host: str
    """Name of the host."""
    address: str
    """The address at which the other hosts reach the host."""
    node_rank: int
    """The host's number in this attempt, counted from 0."""
    first_rank: int
    """The lowest global rank on this host."""
    ranks: int
    """Number of ranks on this host."""
    ports: tuple[int, ...] = ()
    """Free ports of the host for servers of its ranks; empty: the job needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that ended a rank, as the rank's process reported it."""

    type: str
    """Name of the exception class."""
    message: str
    """Text of the exception."""
    time_ns: int
    """When the exception was raised."""
    file: str | None = None
    """The file of the user's own frame."""
    line: int | None = None
    """The line in that file."""
    function: str | None = None
    """The function of that line."""
    source: str | None = None
    """The text of that line."""
    own_file: str | None = None
    """If `file` is a copy that was made for the job: the original file on this machine."""
    python: str | None = None
    """The interpreter that failed to import something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one worker process ended."""

    host: str
    """The host of the process."""
    rank: int
    """Its global rank."""
    attempt: int
    """The attempt, counted from 0."""
    code: int
    """An exit code, or minus a signal's number as in subprocess."""
    time_ns: int
    """When it ended."""
    error: RankError | None = None
    """The exception that ended the process; None: it reported none."""
    note: str = ""
    """The agent's remark on the end."""
    signalled_by_us: bool = False
    """Whether the agent sent the signal that ended the process."""
    tail: str = ""
    """The last part of its stderr."""
    state_mismatch: bool = False
    """The rank stopped itself because it found another state or batch than the one that was kept. Its exit code is paceline's own."""
    not_put_back: bool = False
    """The rank ended before its kept state was put back, because that was impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one rank, from optimizer step to optimizer step."""

    index: int
    """The rank's number of the step."""
    end_ns: int
    """The time at the end of the optimizer step."""
    duration_ns: int
    """The time since the previous step."""
    data_ns: int
    """The part of the duration in which the rank waited for the DataLoader."""
    communication_ns: int
    """The part of the duration in which the rank waited for collectives."""
    checkpoint_ns: int
    """The part of the duration in which the rank saved a checkpoint."""
    communication_measured: bool = False
    """`communication_ns` was timed in this step. False: it may be that of an earlier sample, or it was not recorded which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The data of one rank in the recording. Totals cover the whole process."""

    host: str
    """The host of the process."""
    rank: int
    """Its global rank."""
    attempt: int
    """The attempt, counted from 0."""
    pid: int | None = None
    """Process id on its host."""
    world_size: int | None = None
    """The world size that the rank was told."""
    step_count: int | None = None
    """Number of optimizer steps so far."""
    first_step_ns: int | None = None
    """The time at the end of the first step."""
    last_step_ns: int | None = None
    """The time at the end of the newest step."""
    step_seconds: float | None = None
    """Total time of all steps."""
    data_seconds: float | None = None
    """The part of that time in which the rank waited for the DataLoader."""
    communication_seconds: float | None = None
    """The part of that time in which the rank waited for collectives."""
    checkpoint_seconds: float | None = None
    """The part of that time in which the rank saved checkpoints."""
    checkpoint_outside_seconds: float | None = None
    """Time of saves before the first and after the last step, which belong to no step."""
    saved_steps: int | None = None
    """Number of steps when the newest checkpoint was written; 0: none was."""
    loaded_ns: int | None = None
    """Time of the newest checkpoint that the script loaded before its first step, Unix ns; 0: it loaded nothing; None: it is not known."""
    loaded_file: str = ""
    """Path of that checkpoint, or its end; empty: it loaded nothing, or the call did not say which file."""
    optimizer_loaded: bool = False
    """Whether an optimizer was given a state before the first step."""
    parameters_asked: int = 0
    """Parameters of the modules that were given a state before the first step."""
    parameters_loaded: int = 0
    """Those of them that the state had."""
    collective_count: int | None = None
    """Number of collectives so far."""
    batches_taken: int | None = None
    """Number of batches that the training thread took from all its DataLoaders."""
    ran_out_steps: int | None = None
    """The step count when the DataLoader that feeds the steps last had no more batches."""
    ran_out_batches: int | None = None
    """The batch count at that time."""
    loader_batches: int | None = None
    """Length of the DataLoader in use."""
    batch_size: int | None = None
    """Samples in a batch of the DataLoader of the first steps. None: not known."""
    left_by: int | None = None
    """0 without last words, 1 at the end of the script, 2 after a call of sys.exit."""
    left_at: str = ""
    """The call that ended it, as "FILE:LINE in FUNCTION, the handler of SIGTERM, by sys.exit(0)"; empty: it is not known."""
    dropped_records: int = 0
    """Number of records that did not fit the ring."""
    steps: tuple[Step, ...] = ()
    """The steps that are still in the segment."""
    step_lengths: tuple[tuple[int, int], ...] = ()
    """(index, ns) of these steps if nothing more of them was read."""
    exit: RankExit | None = None
    """How the process ended; None: it still runs, or its end was not observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The identity and the end of one run, from run.json and the run_finished event."""

    id: str
    """The id of the run, such as r-37f901."""
    name: str
    """The job's name."""
    directory: str
    """The location of its recording."""
    command: tuple[str, ...]
    """The command line that started it."""
    started_ns: int
    """When its agent started."""
    first_host: str
    """Name of the first host."""
    agent_pid: int | None = None
    """Process id of the first host's agent, on its host."""
    agent_start_ticks: int | None = None
    """Start of that process in clock ticks after the boot. It distinguishes the process from a later process with the same pid."""
    machine: str | None = None
    """The first host's own name for itself."""
    boot_id: str | None = None
    """Id of the boot in which it ran."""
    pid_namespace: str | None = None
    """The pid namespace of `agent_pid`."""
    hosts_wanted: tuple[int, int] | None = None
    """(smallest, largest) number of hosts."""
    version: str | None = None
    """The version of paceline."""
    control_socket: str | None = None
    """The address at which the agent answers."""
    status: Status = Status.IN_PROGRESS
    """The status; InProgress while the run lasts."""
    secondary_status: SecondaryStatus = SecondaryStatus.STARTING
    """The current phase of the run, or how it ended."""
    finished_ns: int | None = None
    """When it ended."""
    exit_code: int | None = None
    """Exit code of `paceline run`."""
    reason: str = ""
    """Why it ended in this way, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a recording has about one run, complete or partial, finished or running."""

    run: Run
    """Identity and end of the run."""
    hosts: tuple[str, ...]
    """Host names, in numeric order."""
    ranks: tuple[RankRecord, ...]
    """Every rank of every attempt."""
    events: tuple[dict[str, Any], ...]
    """The events in the order of time; docs/recording.md lists them."""
    telemetry: dict[str, tuple[dict[str, Any], ...]]
    """Name of a host -> its samples, in the order of time."""
    not_judged: tuple[str, ...] = ()
    """What could not be read, in words."""
