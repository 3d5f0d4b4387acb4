"""What agents say to each other, as typed records; `wire.py` carries them."""

from typing import Annotated, Any, Literal

import msgspec

from paceline.diagnosis.calls import RankCalls
from paceline.diagnosis.case import Pulse
from paceline.diagnosis.looks import HostLook, Look
from paceline.diagnosis.traces import TraceEntry
from paceline.facts import RankExit
from paceline.launch.state import Placement

# Raised whenever agents of the version before would not understand each other.
VERSION = 4

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

Name = Annotated[str, msgspec.Meta(pattern=NAME)]


class Hello(msgspec.Struct, tag="hello", kw_only=True, frozen=True):
    """A host asks to join. `hosts_wanted` must agree with the first agent's own."""

    host_name: str
    wanted_name: str | None
    address: str | None
    node_rank: int | None
    ranks: int
    hosts_wanted: tuple[int, int]
    paceline_version: str


class Welcome(msgspec.Struct, tag="welcome", kw_only=True, frozen=True):
    """The first agent's answer: the run's identity and the name by which this host goes in it."""

    run_id: Name
    name: Name
    job_name: str


class Refused(msgspec.Struct, tag="refused", kw_only=True, frozen=True):
    code: str
    what: str
    saw: str
    next: str


class FormMessage(msgspec.Struct, tag="form", kw_only=True, frozen=True):
    """Start this attempt's ranks. `store_port`: where rank 0 of this attempt serves the ranks' store.

    `gradients`, `allow_lossy`: as on the first host's command line, because all ranks have to exchange in the same way. `together`: each
    host says when it has fetched its data, and starts no rank before GoMessage.
    """

    attempt: int
    placements: tuple[Placement, ...]
    master_addr: str
    store_port: int
    gradients: str | None = None
    allow_lossy: bool = False
    together: bool = False


class ReadyMessage(msgspec.Struct, tag="ready", kw_only=True, frozen=True):
    """This host has fetched its data for the attempt."""

    attempt: int


class GoMessage(msgspec.Struct, tag="go", kw_only=True, frozen=True):
    """Every host is ready: start the attempt's ranks."""

    attempt: int


class ClaimMessage(msgspec.Struct, tag="claim", kw_only=True, frozen=True):
    """A host wants to send these checkpoints: name -> SHA-256."""

    digests: dict[str, str]


class ClaimedMessage(msgspec.Struct, tag="claimed", kw_only=True, frozen=True):
    """The answer: names that lie there already with this content, and name -> host for those that are another host's."""

    same: list[str]
    taken: dict[str, str]


class GatherMessage(msgspec.Struct, tag="gather", kw_only=True, frozen=True):
    """The ranks have ended: send the last checkpoints, and what the host adds to `kinds` (model, output) below this prefix."""

    kinds: list[str]
    prefix: str | None


class GatheredMessage(msgspec.Struct, tag="gathered", kw_only=True, frozen=True):
    """What the host has sent: kind -> URL of its part; and what could not be, in four parts."""

    parts: dict[str, str]
    errors: list[dict[str, str]]


class StopMessage(msgspec.Struct, tag="stop", kw_only=True, frozen=True):
    signal: str
    grace_seconds: float
    reason: str


class KillMessage(msgspec.Struct, tag="kill", kw_only=True, frozen=True):
    reason: str


class FinishMessage(msgspec.Struct, tag="finish", kw_only=True, frozen=True):
    """The job has ended. `failure` is what each host writes to output/failure; empty when it went well."""

    exit_code: int
    status: str
    secondary_status: str
    reason: str
    failure: str


class ExitedMessage(msgspec.Struct, tag="exited", kw_only=True, frozen=True):
    exit: RankExit


class IdleMessage(msgspec.Struct, tag="idle", kw_only=True, frozen=True):
    attempt: int


class EventMessage(msgspec.Struct, tag="event", kw_only=True, frozen=True):
    """One event of a host, for the first agent's events.jsonl."""

    event: dict[str, Any]


class LinesMessage(msgspec.Struct, tag="lines", kw_only=True, frozen=True):
    """Telemetry samples or log tails of a host, for the first agent's peers/ files."""

    kind: Literal["telemetry", "logs"]
    lines: list[dict[str, Any]]


class PulseMessage(msgspec.Struct, tag="pulse", kw_only=True, frozen=True):
    """How far each rank of a host is, on that host's clock, and the collectives that its ranks issued since the last one."""

    pulses: list[Pulse]
    calls: list[RankCalls]


class LookRequest(msgspec.Struct, tag="look_request", kw_only=True, frozen=True):
    """Look closely at these ranks. `deep`: native frames too."""

    number: int
    ranks: list[int]
    deep: bool = False


class LookReply(msgspec.Struct, tag="look_reply", kw_only=True, frozen=True):
    number: int
    looks: list[Look]
    hosts: list[HostLook]


class TraceRequest(msgspec.Struct, tag="trace_request", kw_only=True, frozen=True):
    """Send the newest entries of every rank's flight recorder."""

    number: int


class TraceReply(msgspec.Struct, tag="trace_reply", kw_only=True, frozen=True):
    """rank -> the newest entries of its flight recorder, on that host's clock."""

    number: int
    traces: dict[int, list[TraceEntry]]


class Ping(msgspec.Struct, tag="ping", kw_only=True, frozen=True):
    """Answered at once by a Pong, to tell how far two hosts' clocks are apart."""

    sent_ns: int


class Pong(msgspec.Struct, tag="pong", kw_only=True, frozen=True):
    sent_ns: int
    at_ns: int


class StopRequest(msgspec.Struct, tag="stop_request", kw_only=True, frozen=True):
    """Somebody at another host asked for an end: a signal at that host's agent. A command: refused without a token."""

    signal: str
    reason: str
    now: bool = False


class Beat(msgspec.Struct, tag="beat", kw_only=True, frozen=True):
    """A sign of life; `sent_ns` is the sender's Unix clock."""

    sent_ns: int


Message = (
    Hello
    | Welcome
    | Refused
    | FormMessage
    | ReadyMessage
    | GoMessage
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
    | PulseMessage
    | LookRequest
    | LookReply
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
