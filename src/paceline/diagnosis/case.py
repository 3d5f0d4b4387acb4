"""The facts that causes are judged by. Frozen data that travels as JSON: `to_plain` and `from_plain` turn it there and back.

`None` means that nobody could look, never "fine" and never zero. Stamps are Unix ns on the first host's clock, corrected for
the offsets between hosts.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import RankExit, RankRecord, Run
from paceline.findings import Level as Level
from paceline.recording.rank_sets import named_ranks

T = TypeVar("T")

# How long nothing may be seen to move before that alone counts as a hang; also of a rank that waits for a disk or a file system,
# which may show nothing until it is done.
PATIENCE_SECONDS = 60.0

# ------------------------------------------------------------------------------------------------------ inside the ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A line of the user's code. `callers`: lines of it that led there, "file:line", innermost first.

    `outside_loop`: it stands in none of the loops in which the rank makes its steps; None where nobody can tell.
    """

    file: str
    line: int
    function: str = ""
    callers: tuple[str, ...] = ()
    outside_loop: bool | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective as a rank issued it from Python, or as the flight recorder kept it (`site` None).

    `index` counts the calls of this rank in this group, from 1. A field that the source does not record is None.
    `root` and `peer` are ranks within the group. `step`: how many steps the rank had done. Index 0: a send or receive, which has none.
    """

    index: int
    operation: str
    issued_ns: int
    reduce_op: str | None = None
    root: int | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    size_bytes: int | None = None
    site: Site | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounters:
    """How far a rank is in one group, from torch's flight recorder or from its ring's table of exchanges.

    `ranks` where Python told us who is in it; None and `everybody`: all ranks of the job. `operation`, `dtype`, `numel`: of the
    oldest exchange that is not over, or of the last one, where the source says it.
    """

    name: str
    enqueued: int
    completed: int
    ranks: tuple[int, ...] | None = None
    everybody: bool = False
    operation: str | None = None
    dtype: str | None = None
    numel: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One rank at one moment. `moved_ns`: since when none of its counters (steps, calls, flight recorder) has changed.

    `phase`, `phase_since_ns` are those of the ring's header (lower-case names of recording.ring.Phase). `last_call`: the newest
    collective issued from Python. `calls`: name of the group -> calls from Python so far; `group_ranks`: name -> its global
    ranks, where known. `groups`: None where the flight recorder was not asked or did not answer. `exchanges`: the same of the groups
    and lanes that paceline's own exchange (comm) runs, which the flight recorder does not see; the ring has it at any time.
    `finalizing_ns`: since when its interpreter ends: its threads are done, its exit handlers run. `exiting`: these are done as well.
    `exit_code`: of a process that has ended. `cpu_seconds`: used so far by the process and the children that it waited for.
    """

    host: str
    rank: int
    at_ns: int
    moved_ns: int
    attempt: int = 0
    pid: int | None = None
    state: str | None = None
    cpu_seconds: float | None = None
    step_count: int | None = None
    step_seconds: float | None = None
    last_step_ns: int | None = None
    phase: str | None = None
    phase_since_ns: int | None = None
    last_call: Call | None = None
    calls: dict[str, int] = field(default_factory=dict)
    group_ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    groups: tuple[GroupCounters, ...] | None = None
    exchanges: tuple[GroupCounters, ...] = ()
    exit_code: int | None = None
    finalizing_ns: int | None = None
    exiting: bool = False
    loader_batches: int | None = None
    # What the rank gave to init_process_group and what it is made of; see diagnosis.crash.rendezvous.
    rendezvous: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What one rank trained with at the end of a step, as worker/replica.py marks it at 1, 16, 64, 256, ... steps.

    `settings`: of the optimizer's parameter groups, plain values only. `held`: parameters of the optimizer, `with_gradient` of these
    had a gradient, `foreign` belong to no DDP model. `models`: DDP models; `forwards` is 0 only where none was ever called; `buffers`:
    numbers in the buffers that they broadcast to all ranks.
    `unexchanged`: parameters that train and that DDP does not exchange. `groups`: process groups; `exchanges`: collectives of all of
    them so far; `calls`: of these what Python issued and what DDP was sampled to. `libraries`: loaded ones that exchange without torch.
    """

    rank: int
    step: int
    attempt: int = 0
    optimizer: str = ""
    optimizers: int = 1
    settings: tuple[dict[str, Any], ...] = ()
    held: int = 0
    with_gradient: int = 0
    models: int = 0
    forwards: int | None = None
    buffers: int | None = None
    foreign: int | None = None
    unexchanged: int | None = None
    unexchanged_names: tuple[str, ...] = ()
    groups: int = 0
    exchanges: int | None = None
    calls: int | None = None
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSampler:
    """How the DistributedSampler of one rank's loader dealt out its samples when an epoch began; see worker/sampling.py.

    `loader`: loaders with such a sampler, counted from 1 in each rank. `epoch_before`, `steps_before`: the sampler's epoch in the last turn
    in which steps were made, and how many; None where there was none.
    """

    rank: int
    loader: int
    turn: int
    replicas: int
    shard: int
    seed: int
    shuffle: bool
    samples: int
    epoch: int
    epoch_before: int | None = None
    steps_before: int | None = None


# ------------------------------------------------------------------------------------------------------- what stands still


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks that wait for others. `late` have not come; `waiting` have; both global ranks, sorted.

    `late` empty: all have come and none goes on, or nobody can tell who is late. `crossed`: of these, ranks that wait for each other, each
    in something else. `basis`: what the order of arrival rests on: "flight
    recorder", "exchanges" (told by comm), "calls", "phase" (of the rings), "stacks" (of a look), "steps" or "start". `group`, `index`,
    `operation`, `payload`: the collective that the others wait in, where known; the payload in words ("7,240 float32"). `progress`:
    what moves on the late ranks, in words ("cpu 1.0 cores", "disk 12 MB/s").
    """

    level: Level
    since_ns: int
    detected_ns: int
    threshold_seconds: float
    late: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    crossed: tuple[int, ...] = ()
    basis: str = "steps"
    group: str | None = None
    index: int | None = None
    operation: str | None = None
    payload: str | None = None
    since_step: int | None = None
    progress: tuple[str, ...] = ()
    attempt: int = 0
    # rank -> a number for the place in the code where it was last seen, and since when it has been there.
    places: dict[int, tuple[int, int]] = field(default_factory=dict)


class Proof(StrEnum):
    """What shows that a job hangs."""

    WAITED_FOR = "others wait for ranks that do not come"
    CROSSWISE = "ranks wait for each other, each in something else"
    NOBODY_MOVES = "no rank has moved for a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A confirmed hang. `ranks`: those that were seen not to move, or have ended; `waiting`: those that wait for them.

    `since_ns`: of the standstill. `looks`: how often each was looked at, at least. `seen`: a line of each rank.
    """

    proof: Proof
    ranks: tuple[int, ...]
    seen: tuple[str, ...]
    waiting: tuple[int, ...] = ()
    since_ns: int = 0
    looks: int = 0
    attempt: int = 0

    def __post_init__(self) -> None:
        if not self.ranks or not self.seen:
            raise ValueError("a hang is confirmed by ranks that were seen not to move, and these are named")

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
                    f"{who} waits in something else than the ranks that wait for it"
                    if one
                    else f"{who} wait for each other, each in something else"
                )
            case Proof.NOBODY_MOVES:
                claim = f"{who} {'has' if one else 'have'} used no CPU and moved no data for {PATIENCE_SECONDS:.0f} s"
        return f"{claim}; {self.seen[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Ranks that issued different collectives at the same place of the same group.

    `calls`: rank -> its call at `index`; `windows`: rank -> its calls around it, up to 16 on either side, in order, as far as
    they are known. `counts`: rank -> calls of this group so far. `basis`: "calls" (issued from Python) or "flight recorder" (no
    call sites, reduce op, root). `backend`: of the group, "" where it is not known.
    """

    group: str
    ranks: tuple[int, ...]
    index: int
    found_ns: int
    calls: dict[int, Call]
    windows: dict[int, tuple[Call, ...]]
    counts: dict[int, int] = field(default_factory=dict)
    basis: str = "calls"
    backend: str = ""
    since_step: int | None = None
    attempt: int = 0


# ------------------------------------------------------------------------------------------------------------------- tempo


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean time per step in seconds, and how low and how high it can truly be; see diagnosis.slow.noise. `blocks`: what it rests on."""

    seconds: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """The ranks that the others wait for, beyond chance; empty where the ranks come together as far as noise lets one tell.

    `gain`: by how much a step would be shorter without them. `measured`: from the stamps of the collectives, and not from the ranks' own
    times.
    """

    ranks: tuple[int, ...] = ()
    gain: Estimate | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTiming:
    """One rank's mean step over a window, in seconds. `own_seconds`: the step without waiting for others.

    `lags`: per bucket of a step (the collectives of one step, in order) how much later than the first rank it came, median of
    the steps seen. `late_seconds`: mean over the steps of how late it was. `last_fraction`: in which share of the steps it came
    last. `periodic`: every how many steps it is late, where it is so regularly. `slow_since_step`: the last step in which it
    was not yet late. `behind`: how much later it comes than the last of the others, and `data`: in the DataLoader, both with what noise
    leaves of them. `cpu_wait_seconds`: ready to run, and without a CPU. `checkpoint_count`: how often it saved, as far back as is known.
    """

    rank: int
    host: str
    steps: int
    step_seconds: float
    data_seconds: float | None = None
    communication_seconds: float | None = None
    checkpoint_seconds: float | None = None
    own_seconds: float | None = None
    lags: tuple[float, ...] | None = None
    late_seconds: float | None = None
    last_fraction: float | None = None
    periodic: int | None = None
    cpu_fraction: float | None = None
    slow_since_step: int | None = None
    behind: Estimate | None = None
    data: Estimate | None = None
    cpu_wait_seconds: float | None = None
    checkpoint_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTiming:
    """One host over the same window, from its telemetry. Rates in bytes per second; fractions of the window."""

    host: str
    cpu_count: int | None = None
    busy_fraction: float | None = None
    steal_fraction: float | None = None
    throttled_fraction: float | None = None
    cpu_quota_cpus: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    ranks_cpu: float | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    swap_used_bytes: int | None = None
    gpus: tuple[dict[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """How the job steps, over the latest window of steady training. `step_bytes`: what one rank hands to collectives in a step.

    `spread_seconds`: how long the first rank waits in a mean step for the last one, whoever that is; `spread`: the same with what noise
    leaves of it, and `communication`: a rank's mean time in communication. `held_up`: None where it could not be judged.
    """

    window_seconds: float
    from_step: int
    to_step: int
    step_seconds: float
    ranks: tuple[RankTiming, ...]
    hosts: tuple[HostTiming, ...] = ()
    step_bytes: float | None = None
    collectives_per_step: float | None = None
    spread_seconds: float | None = None
    spread: Estimate | None = None
    communication: Estimate | None = None
    held_up: HeldUp | None = None
    at_ns: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the job would be done at its present pace. `total_from`: where the number of steps comes from."""

    at_ns: int
    step: int
    total_steps: int | None
    total_from: str
    step_seconds: float
    needed_seconds: float | None
    limit_seconds: float
    elapsed_seconds: float
    reaches_step: int
    largest_cost: str = ""
    largest_cost_fraction: float | None = None


# -------------------------------------------------------------------------------------------------------------------- case


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run as the rules see it. The newest attempt, unless it says otherwise.

    `ranks`: global rank -> its record. `exits`: failures and early ends in the order in which they happened (an exception
    counts from when it was raised). `pulses`, `looks`: rank -> newest one at the standstill. `tails`: rank -> the end of its
    stderr. `confirmation`: why the standstill was held to be a hang. `replicas`: rank -> its marks, in the order of steps.
    `missing_hosts`: what the launcher said of hosts that have not come (the `waiting` event's entries).
    """

    run: Run
    now_ns: int
    lasts: bool
    attempt: int = 0
    world_size: int | None = None
    hosts: tuple[str, ...] = ()
    ranks: Mapping[int, RankRecord] = field(default_factory=dict)
    exits: tuple[RankExit, ...] = ()
    pulses: Mapping[int, Heartbeat] = field(default_factory=dict)
    standstill: Stall | None = None
    divergences: tuple[Divergence, ...] = ()
    replicas: Mapping[int, tuple[Replica, ...]] = field(default_factory=dict)
    samplers: tuple[DataSampler, ...] = ()
    looks: Mapping[int, RankSnapshot] = field(default_factory=dict)
    host_looks: Mapping[str, HostSnapshot] = field(default_factory=dict)
    tempo: StepTiming | None = None
    forecast: Forecast | None = None
    tails: Mapping[int, str] = field(default_factory=dict)
    missing_hosts: tuple[Mapping[str, Any], ...] = ()
    confirmation: Confirmation | None = None
    events: tuple[Mapping[str, Any], ...] = ()
    telemetry: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    not_judged: tuple[str, ...] = ()

    def host_of(self, rank: int) -> str:
        """The host that a rank runs on; "?" where nothing says so."""
        record = self.ranks.get(rank)
        if record is not None:
            return record.host
        pulse = self.pulses.get(rank)
        return pulse.host if pulse is not None else "?"


def to_plain(value: Any) -> dict[str, Any]:
    """A fact as JSON has it, without what is at its default.

    Holds:   from_plain(type(value), to_plain(value)) == value
    """
    plain: dict[str, Any] = msgspec.to_builtins(value, str_keys=True)
    return {part.name: plain[part.name] for part in fields(value) if getattr(value, part.name) != _default(part)}


def _default(part: Field[Any]) -> Any:
    return part.default_factory() if part.default_factory is not MISSING else part.default


def from_plain(kind: type[T], plain: Any) -> T:
    """The fact again; keys of a later version are passed over.

    Raises:  msgspec.ValidationError: it is none
    """
    try:
        return msgspec.convert(plain, kind, strict=False)
    except (TypeError, ValueError, OverflowError) as error:
        # A half of a surrogate pair in a key, a number that no integer is: msgspec has no words of its own for these.
        raise error if isinstance(error, msgspec.ValidationError) else msgspec.ValidationError(str(error)) from None
