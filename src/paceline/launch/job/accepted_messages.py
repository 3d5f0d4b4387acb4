"""Which messages are accepted: from which host, in which phase, with which values. Pure. `RULES` gives the table of docs/agents.md.

The message's type says which values are possible at all. This module says which values this host may send at this moment.
"""

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from paceline.facts import Placement, RankExit
from paceline.launch.job.messages import (
    Beat,
    ClaimMessage,
    EventMessage,
    ExitedMessage,
    GatheredMessage,
    HeartbeatMessage,
    IdleMessage,
    LinesMessage,
    Message,
    Pong,
    ReadyMessage,
    RefusedMessage,
    ResumedMessage,
    SnapshotReply,
    StartAttemptMessage,
    StopMessage,
    StopRequest,
    TraceReply,
)
from paceline.launch.job.outcome import MISMATCH_CODE
from paceline.launch.job.state import JobPhase
from paceline.storage.urls import safe_key

_DEEPEST = 12
_LONGEST_TEXT = 1 << 16
_LARGEST_NUMBER = 1 << 63


class Sender(StrEnum):
    """Which hosts may send a message."""

    JOINED = "a host that has joined"
    PLACED = "a host of the newest attempt"
    PROVEN = "a host that has joined with the token"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingHost:
    """What the coordinator knows about the host that sends a message."""

    phase: JobPhase
    """Phase of the job."""
    attempt: int
    """Number of the newest attempt, counted from 0."""
    proven: bool
    """The host has proven that it holds the shared token."""
    placement: Placement | None
    """The host's part of the newest attempt; None: the host has no part in it."""
    gathering: frozenset[str] | None = None
    """Kinds of archives that the coordinator asked the hosts for after the ranks' end; None: it has not asked yet."""
    has_gathered: bool = False
    """The host has answered that request."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a message is not accepted."""

    text: str
    """Which message it is and what is wrong with it, for people."""
    breach: bool = False
    """The message cannot be explained by timing: the connection ends."""
    told: bool = False
    """The objection is shown to the user."""


@dataclass(frozen=True, slots=True)
class MessageRule:
    """From which hosts, in which phases and with which values one type of message is accepted."""

    sender: Sender
    """Which hosts may send the message."""
    phases: frozenset[JobPhase]
    """Phases of the job in which the message is accepted."""
    ranges: str = ""
    """What `check` requires beyond the message's type, in words, for docs/agents.md."""
    check: Callable[[Any, SendingHost], str] = field(default=lambda message, sender: "")
    """Says what is wrong with the message's values; an empty text: nothing is wrong."""


def objection(message: Message, sender: SendingHost) -> Objection | None:
    """The objection to a message of a host that has joined; None: the message is accepted.

    Holds:   a message without a rule is a breach; from a host without a placement only Beat, Pong and a proven StopRequest are accepted
    """
    name = tag(type(message))
    rule = RULES.get(type(message))
    if rule is None:
        return Objection(f"a host may not send message {name!r}", breach=True)
    if rule.sender is Sender.PROVEN and not sender.proven:
        return Objection(f"{name!r} counts from {Sender.PROVEN} alone", told=True)
    if rule.sender is Sender.PLACED and sender.placement is None:
        return Objection(f"{name!r} counts from {Sender.PLACED} alone", told=True)
    if sender.phase not in rule.phases:
        return Objection(f"{name!r} does not count while the job is {sender.phase}")
    if fault := rule.check(message, sender):
        return Objection(f"{name!r}: {fault}", breach=True)
    return None


def objection_to_first(message: Message, own_name: str, own_ranks: int) -> str:
    """What is wrong with a message of the coordinator; empty: the host obeys it."""
    match message:
        case StartAttemptMessage():
            own = [placed for placed in message.placements if placed.host == own_name]
            if [placed.ranks for placed in own] != [own_ranks] or not _follow(message.placements):
                return f"placements that are not {own_name}'s with {own_ranks} ranks"
            if not message.store_port:
                return "no port of the store"
            if message.resume_step is not None and message.attempt == 0:
                return "a kept step before the first attempt"
        case StopMessage() if message.signal not in signal.Signals.__members__:
            return f"a signal {message.signal!r}"
    return ""


# ---------------------------------------------------------------------------------------------------------------- ranges


def _follow(placements: Iterable[Placement]) -> bool:
    """Whether ranks and node ranks count up from 0 without a gap, on different hosts with possible ports."""
    rank, seen = 0, set()
    for node_rank, placed in enumerate(placements):
        if (placed.node_rank, placed.first_rank) != (node_rank, rank) or placed.ranks < 1:
            return False
        if not all(1 <= port <= 65535 for port in placed.ports):
            return False
        rank += placed.ranks
        seen.add(placed.host)
    return len(seen) == len(tuple(placements))


def _of_host(ranks: Iterable[int], sender: SendingHost) -> str:
    """What is wrong with these ranks: the first rank that is not on the sending host; empty: all ranks are on it."""
    placed = sender.placement
    assert placed is not None
    others = sorted({rank for rank in ranks if not 0 <= rank - placed.first_rank < placed.ranks})
    return f"rank {others[0]} is not on this host" if others else ""


def _exited(message: ExitedMessage, sender: SendingHost) -> str:
    exit: RankExit = message.exit
    if not -64 <= exit.code <= 255:
        return f"an exit code of {exit.code}"
    if not 0 <= exit.attempt <= sender.attempt:
        return f"attempt {exit.attempt}"
    if exit.state_mismatch and exit.code != MISMATCH_CODE:
        return f"a state that is not the kept one with code {exit.code}"
    if exit.not_put_back and exit.code == 0:
        return "a state that was not put back with code 0"
    return _of_host([exit.rank], sender) or _plain(asdict(exit))


def _attempt(message: IdleMessage | ReadyMessage | ResumedMessage, sender: SendingHost) -> str:
    return f"attempt {message.attempt}" if message.attempt > sender.attempt else ""


def _idle(message: IdleMessage, sender: SendingHost) -> str:
    return _attempt(message, sender) or _of_host(message.kept or (), sender)


def _claim(message: ClaimMessage, sender: SendingHost) -> str:
    return next((f"{name!r}: {why}" for name in message.digests if (why := safe_key(name))), "")


def _gathered(message: GatheredMessage, sender: SendingHost) -> str:
    if sender.gathering is None or sender.has_gathered:
        return "nobody asked"
    others = sorted(set(message.kinds) - sender.gathering)
    return f"{others[0]} was not asked for" if others else ""


def _event(message: EventMessage, sender: SendingHost) -> str:
    return _plain(message.event)


def _lines(message: LinesMessage, sender: SendingHost) -> str:
    return next((fault for line in message.lines if (fault := _plain(line))), "")


def _stop(message: StopRequest, sender: SendingHost) -> str:
    return "" if message.signal in signal.Signals.__members__ else f"a signal {message.signal!r}"


def _plain(value: Any, depth: int = 0) -> str:
    """What is wrong with a value of free form: nested too deep, too long, or a number out of range; empty: nothing is wrong."""
    match value:
        case bool() | None:
            return ""
        case int() | float():
            return "" if -_LARGEST_NUMBER < value < _LARGEST_NUMBER else "a number out of range"
        case str():
            return "" if len(value) <= _LONGEST_TEXT else f"a text of {len(value)} characters"
    if depth == _DEEPEST:
        return "values nested too deep"
    items = (*value.keys(), *value.values()) if isinstance(value, Mapping) else value
    return next((fault for item in items if (fault := _plain(item, depth + 1))), "")


# ----------------------------------------------------------------------------------------------------------------- rules

_ANY = frozenset(JobPhase)
_STARTED = frozenset({JobPhase.FETCHING, JobPhase.RUNNING, JobPhase.STOPPING})
_NEWEST = "attempt: not after the newest"
_FREE = f"numbers below 2^63, texts of at most {_LONGEST_TEXT} characters, at most {_DEEPEST} deep"
# A script that starts its own ranks may number them differently from the placements: that is no breach.
_OWN_RANKS = "what is said of another host's ranks is passed over"

RULES: Mapping[type, MessageRule] = {
    ReadyMessage: MessageRule(Sender.PLACED, frozenset({JobPhase.FETCHING}), _NEWEST, _attempt),
    # What is judged of an exit may come while the job waits for the next attempt's hosts, or after its end.
    ExitedMessage: MessageRule(
        Sender.PLACED, _ANY, f"a rank of this host; code -64 to 255; {_NEWEST}; {_FREE}", _exited
    ),
    IdleMessage: MessageRule(
        Sender.PLACED, _STARTED, f"{_NEWEST}; ranks of this host, at most 2 steps each, from 1", _idle
    ),
    ResumedMessage: MessageRule(Sender.PLACED, _STARTED, _NEWEST, _attempt),
    RefusedMessage: MessageRule(Sender.PLACED, _STARTED),
    ClaimMessage: MessageRule(Sender.PLACED, _ANY, "names that stay below the checkpoints' directory", _claim),
    GatheredMessage: MessageRule(
        Sender.PLACED, frozenset({JobPhase.ENDED}), "once, after it was asked; kinds that were asked for", _gathered
    ),
    EventMessage: MessageRule(Sender.PLACED, _ANY, f"events of hosts, others are passed over; {_FREE}", _event),
    LinesMessage: MessageRule(Sender.PLACED, _ANY, _FREE, _lines),
    HeartbeatMessage: MessageRule(Sender.PLACED, _ANY, _OWN_RANKS),
    SnapshotReply: MessageRule(Sender.PLACED, _ANY, f"a number that is waited for; {_OWN_RANKS}"),
    TraceReply: MessageRule(Sender.PLACED, _ANY, f"a number that is waited for; {_OWN_RANKS}"),
    StopRequest: MessageRule(Sender.PROVEN, _ANY, "a signal that this machine knows", _stop),
    Pong: MessageRule(Sender.JOINED, _ANY),
    Beat: MessageRule(Sender.JOINED, _ANY),
}


def tag(kind: type) -> str:
    """The name of a message type on the wire."""
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]
