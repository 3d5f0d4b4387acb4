"""Brings what another host says onto this host's clock."""

from collections.abc import Iterable
from dataclasses import replace

from paceline.diagnosis.case import Call, Heartbeat
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import TraceEntry


def pulse_here(pulse: Heartbeat, offset_ns: int) -> Heartbeat:
    """The pulse with its stamps on this host's clock; `offset_ns` is the other clock minus this one."""
    return replace(
        pulse,
        at_ns=pulse.at_ns - offset_ns,
        moved_ns=pulse.moved_ns - offset_ns,
        last_step_ns=None if pulse.last_step_ns is None else pulse.last_step_ns - offset_ns,
        phase_since_ns=None if pulse.phase_since_ns is None else pulse.phase_since_ns - offset_ns,
        finalizing_ns=None if pulse.finalizing_ns is None else pulse.finalizing_ns - offset_ns,
        last_call=None if pulse.last_call is None else call_here(pulse.last_call, offset_ns),
    )


def call_here(call: Call, offset_ns: int) -> Call:
    return replace(call, issued_ns=call.issued_ns - offset_ns)


def calls_here(of_rank: RankCalls, offset_ns: int) -> RankCalls:
    return replace(of_rank, calls=tuple(call_here(call, offset_ns) for call in of_rank.calls))


def entries_here(entries: Iterable[TraceEntry], offset_ns: int) -> tuple[TraceEntry, ...]:
    """Entries of a flight recorder; one without a stamp stays as it is."""
    if offset_ns == 0:
        return tuple(entries)
    return tuple(
        entry if entry.created_ns is None else replace(entry, created_ns=entry.created_ns - offset_ns)
        for entry in entries
    )
