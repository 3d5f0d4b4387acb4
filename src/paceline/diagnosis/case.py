"""The facts from which causes are judged. They are frozen data; `recording/fact_json.py` has them as JSON.

`None` means that paceline could not look, never "fine" and never zero. Stamps are Unix ns on the first host's clock, corrected for
the offsets between hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import RankExit, RankRecord, Run
from paceline.findings import Level as Level
from paceline.recording.rank_sets import named_ranks

# How long no rank may make progress before that alone counts as a hang. The same holds for a rank that waits for a disk or a file system,
# which may show nothing until it is done.
PATIENCE_SECONDS = 60.0

# ------------------------------------------------------------------------------------------------------ inside the ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A line of the user's code."""

    file: str
    """Path of the user's own file."""
    line: int
    """Line in that file, counted from 1."""
    function: str = ""
    """Name of the function; empty: not known."""
    callers: tuple[str, ...] = ()
    """Lines that led there, "file:line", innermost first."""
    outside_loop: bool | None = field(default=None, compare=False)
    """It is outside all loops in which the rank makes its steps; None: not known."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective as a rank issued it from Python, or as the flight recorder kept it. None: the source does not record it."""

    index: int
    """Counts the calls of this rank in this group, from 1; 0: a send or receive, which has none."""
    operation: str
    """Such as all_reduce."""
    issued_ns: int
    """When Python issued it."""
    reduce_op: str | None = None
    """Such as SUM."""
    root: int | None = None
    """A rank within the group; of a send or receive the peer."""
    dtype: str | None = None
    """Data type of the tensor."""
    shape: tuple[int, ...] | None = None
    """Shape of the tensor."""
    size_bytes: int | None = None
    """Size of the tensor."""
    site: Site | None = None
    """Where the script calls it; None: from the flight recorder."""
    step: int | None = None
    """Steps that the rank had made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounters:
    """Progress of a rank in one group, from torch's flight recorder or from its ring's table of exchanges."""

    name: str
    """Name of the group."""
    enqueued: int
    """Collectives that the rank has entered."""
    completed: int
    """Of these, those that are over."""
    ranks: tuple[int, ...] | None = None
    """Ranks of the group, if Python reported them; None and `everybody`: all ranks of the job."""
    everybody: bool = False
    """All ranks of the job are in it."""
    operation: str | None = None
    """Operation of the oldest collective that is not over, or of the last one."""
    dtype: str | None = None
    """Data type of that collective."""
    numel: int | None = None
    """Elements of that collective."""
    recorder: str = "gloo"
    """Which of torch's recorders counts: "gloo", "nccl" (ProcessGroupNCCL), "nccl2" (ProcessGroupNCCL2) or another backend's name."""
    started: bool | None = None
    """Whether the device has begun the oldest collective that is not over; None: not recorded."""
    operations: int | None = None
    """Operations of the group that the rank has issued, with sends and those of other backends, where the recorder counts these alone.
    `enqueued` is then known only if a collective is not over, and else the most that it can be."""
    open_operation: int | None = None
    """Number of the oldest collective that is not over, among these operations."""
    messages: tuple[tuple[int, int], ...] = ()
    """Sends and receives that are not over: (sender, receiver), global ranks."""
    unshown: bool = False
    """Something is not over that the recorder counts and does not show."""
    open_since_ns: int | None = None
    """When the oldest collective that is not over was issued, on the clock of the rank's host; None: not recorded."""

    @property
    def is_over(self) -> bool:
        """Whether all that the rank has issued in this group is over."""
        return self.enqueued <= self.completed and not self.messages and not self.unshown


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Progress of one rank at one moment."""

    host: str
    """The host that it runs on."""
    rank: int
    """Its global rank."""
    at_ns: int
    """When it was read."""
    moved_ns: int
    """Since when none of its counters (steps, calls, flight recorder) has changed."""
    attempt: int = 0
    """The attempt, counted from 0."""
    pid: int | None = None
    """Process id on its host."""
    state: str | None = None
    """As in /proc/PID/stat."""
    cpu_seconds: float | None = None
    """Used so far by the process and the children that it waited for."""
    step_count: int | None = None
    """Optimizer steps so far."""
    step_seconds: float | None = None
    """Mean step since the previous heartbeat that saw a step."""
    last_step_ns: int | None = None
    """When the newest step was over."""
    phase: str | None = None
    """Lower-case name of a recording.ring.RankPhase."""
    phase_since_ns: int | None = None
    """Since when it is in that phase."""
    last_call: Call | None = None
    """The newest collective issued from Python."""
    calls: dict[str, int] = field(default_factory=dict)
    """Name of a group -> calls from Python so far."""
    group_ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name of a group -> its global ranks, where known."""
    groups: tuple[GroupCounters, ...] | None = None
    """From the flight recorders; None: they were not asked or did not answer."""
    driver_answers: bool | None = None
    """Whether the CUDA driver answers NCCL's flight recorder for this process; None: not known."""
    exchanges: tuple[GroupCounters, ...] = ()
    """The same of the groups and lanes of paceline's own exchange, which the flight recorder does not see."""
    exit_code: int | None = None
    """Of a process that has ended."""
    finalizing_ns: int | None = None
    """Since when its interpreter ends: its threads are done, its exit handlers run."""
    exiting: bool = False
    """The exit handlers are done as well."""
    loader_batches: int | None = None
    """Length of the DataLoader in use."""
    rendezvous: dict[str, str] = field(default_factory=dict)
    """What the rank passed to init_process_group, and its versions; see diagnosis.crash.rendezvous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What one rank trained with at the end of a step, as worker/instruments/replica.py marks it at 1, 16, 64, 256, ... steps."""

    rank: int
    """Its global rank."""
    step: int
    """The step at whose end it was recorded."""
    attempt: int = 0
    """The attempt, counted from 0."""
    optimizer: str = ""
    """Class of the optimizer."""
    optimizers: int = 1
    """2: several optimizers step."""
    settings: tuple[dict[str, Any], ...] = ()
    """Of the optimizer's parameter groups, plain values only."""
    held: int = 0
    """Parameters of the optimizer."""
    with_gradient: int = 0
    """Of these, those that had a gradient."""
    models: int = 0
    """DDP models."""
    forwards: int | None = None
    """Calls of these models; 0 only if none was ever called."""
    buffers: int | None = None
    """Numbers in the buffers that they broadcast to all ranks."""
    foreign: int | None = None
    """Parameters of the optimizer that belong to no DDP model."""
    unexchanged: int | None = None
    """Parameters that train and that DDP does not exchange."""
    unexchanged_names: tuple[str, ...] = ()
    """Names of some of these."""
    groups: int = 0
    """Process groups."""
    exchanges: int | None = None
    """Collectives of all groups so far."""
    calls: int | None = None
    """Of these, what Python issued and what DDP was sampled to."""
    libraries: tuple[str, ...] = ()
    """Loaded libraries that exchange without torch."""
    made_at: str = ""
    """The user's line that made the first DDP model, as FILE:LINE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSampler:
    """How the DistributedSampler of one rank's loader distributed its samples when an epoch began; see worker/sampling.py."""

    rank: int
    """Its global rank."""
    loader: int
    """Loaders with such a sampler, counted from 1 in each rank."""
    turn: int
    """How often the loader has begun."""
    replicas: int
    """Shards that the sampler makes."""
    shard: int
    """The one that this rank reads."""
    seed: int
    """Seed of the shuffle."""
    shuffle: bool
    """It shuffles."""
    samples: int
    """Of all shards together."""
    epoch: int
    """As set_epoch has it."""
    made_at: str = ""
    """The user's line that made the sampler, as FILE:LINE."""
    epoch_before: int | None = None
    """The sampler's epoch in the previous pass; None in the first pass."""
    steps_before: int | None = None
    """Steps made in the previous pass; None in the first pass."""


# ------------------------------------------------------------------------------------------------------- what stands still


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks that wait for others. Fields of the collective are None if it is not known."""

    level: Level
    """WAITING while the late ranks make progress, else STALL."""
    since_ns: int
    """Since when no rank makes progress."""
    detected_ns: int
    """When it was seen."""
    threshold_seconds: float
    """How long no rank may make progress before the stall is reported."""
    late: tuple[int, ...] = ()
    """Global ranks that have not come, sorted. (): all have come and none continues, or it is not known which are late."""
    waiting: tuple[int, ...] = ()
    """Global ranks that have come and wait, sorted."""
    crossed: tuple[int, ...] = ()
    """Of `late`, ranks that wait for each other, each in something else."""
    basis: str = "steps"
    """What the order of arrival is known from: "flight recorder", "exchanges", "calls", "phase", "stacks", "steps" or "start"."""
    recorder: str = ""
    """Of a flight recorder: which one, as in GroupCounters."""
    behind: tuple[int, ...] = ()
    """Of `late`, ranks that have come, and whose device has not: what is over on others is not over there."""
    together: bool = False
    """Every rank of the group has come, and none of them waits for a rank elsewhere."""
    group: str | None = None
    """Group of the collective that the others wait in."""
    index: int | None = None
    """Index of that collective in the group."""
    operation: str | None = None
    """Operation of that collective."""
    payload: str | None = None
    """What that collective carries, in words ("7,240 float32")."""
    since_step: int | None = None
    """Steps that every rank had done."""
    progress: tuple[str, ...] = ()
    """Texts about the progress of the late ranks ("cpu 1.0 cores", "disk 12 MB/s")."""
    attempt: int = 0
    """The attempt, counted from 0."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Rank -> a number for its last known place in the code, and since when it has been there."""


def name_of_recorder(recorder: str) -> str:
    """Which flight recorder, in words."""
    return "NCCL's flight recorder" if recorder.startswith("nccl") else "torch's flight recorder"


class Proof(StrEnum):
    """Kinds of evidence that a job hangs."""

    WAITED_FOR = "others wait for ranks that do not come"
    CROSSWISE = "ranks wait for each other, each in something else"
    NOBODY_MOVES = "no rank has moved for a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A confirmed hang."""

    proof: Proof
    """What shows it."""
    ranks: tuple[int, ...]
    """Ranks that were seen to do nothing, or have ended."""
    seen: tuple[str, ...]
    """One line about each of these ranks."""
    waiting: tuple[int, ...] = ()
    """Those that wait for them."""
    since_ns: int = 0
    """Since when no rank makes progress."""
    looks: int = 0
    """Least number of snapshots of each."""
    attempt: int = 0
    """The attempt, counted from 0."""

    def __post_init__(self) -> None:
        if not self.ranks or not self.seen:
            raise ValueError("a hang is confirmed by ranks that were seen to do nothing, and these are named")

    @property
    def reason(self) -> str:
        """The evidence in one sentence, for the reason of the job's end."""
        who = named_ranks(self.ranks)
        one = len(self.ranks) == 1
        match self.proof:
            case Proof.WAITED_FOR:
                waits = (
                    f"{named_ranks(self.waiting)} wait{'s' * (len(self.waiting) == 1)} for {'it' if one else 'them'}"
                )
                claim = f"{who} {'has' if one else 'have'} stood still while {waits}"
            case Proof.CROSSWISE:
                claim = (
                    f"{who} waits in a different call than the ranks that wait for it"
                    if one
                    else f"{who} wait for each other, each in something else"
                )
            case Proof.NOBODY_MOVES:
                claim = f"{who} {'has' if one else 'have'} used no CPU and moved no data for {PATIENCE_SECONDS:.0f} s"
        return f"{claim}; {self.seen[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Ranks that issued different collectives at the same place of the same group."""

    group: str
    """Name of the group."""
    ranks: tuple[int, ...]
    """All ranks that have a call at `index`."""
    index: int
    """The first place at which they differ."""
    found_ns: int
    """When it was seen."""
    calls: dict[int, Call]
    """Rank -> its call at `index`."""
    windows: dict[int, tuple[Call, ...]]
    """Rank -> its calls around `index`, up to 16 on either side, as far as they are known; of some ranks."""
    counts: dict[int, int] = field(default_factory=dict)
    """Rank -> calls of this group so far."""
    basis: str = "calls"
    """Either "calls" (issued from Python) or "flight recorder" (no call sites, reduce op, root)."""
    recorder: str = ""
    """Of a flight recorder: which one, as in GroupCounters."""
    backend: str = ""
    """Backend of the group; empty: not known."""
    since_step: int | None = None
    """Steps that every rank had done."""
    attempt: int = 0
    """The attempt, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedGroup:
    """A process group that has one name and not the same members on all its ranks: new_group was not called by all ranks alike."""

    group: str
    """Name of the group."""
    members: dict[int, tuple[int, ...]]
    """Rank -> the members of the group as this rank made it; one rank of each kind, then others."""
    found_ns: int
    """When it was seen."""
    attempt: int = 0
    """The attempt, counted from 0."""


# ------------------------------------------------------------------------------------------------------------- step timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean time per step with its interval; see diagnosis.slow.noise."""

    seconds: float
    """The mean, in seconds."""
    low: float
    """Low end of the interval, in seconds."""
    high: float
    """High end of the interval, in seconds."""
    blocks: int
    """Number of blocks of steps that it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """The ranks that the others wait for, beyond chance."""

    ranks: tuple[int, ...] = ()
    """(): no rank is late beyond noise."""
    gain: Estimate | None = None
    """Time that a step would be shorter without them."""
    measured: bool = True
    """Measured by the stamps of the collectives, not by the ranks' own times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTiming:
    """One rank over a window. Times are seconds of a mean step."""

    rank: int
    """Its global rank."""
    host: str
    """The host that it runs on."""
    steps: int
    """Steps in the window."""
    step_seconds: float
    """Mean step."""
    data_seconds: float | None = None
    """Of it, waiting for the DataLoader."""
    communication_seconds: float | None = None
    """Of it, in collectives."""
    checkpoint_seconds: float | None = None
    """Of it, saving."""
    own_seconds: float | None = None
    """The step without waiting for others."""
    lags: tuple[float, ...] | None = None
    """For each bucket of a step, how much later it was than the first rank: median over the steps."""
    late_seconds: float | None = None
    """How late it was, mean over the steps."""
    last_fraction: float | None = None
    """Fraction of the steps in which it was the last."""
    periodic: int | None = None
    """It is late once in this number of steps; None: not regularly."""
    cpu_fraction: float | None = None
    """Of one core."""
    slow_since_step: int | None = None
    """The last step in which it was not yet late."""
    behind: Estimate | None = None
    """How much later it is than the last of the others."""
    data: Estimate | None = None
    """Time in the DataLoader, with its interval."""
    cpu_wait_seconds: float | None = None
    """Time in which it was ready to run but had no CPU."""
    checkpoint_count: int | None = None
    """How often it saved, as far as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTiming:
    """One host over the same window, from its telemetry. Fractions are of the window."""

    host: str
    """Its name in the job."""
    cpu_count: int | None = None
    """Logical CPUs."""
    busy_fraction: float | None = None
    """Of all CPUs."""
    steal_fraction: float | None = None
    """Of all CPUs: taken by the hypervisor."""
    throttled_fraction: float | None = None
    """Of the CPU quota's periods."""
    cpu_quota_cpus: float | None = None
    """CPUs that the quota allows."""
    pressure_cpu: float | None = None
    """Fraction of the time in which some task waited for a CPU."""
    pressure_memory: float | None = None
    """Fraction of the time in which some task waited for memory."""
    pressure_io: float | None = None
    """Fraction of the time in which some task waited for I/O."""
    ranks_cpu: float | None = None
    """Cores that its ranks used together."""
    sent_bytes_per_second: float | None = None
    """Sent over its network."""
    received_bytes_per_second: float | None = None
    """Received over its network."""
    swap_used_bytes: int | None = None
    """At the end of the window."""
    gpus: tuple[dict[str, Any], ...] | None = None
    """The newest sample of each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """How the job steps, over the latest window of steady training."""

    window_seconds: float
    """Length of the window."""
    from_step: int
    """Its first step."""
    to_step: int
    """Its last step."""
    step_seconds: float
    """Mean step."""
    ranks: tuple[RankTiming, ...]
    """Each rank in the window."""
    hosts: tuple[HostTiming, ...] = ()
    """Each host in the window."""
    step_bytes: float | None = None
    """Bytes that one rank passes to collectives in a step."""
    collectives_per_step: float | None = None
    """Collectives of one rank in a step."""
    spread_seconds: float | None = None
    """How long the first rank waits for the last rank in a mean step."""
    spread: Estimate | None = None
    """The same with its interval."""
    communication: Estimate | None = None
    """A rank's mean time in communication."""
    held_up: HeldUp | None = None
    """None: it could not be judged."""
    at_ns: int = 0
    """When it was measured."""
    attempt: int = 0
    """The attempt, counted from 0."""
    ranks_left_out: int = 0
    """Number of further ranks, which did not stand out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the job will be done at its present pace."""

    at_ns: int
    """When it was made."""
    step: int
    """The step that the job was at."""
    total_steps: int | None
    """None: the number of steps is not known."""
    total_from: str
    """Where the number of steps comes from."""
    step_seconds: float
    """The present pace."""
    needed_seconds: float | None
    """Time of the whole run, including the time so far; None: the number of steps is not known."""
    limit_seconds: float | None
    """The time limit; None: there is none."""
    elapsed_seconds: float
    """Since the start."""
    reaches_step: int | None
    """The step at which the limit ends the job; None: there is no limit."""
    largest_cost: str = ""
    """The largest cost of a step besides computation, as text; empty: none is a twentieth of a step."""
    largest_cost_fraction: float | None = None
    """Its share of a step."""


# ------------------------------------------------------------------------------------------- a job that others have started


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSeen:
    """What the job's store says to a client that changes nothing."""

    address: str
    """Host and port."""
    answer: str
    """answers, silent, refused, timed out, or what else happened."""
    joined: int | None = None
    """Clients that have ever come; None: not known."""
    holder: str = ""
    """The process here that listens at its port, and its state; empty: none, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What one host says about a job that paceline did not start and that runs there."""

    host: str
    """Its name."""
    attempt: int = 0
    """The attempt, counted from 0."""
    launcher: str = ""
    """What started the ranks: torchrun, Slurm, ...; empty: not known."""
    launcher_pid: int | None = None
    """Its process; None: not known."""
    missing: tuple[int, ...] = ()
    """Ranks that belong on this host and have no process."""
    restarts: int = 0
    """How often the launcher has started the ranks again."""
    store: StoreSeen | None = None
    """The job's store; None: it was not asked."""
    addresses: tuple[str, ...] = ()
    """Addresses of other hosts to which its ranks are connected."""
    hosts_wanted: int | None = None
    """Hosts of the job; None: not known."""
    raised: dict[int, str] = field(default_factory=dict)
    """Rank -> the last exception in the file to which its stderr goes, which other ranks may share."""


# -------------------------------------------------------------------------------------------------------------------- case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run as the rules see it. Fields are about the newest attempt, unless they say otherwise."""

    run: Run
    """Identity and end of the run."""
    now_ns: int
    """When it is judged."""
    lasts: bool
    """The job has not ended."""
    attempt: int = 0
    """The newest one."""
    world_size: int | None = None
    """Number of ranks; None: not known."""
    hosts: tuple[str, ...] = ()
    """Names, in numeric order."""
    ranks: Mapping[int, RankRecord] = field(default_factory=dict)
    """Global rank -> its record."""
    exits: tuple[RankExit, ...] = ()
    """Failures and early ends in the order in which they happened; an exception counts from when it was raised."""
    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    """Rank -> its newest heartbeat at the stall."""
    stall: Stall | None = None
    """The stall; None: none was seen."""
    divergences: tuple[Divergence, ...] = ()
    """Ranks that issued different collectives."""
    mixed_groups: tuple[MixedGroup, ...] = ()
    """Process groups with other members on some ranks."""
    replicas: Mapping[int, tuple[Replica, ...]] = field(default_factory=dict)
    """Rank -> its marks, in the order of steps."""
    samplers: tuple[DataSampler, ...] = ()
    """How samples were distributed."""
    snapshots: Mapping[int, RankSnapshot] = field(default_factory=dict)
    """Rank -> its newest snapshot at the stall."""
    host_snapshots: Mapping[str, HostSnapshot] = field(default_factory=dict)
    """Host -> its newest snapshot at the stall."""
    timing: StepTiming | None = None
    """How the job steps; None: too few steps, or none."""
    forecast: Forecast | None = None
    """When the job will be done; None: too few steps, or nothing is known of its end."""
    tails: Mapping[int, str] = field(default_factory=dict)
    """Rank -> the end of its stderr."""
    attached: Mapping[str, Attached] = field(default_factory=dict)
    """Host -> what it says about a job that paceline did not start; empty for a run of paceline's."""
    missing_hosts: tuple[Mapping[str, Any], ...] = ()
    """The launcher's reports about hosts that have not come: the entries of the `waiting` event."""
    confirmation: Confirmation | None = None
    """Why the stall is a hang."""
    events: tuple[Mapping[str, Any], ...] = ()
    """What happened, by time."""
    telemetry: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """Name of a host -> its samples, by time."""
    not_judged: tuple[str, ...] = ()
    """What could not be read, as text."""

    def host_of(self, rank: int) -> str:
        """The host of a rank; "?" if it is not known."""
        record = self.ranks.get(rank)
        if record is not None:
            return record.host
        heartbeat = self.heartbeats.get(rank)
        return heartbeat.host if heartbeat is not None else "?"
