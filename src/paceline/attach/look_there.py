"""Looks at the ranks of a job on other hosts, all at once. A host that does not answer is not judged."""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from paceline.attach.evidence import HostEvidence, Round
from paceline.attach.look_here import LookedHere, LookRequest
from paceline.launch.coordinator.hang_monitor import entries_here, heartbeat_here

AT_ONCE = 64
SECONDS = 20.0
_MOST_BYTES = 64 << 20
_LONGEST_REASON = 200
# Of two clocks that differ by less, the way of the answer says nothing.
_CLOCKS_DIFFER_NS = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedThere:
    """What other hosts have seen."""

    evidence: tuple[HostEvidence, ...] = ()
    """Of each host that has ranks of the job, with stamps of this host's clock."""
    notes: tuple[str, ...] = ()
    """Which hosts were not looked at, and why."""


def argv_of(request: LookRequest) -> list[str]:
    """The command that looks, for a shell's words: by the Python of this path if the host has it, else by its own."""
    words = ["-P", "-m", "paceline.attach.look_here", msgspec.json.encode(request).decode()]
    own = shlex.quote(sys.executable)
    return ["sh", "-c", f'[ -x {own} ] && exec {own} "$@"; exec python3 "$@"', "look", *words]


def look_there(commands: Sequence[tuple[str, Sequence[str]]]) -> LookedThere:
    """The answers of these places: (what it is called, the command that runs `argv_of` there)."""
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(commands)))) as pool:
        answers = list(pool.map(lambda one: _ask(*one), commands))
    return LookedThere(
        evidence=tuple(seen for answer in answers for seen in answer.evidence),
        notes=tuple(note for answer in answers for note in answer.notes),
    )


def _ask(name: str, command: Sequence[str]) -> LookedThere:
    refused = partial(_not_looked, name)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return refused(f"{command[0]} cannot be started: {error.strerror}")
    with process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return refused(f"no answer within {SECONDS:.0f} s")
        received_ns = time.time_ns()
    found, said = [], err.decode(errors="replace").strip().splitlines()
    # Of a Slurm job each node has a line.
    for line in out[:_MOST_BYTES].splitlines():
        try:
            found.append(msgspec.json.decode(line, type=LookedHere))
        except (msgspec.MsgspecError, RecursionError):
            said = said or [line[:_LONGEST_REASON].decode(errors="replace")]
    if not found:
        return refused((said or [f"its command ended with {process.returncode}"])[-1][:_LONGEST_REASON])
    return LookedThere(
        evidence=tuple(_on_this_clock(one, received_ns) for answer in found for one in answer.evidence),
        notes=tuple(f"{name}: it has no rank of this job" for answer in found if not answer.evidence),
    )


def _not_looked(name: str, why: str) -> LookedThere:
    return LookedThere(notes=(f"{name}: it was not looked at: {why}",))


def _on_this_clock(one: HostEvidence, received_ns: int) -> HostEvidence:
    """The same with its stamps on this host's clock; clocks that agree but for the way of the answer stay as they are."""
    offset_ns = one.clock_ns - received_ns
    if not one.clock_ns or abs(offset_ns) < _CLOCKS_DIFFER_NS:
        return one
    return replace(
        one,
        rounds=tuple(_round_here(each, offset_ns) for each in one.rounds),
        ranks=tuple(replace(rank, entries=entries_here(rank.entries, offset_ns)) for rank in one.ranks),
    )


def _round_here(each: Round, offset_ns: int) -> Round:
    return Round(
        at_ns=each.at_ns - offset_ns,
        heartbeats=tuple(heartbeat_here(heartbeat, offset_ns) for heartbeat in each.heartbeats),
        snapshots=tuple(replace(snapshot, at_ns=snapshot.at_ns - offset_ns) for snapshot in each.snapshots),
        host=replace(each.host, at_ns=each.host.at_ns - offset_ns),
    )
