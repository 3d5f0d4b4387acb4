"""The messages between agents, as typed records; `framed_connection.py` carries them.

A message with a value outside the range of its type is refused before any code reads it. `accepted_messages.py` says which host may send
which message, and in which phase.
"""

from typing import Annotated, Any, Literal

import msgspec

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import Placement, RankExit
from paceline.launch.job.outcome import Outcome

# The number goes up when agents of the previous version would not understand the messages.
VERSION = 9

NAME = r"\A(?!\.+\Z)[\w.:%-]{1,253}\Z"
"""Pattern of the name of a host or a run. The name becomes part of a path on other hosts."""

HOST_EVENTS = frozenset(
    {
        "finding",
        "fork_server",
        "notice",
        "process_unwatched",
        "rank_joined",
        "rank_started",
        "replica",
        "sampler",
        "sensor_missing",
        "transfer",
    }
)
"""The events that a host may report of itself. Only the coordinator records the other events."""

MOST_RANKS_PER_HOST = 4096
_MOST_ITEMS = 1 << 17

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
LONGEST = 1 << 16
Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
"""Text for people. A filter before the terminal removes control characters."""
Code = Annotated[str, msgspec.Meta(pattern=r"\A[A-Z]{1,3}[0-9]{2,3}\Z")]
Version = Annotated[str, msgspec.Meta(pattern=r"\A[\w.+!-]{1,64}\Z")]
HostCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS_PER_HOST)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Ports = Annotated[tuple[Port, ...], msgspec.Meta(max_length=MOST_RANKS_PER_HOST + 1)]
StepNumber = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
StepCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
HashSeed = Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
SignalName = Annotated[str, msgspec.Meta(pattern=r"\ASIG[A-Z0-9]{1,12}\Z")]
Kind = Literal["model", "output"]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Items = msgspec.Meta(max_length=_MOST_ITEMS)


class Hello(msgspec.Struct, tag="hello", kw_only=True, frozen=True):
    """A host asks to join the job."""

    host_name: Name
    """The machine's own name, or its address if the name does not resolve to that address."""
    wanted_name: Name | None
    """The name from the host's command line; None: the command line gives none."""
    address: Name | None
    """The address by which the other hosts reach this host; None: not known."""
    node_rank: Number | None
    """The node rank that the host asks for; None: the coordinator places the host by arrival."""
    ranks: RankCount
    """Number of ranks that the host starts."""
    hosts_wanted: tuple[HostCount, HostCount]
    """The least and the greatest number of hosts of the job. They must equal the coordinator's."""
    paceline_version: Version
    """The version of paceline on the host."""
    ports: Ports = ()
    """Free ports of the host for servers of its ranks; empty: its job needs none."""


class Welcome(msgspec.Struct, tag="welcome", kw_only=True, frozen=True):
    """The coordinator admits the host."""

    run_id: Name
    """Id of the run."""
    name: Name
    """The name of this host in the run."""
    job_name: Text
    """Name of the job."""


class RefusedMessage(msgspec.Struct, tag="refused", kw_only=True, frozen=True):
    """The coordinator does not admit a host, or a host cannot start its ranks. The reason has four parts."""

    code: Code
    """Code of the reason, such as U12."""
    what: Text
    """What happened."""
    saw: Text
    """What was seen, and what was expected."""
    next: Text
    """What to do."""
    later: bool = False
    """The host may try again, because a place may become free."""


class Failure(msgspec.Struct, kw_only=True, frozen=True):
    """What failed on a host, in four parts."""

    code: Code
    """Code of the failure, such as E52."""
    what: Text
    """What happened."""
    saw: Text
    """What was seen, and what was expected."""
    next: Text
    """What to do."""


class StartAttemptMessage(
    msgspec.Struct, tag="form", rename={"placements": "hosts"}, omit_defaults=True, kw_only=True, frozen=True
):
    """Start this attempt's ranks, with a new store. `attempt_started` in events.jsonl has the same keys."""

    attempt: Number
    """Number of the attempt, counted from 0."""
    placements: tuple[Placement, ...]
    """Each host's part of the attempt, in order of node rank."""
    master_addr: Name
    """The host on which rank 0 serves the ranks' store."""
    store_port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    """Port of that store; 0, until the message is sent: a port that is free then."""
    gradients: Text | None = None
    """The strategy of the coordinator's --gradients, because all ranks must exchange in the same way; None: the script's own exchange."""
    allow_lossy: bool = False
    """The coordinator's --set allow_lossy: `auto` may choose a strategy that is not exact."""
    together: bool = False
    """Each host sends ReadyMessage when it has fetched its data, and starts no rank before StartWorkersMessage."""
    resume_step: StepNumber | None = None
    """The kept step from which the ranks go on; None: they begin at the start of the script."""
    keeps_state: bool = True
    """The ranks keep their state if the job does; False: an attempt could not put its state back, and no further one keeps any."""
    agent_store: bool = False
    """The first host's agent lets a process hold the store, and all ranks are its clients; False: rank 0 serves it."""
    hash_seed: HashSeed | None = None
    """PYTHONHASHSEED of the ranks of a job that resumes, so that sets have one order in every attempt; None: the ranks have none."""

    @property
    def world_size(self) -> int:
        return sum(placement.ranks for placement in self.placements)


class ReadyMessage(msgspec.Struct, tag="ready", kw_only=True, frozen=True):
    """This host has fetched its data for the attempt."""

    attempt: Number
    """Number of the attempt."""


class StartWorkersMessage(msgspec.Struct, tag="go", kw_only=True, frozen=True):
    """Every host is ready: start the attempt's ranks."""

    attempt: Number
    """Number of the attempt."""


class ClaimMessage(msgspec.Struct, tag="claim", kw_only=True, frozen=True):
    """A host wants to send checkpoint files."""

    digests: Annotated[dict[Key, Digest], Items]
    """Name of each file -> SHA-256 of its content."""


class ClaimedMessage(msgspec.Struct, tag="claimed", kw_only=True, frozen=True):
    """The answer to ClaimMessage. Names in neither field belong to the host that asked."""

    same: Annotated[list[Key], Items]
    """Names that are in the store already with this content."""
    taken: Annotated[dict[Key, Name], Items]
    """Names that belong to another host -> that host."""


class GatherMessage(msgspec.Struct, tag="gather", kw_only=True, frozen=True):
    """The ranks have ended: send the last checkpoints and this host's part of each archive.

    Each host computes the destination from its own --output: `storage.parts`.
    """

    kinds: Annotated[list[Kind], msgspec.Meta(max_length=2)]
    """The archives to which the host adds its part."""


class GatheredMessage(msgspec.Struct, tag="gathered", kw_only=True, frozen=True):
    """The answer to GatherMessage."""

    kinds: Annotated[list[Kind], msgspec.Meta(max_length=2)]
    """The archives to which the host has sent its part."""
    errors: Annotated[list[Failure], msgspec.Meta(max_length=1000)]
    """What the host could not send."""


class StopMessage(msgspec.Struct, tag="stop", kw_only=True, frozen=True):
    """Send a signal to every rank, and SIGKILL to the ranks that are left after the grace."""

    signal: SignalName
    """Name of the signal, such as SIGTERM."""
    grace_seconds: Seconds
    """Time between the signal and SIGKILL."""
    reason: Text
    """Why, for people."""
    after_failure: bool = False
    """A rank or a host has failed, or hangs: the other ranks cannot save what they have made together."""


class KillMessage(msgspec.Struct, tag="kill", kw_only=True, frozen=True):
    """Send SIGKILL to every rank."""

    reason: Text
    """Why, for people."""
    at_once: bool = False
    """The state of the ranks is kept: report the end of the ranks before it is judged why they ended."""


class FinishMessage(msgspec.Struct, tag="finish", kw_only=True, frozen=True):
    """The job has ended."""

    outcome: Outcome
    """How it ended."""


class ExitedMessage(msgspec.Struct, tag="exited", kw_only=True, frozen=True):
    """A rank of this host has ended."""

    exit: RankExit
    """Which rank ended, and how."""
    early: bool = False
    """The exit is reported again when it is known why the rank ended."""
    resumable: bool = False
    """The rank or a loader worker of it was killed in its work, by nobody of this job, and its host keeps the state of its ranks."""
    out_of_memory: bool = False
    """The kernel killed a process for memory in the meantime."""


KeptSteps = Annotated[
    dict[Number, Annotated[list[StepNumber], msgspec.Meta(max_length=2)]], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)
]


class IdleMessage(msgspec.Struct, tag="idle", kw_only=True, frozen=True):
    """No rank of the attempt is left on this host."""

    attempt: Number
    """Number of the attempt."""
    kept: KeptSteps | None = None
    """Rank -> the steps whose state this host keeps; None: the host keeps no state, or one of its ranks has refused."""
    step_count: StepCount = 0
    """The greatest number of steps that a rank of this host has made, as far as the host keeps state."""
    made_count: StepCount = 0
    """The same as the ranks themselves have counted in this attempt; 0: it is not known yet."""
    ports: Ports = ()
    """Free ports of this host for the next attempt; empty: the job needs none."""


class ResumedMessage(msgspec.Struct, tag="resumed", kw_only=True, frozen=True):
    """Every rank of this host has its state again, and has made a step since."""

    attempt: Number
    """Number of the attempt."""
    stepped_ns: Nanoseconds
    """When the last of these first steps ended, in Unix ns on this host's clock."""


class EventMessage(msgspec.Struct, tag="event", kw_only=True, frozen=True):
    """One event of a host, for the coordinator's events.jsonl."""

    event: dict[str, Any]
    """The event with its fields, as plain data."""


class LinesMessage(msgspec.Struct, tag="lines", kw_only=True, frozen=True):
    """Telemetry samples or log tails of a host, for the coordinator's peers/ files."""

    kind: Literal["telemetry", "logs"]
    """What the lines are."""
    lines: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=10_000)]
    """The lines, as plain data."""


class HeartbeatMessage(msgspec.Struct, tag="pulse", rename={"heartbeats": "pulses"}, kw_only=True, frozen=True):
    """The progress of each rank of a host. Stamps are on that host's clock."""

    heartbeats: Annotated[list[Heartbeat], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    """One heartbeat for each rank that has a ring."""
    calls: Annotated[list[RankCalls], Items]
    """The collectives that the ranks issued since the last such message."""


class SnapshotRequest(msgspec.Struct, tag="look_request", kw_only=True, frozen=True):
    """Take a snapshot of these ranks."""

    number: Number
    """Number of the request."""
    ranks: Annotated[list[Number], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    """The global ranks."""
    deep: bool = False
    """The snapshot includes native frames."""


class SnapshotReply(msgspec.Struct, tag="look_reply", rename={"snapshots": "looks"}, kw_only=True, frozen=True):
    """The answer to SnapshotRequest."""

    number: Number
    """Number of the request."""
    snapshots: Annotated[list[RankSnapshot], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    """The snapshots of the ranks."""
    hosts: Annotated[list[HostSnapshot], msgspec.Meta(max_length=1)]
    """The snapshot of the host."""


class TraceRequest(msgspec.Struct, tag="trace_request", kw_only=True, frozen=True):
    """Send the newest entries of every rank's flight recorder."""

    number: Number
    """Number of the request."""
    finished: bool = False
    """Also those that are over where the recorder gives them out only with the GIL."""


class TraceReply(msgspec.Struct, tag="trace_reply", kw_only=True, frozen=True):
    """The answer to TraceRequest."""

    number: Number
    """Number of the request."""
    traces: Annotated[dict[Number, list[TraceEntry]], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    """Rank -> the newest entries of its flight recorder, on that host's clock."""


class Ping(msgspec.Struct, tag="ping", kw_only=True, frozen=True):
    """Ask for a Pong at once. The two messages measure the difference of the hosts' clocks."""

    sent_ns: Nanoseconds
    """When the Ping was sent, in Unix ns on the sender's clock."""


class Pong(msgspec.Struct, tag="pong", kw_only=True, frozen=True):
    """The answer to Ping."""

    sent_ns: Nanoseconds
    """The Ping's `sent_ns`."""
    at_ns: Nanoseconds
    """When the Ping was answered, in Unix ns on the clock of the host that answers."""


class StopRequest(msgspec.Struct, tag="stop_request", kw_only=True, frozen=True):
    """The agent of another host was signalled, and asks for the end of the job. Without a token this command is refused."""

    signal: SignalName
    """Name of the signal that the ranks get first."""
    reason: Text
    """Why, for people."""
    now: bool = False
    """The ranks are killed without a grace."""


class Beat(msgspec.Struct, tag="beat", kw_only=True, frozen=True):
    """A sign of life."""

    sent_ns: Nanoseconds
    """When it was sent, in Unix ns on the sender's clock."""


Message = (
    Hello
    | Welcome
    | RefusedMessage
    | StartAttemptMessage
    | ReadyMessage
    | StartWorkersMessage
    | ClaimMessage
    | ClaimedMessage
    | GatherMessage
    | GatheredMessage
    | StopMessage
    | KillMessage
    | FinishMessage
    | ExitedMessage
    | IdleMessage
    | ResumedMessage
    | EventMessage
    | LinesMessage
    | StopRequest
    | HeartbeatMessage
    | SnapshotRequest
    | SnapshotReply
    | TraceRequest
    | TraceReply
    | Ping
    | Pong
    | Beat
)

encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def decode(payload: bytes) -> Message:
    """Decode a message.

    Raises:  msgspec.DecodeError, msgspec.ValidationError: the payload is not a message of this version
    """
    return _decoder.decode(payload)
