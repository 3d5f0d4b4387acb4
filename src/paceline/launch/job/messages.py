"""What agents say to each other, as typed records; `connection.py` carries them.

A value outside the range that its type gives is no message: it is refused before anything reads it. What counts from whom, and when, is
`protocol.py`.
"""

from typing import Annotated, Any, Literal

import msgspec

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot
from paceline.facts import RankExit, SecondaryStatus, Status
from paceline.launch.job.state import Placement

# Raised whenever agents of the version before would not understand each other.
VERSION = 5

NAME = r"\A(?!\.+\Z)[\w.:%-]{1,253}\Z"
"""What a host or a run may be called: it becomes part of a path on other hosts."""

HOST_EVENTS = frozenset(
    {
        "finding",
        "notice",
        "process_unwatched",
        "rank_exited",
        "rank_joined",
        "rank_started",
        "replica",
        "sampler",
        "sensor_missing",
        "transfer",
    }
)
"""The events that a host may report of itself. The others are the first agent's own, and nobody else's word counts for them."""

MOST_RANKS_PER_HOST = 4096
_MOST_ITEMS = 1 << 17

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
LONGEST = 1 << 16
Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
"""For people; the terminal's own filter takes control characters out."""
Code = Annotated[str, msgspec.Meta(pattern=r"\A[A-Z]{1,3}[0-9]{2,3}\Z")]
Version = Annotated[str, msgspec.Meta(pattern=r"\A[\w.+!-]{1,64}\Z")]
HostCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS_PER_HOST)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
SignalName = Annotated[str, msgspec.Meta(pattern=r"\ASIG[A-Z0-9]{1,12}\Z")]
Kind = Literal["model", "output"]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Items = msgspec.Meta(max_length=_MOST_ITEMS)


class Hello(msgspec.Struct, tag="hello", kw_only=True, frozen=True):
    """A host asks to join. `hosts_wanted` must agree with the first agent's own."""

    host_name: Name
    wanted_name: Name | None
    address: Name | None
    node_rank: Number | None
    ranks: RankCount
    hosts_wanted: tuple[HostCount, HostCount]
    paceline_version: Version


class Welcome(msgspec.Struct, tag="welcome", kw_only=True, frozen=True):
    """The first agent's answer: the run's identity and the name by which this host goes in it."""

    run_id: Name
    name: Name
    job_name: Text


class RefusedMessage(msgspec.Struct, tag="refused", kw_only=True, frozen=True):
    """Why not, in four parts. `later`: it may be possible when a host has left."""

    code: Code
    what: Text
    saw: Text
    next: Text
    later: bool = False


class Failure(msgspec.Struct, kw_only=True, frozen=True):
    """What went wrong on a host, in four parts."""

    code: Code
    what: Text
    saw: Text
    next: Text


class StartAttemptMessage(msgspec.Struct, tag="form", kw_only=True, frozen=True):
    """Start this attempt's ranks. `store_port`: where rank 0 of this attempt serves the ranks' store.

    `gradients`, `allow_lossy`: as on the first host's command line, because all ranks have to exchange in the same way. `together`: each
    host says when it has fetched its data, and starts no rank before StartWorkersMessage.
    """

    attempt: Number
    placements: tuple[Placement, ...]
    master_addr: Name
    store_port: Port
    gradients: Text | None = None
    allow_lossy: bool = False
    together: bool = False


class ReadyMessage(msgspec.Struct, tag="ready", kw_only=True, frozen=True):
    """This host has fetched its data for the attempt."""

    attempt: Number


class StartWorkersMessage(msgspec.Struct, tag="go", kw_only=True, frozen=True):
    """Every host is ready: start the attempt's ranks."""

    attempt: Number


class ClaimMessage(msgspec.Struct, tag="claim", kw_only=True, frozen=True):
    """A host wants to send these checkpoints: name -> SHA-256."""

    digests: Annotated[dict[Key, Digest], Items]


class ClaimedMessage(msgspec.Struct, tag="claimed", kw_only=True, frozen=True):
    """The answer: names that lie there already with this content, and name -> host for those that are another host's."""

    same: Annotated[list[Key], Items]
    taken: Annotated[dict[Key, Name], Items]


class GatherMessage(msgspec.Struct, tag="gather", kw_only=True, frozen=True):
    """The ranks have ended: send the last checkpoints, and what the host adds to `kinds`.

    Where to is for each host to compute, from its own --output: `storage.parts`.
    """

    kinds: Annotated[list[Kind], msgspec.Meta(max_length=2)]


class GatheredMessage(msgspec.Struct, tag="gathered", kw_only=True, frozen=True):
    """Of which kinds the host has sent its part; and what could not be sent."""

    kinds: Annotated[list[Kind], msgspec.Meta(max_length=2)]
    errors: Annotated[list[Failure], msgspec.Meta(max_length=1000)]


class StopMessage(msgspec.Struct, tag="stop", kw_only=True, frozen=True):
    signal: SignalName
    grace_seconds: Seconds
    reason: Text


class KillMessage(msgspec.Struct, tag="kill", kw_only=True, frozen=True):
    reason: Text


class FinishMessage(msgspec.Struct, tag="finish", kw_only=True, frozen=True):
    """The job has ended. `failure` is what each host writes to output/failure; empty when it went well."""

    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    status: Status
    secondary_status: SecondaryStatus
    reason: Text
    failure: Text


class ExitedMessage(msgspec.Struct, tag="exited", kw_only=True, frozen=True):
    exit: RankExit


class IdleMessage(msgspec.Struct, tag="idle", kw_only=True, frozen=True):
    attempt: Number


class EventMessage(msgspec.Struct, tag="event", kw_only=True, frozen=True):
    """One event of a host, for the first agent's events.jsonl."""

    event: dict[str, Any]


class LinesMessage(msgspec.Struct, tag="lines", kw_only=True, frozen=True):
    """Telemetry samples or log tails of a host, for the first agent's peers/ files."""

    kind: Literal["telemetry", "logs"]
    lines: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=10_000)]


class HeartbeatMessage(msgspec.Struct, tag="pulse", kw_only=True, frozen=True):
    """How far each rank of a host is, on that host's clock, and the collectives that its ranks issued since the last one."""

    pulses: Annotated[list[Heartbeat], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    calls: Annotated[list[RankCalls], Items]


class SnapshotRequest(msgspec.Struct, tag="look_request", kw_only=True, frozen=True):
    """Look closely at these ranks. `deep`: native frames too."""

    number: Number
    ranks: Annotated[list[Number], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    deep: bool = False


class SnapshotReply(msgspec.Struct, tag="look_reply", kw_only=True, frozen=True):
    number: Number
    looks: Annotated[list[RankSnapshot], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]
    hosts: Annotated[list[HostSnapshot], msgspec.Meta(max_length=1)]


class TraceRequest(msgspec.Struct, tag="trace_request", kw_only=True, frozen=True):
    """Send the newest entries of every rank's flight recorder."""

    number: Number


class TraceReply(msgspec.Struct, tag="trace_reply", kw_only=True, frozen=True):
    """rank -> the newest entries of its flight recorder, on that host's clock."""

    number: Number
    traces: Annotated[dict[Number, list[TraceEntry]], msgspec.Meta(max_length=MOST_RANKS_PER_HOST)]


class Ping(msgspec.Struct, tag="ping", kw_only=True, frozen=True):
    """Answered at once by a Pong, to tell how far two hosts' clocks are apart."""

    sent_ns: Nanoseconds


class Pong(msgspec.Struct, tag="pong", kw_only=True, frozen=True):
    sent_ns: Nanoseconds
    at_ns: Nanoseconds


class StopRequest(msgspec.Struct, tag="stop_request", kw_only=True, frozen=True):
    """Somebody at another host asked for an end: a signal at that host's agent. A command: refused without a token."""

    signal: SignalName
    reason: Text
    now: bool = False


class Beat(msgspec.Struct, tag="beat", kw_only=True, frozen=True):
    """A sign of life; `sent_ns` is the sender's Unix clock."""

    sent_ns: Nanoseconds


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
    """Raises: msgspec.DecodeError, msgspec.ValidationError: not a message of this version"""
    return _decoder.decode(payload)
