"""Where each rank is in its code: identical stacks folded, the user's own lines marked, DataLoader workers below their rank."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from paceline.diagnosis.snapshots import Child, Frame, RankSnapshot, ThreadStack
from paceline.diagnosis.stacks import OUR_EXCHANGE, first_users_frame, frames_of, is_own, without_our_inside
from paceline.recording.fact_json import to_plain
from paceline.recording.rank_sets import named_ranks
from paceline.spelling import plural
from paceline.terminal_text import BOLD, DIM, painted
from paceline.views.units import stamp

_STATES = {
    "R": "running",
    "S": "asleep",
    "D": "held in the kernel",
    "T": "stopped by a signal",
    "t": "held by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}
_INSTALLED = re.compile(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python3[^/]*)/")
# Frames around a collective inside the rank say nothing about the user's program.
_MOST_FRAMES = 30


def stack_text(
    run_id: str,
    snapshots: Sequence[RankSnapshot],
    *,
    lasts: bool,
    diff: bool = False,
    not_judged: Sequence[str] = (),
    color: bool = False,
) -> str:
    """One block per place in the code, the one with the most ranks first; with `diff` only those that differ from it.

    Holds:   ranks whose main threads are at the same frames are one block
    """
    groups = folded(snapshots)
    lines = [_head(run_id, snapshots, lasts)]
    if diff and groups:
        lines += ["", _majority(groups)]
        groups = groups[1:]
    for group in groups:
        lines += ["", *_block(group, color)]
    complaints = [f"not judged: {text}" for text in (*not_judged, *_complaints(snapshots))]
    if complaints:
        lines += ["", *complaints]
    return "\n".join(lines)


class StackDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.stack/2"):
    """Where each rank is, for programs."""

    run_id: str
    """Id of the run."""
    ended: bool
    """Whether the run has ended; the snapshots are then the last ones."""
    groups: tuple[tuple[int, ...], ...]
    """Ranks at the same lines, the largest group first."""
    snapshots: tuple[Mapping[str, Any], ...]
    """One for each rank, without fields at their default."""
    not_judged: tuple[str, ...]
    """What could not be looked at, and why."""


def stack_facts(
    run_id: str, snapshots: Sequence[RankSnapshot], *, lasts: bool, not_judged: Sequence[str] = ()
) -> StackDocument:
    """The same for a program: the groups of ranks, and every snapshot with all its threads."""
    return StackDocument(
        run_id=run_id,
        ended=not lasts,
        groups=tuple(tuple(snapshot.rank for snapshot in group) for group in folded(snapshots)),
        snapshots=tuple(
            _snapshot_facts(snapshot) for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.rank)
        ),
        not_judged=(*not_judged, *_complaints(snapshots)),
    )


def _snapshot_facts(snapshot: RankSnapshot) -> dict[str, Any]:
    """A snapshot with the stamp under the name that stamps have in every schema."""
    facts = to_plain(snapshot)
    return {"t_ns" if name == "at_ns" else name: value for name, value in facts.items()}


def folded(snapshots: Iterable[RankSnapshot]) -> list[list[RankSnapshot]]:
    """Groups of snapshots whose main threads are at the same frames, the largest first; a rank without a stack is a group of its own.

    Holds:   every snapshot is in one group; groups of one size in order of their first rank
    """
    groups: dict[Any, list[RankSnapshot]] = {}
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.rank):
        frames = without_our_inside(frames_of(snapshot))
        groups.setdefault(frames or snapshot.rank, []).append(snapshot)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0].rank))


def _head(run_id: str, snapshots: Sequence[RankSnapshot], lasts: bool) -> str:
    newest = max((snapshot.at_ns for snapshot in snapshots), default=0)
    count = f"{len(snapshots)} {plural(len(snapshots), 'rank')}"
    return f"{run_id}  {count} {'now' if lasts else 'at the last snapshot, ' + stamp(newest)}"


def _majority(groups: Sequence[Sequence[RankSnapshot]]) -> str:
    first = groups[0]
    frames = frames_of(first[0])
    at = f" at {_place(first_users_frame(frames) or frames[0])}" if frames else " without a stack"
    if len(groups) == 1:
        stands = "stands" if len(first) == 1 else "all stand"
        return f"{_ranks(first)} {stands}{at}: no rank differs"
    return f"most: {_ranks(first)}{at}; those that differ:"


def _block(group: Sequence[RankSnapshot], color: bool) -> list[str]:
    first = group[0]
    lines = [f"{_styled(BOLD, _ranks(group), color)}: {_doing(group)}"]
    if first.native:
        lines += [f"    {_styled(DIM, name, color)}" for name in first.native]
    lines += _frames(frames_of(first), "  ", color)
    for snapshot in group:
        lines += _threads(snapshot, color)
        lines += _children(snapshot, color)
    return lines


def _doing(group: Sequence[RankSnapshot]) -> str:
    parts = [_state(group)]
    used = [snapshot.cpu_fraction for snapshot in group if snapshot.cpu_fraction is not None]
    if used:
        parts.append(f"{_span(used)} cores")
    first = group[0]
    if any(snapshot.frozen for snapshot in group):
        parts.append("frozen by its control group")
    if first.blocked_on and first.system_call:
        parts.append(f"in {first.system_call} on {first.blocked_on}")
    if first.ping_answers and first.traceback_answers is False:
        parts.append("a thread holds the GIL")
    hosts = sorted({snapshot.host for snapshot in group})
    left = len(hosts) - 3
    where = ", ".join(hosts[:3]) + (f" and {left} more {plural(left, 'host')}" if left > 0 else "")
    parts.append(f"pid {first.pid} on {where}" if len(group) == 1 else f"on {where}")
    return ", ".join(parts)


def _state(group: Sequence[RankSnapshot]) -> str:
    states: dict[str, int] = {}
    for snapshot in group:
        word = _STATES.get(snapshot.state or "", "not there")
        states[word] = states.get(word, 0) + 1
    if len(states) == 1:
        return next(iter(states))
    return " and ".join(f"{count} {word}" for word, count in sorted(states.items(), key=lambda item: -item[1]))


def _threads(snapshot: RankSnapshot, color: bool) -> list[str]:
    """Other threads that are in the user's own code; those of libraries are in the JSON only."""
    lines: list[str] = []
    for stack in snapshot.stacks or ():
        if not stack.main and any(frame.users for frame in stack.frames):
            lines += [f"  rank {snapshot.rank}, {_thread_name(stack)}:", *_frames(stack.frames, "    ", color)]
    return lines


def _thread_name(stack: ThreadStack) -> str:
    return (
        f"thread {stack.thread}"
        if stack.thread and not stack.thread.startswith("thread")
        else stack.thread or "a thread"
    )


def _children(snapshot: RankSnapshot, color: bool) -> list[str]:
    lines: list[str] = []
    for child in snapshot.children or ():
        if child.stack:
            lines += [f"  rank {snapshot.rank}, {_child_name(child)}:", *_frames(child.stack, "    ", color)]
    return lines


def _child_name(child: Child) -> str:
    kind = "DataLoader worker" if child.role == "loader" else f"child {child.name}"
    used = "" if child.cpu_fraction is None else f", {child.cpu_fraction:.2f} cores"
    return f"{kind} {child.pid} ({_STATES.get(child.state, child.state)}{used})"


def _frames(frames: Sequence[Frame], indent: str, color: bool) -> list[str]:
    frames = without_our_inside([frame for frame in frames if not is_own(frame.file)])
    shown = frames[:_MOST_FRAMES]
    lines = [
        f"{indent}{_styled(BOLD, f'> {_place(frame)}', color)}" if frame.users else f"{indent}  {_place(frame)}"
        for frame in shown
    ]
    if len(frames) > len(shown):
        lines.append(f"{indent}  and {len(frames) - len(shown)} frames further out")
    return lines or [f"{indent}  no Python stack"]


def _styled(style: str, text: str, color: bool) -> str:
    return painted(style, text) if color else text


def _place(frame: Frame) -> str:
    # The whole path of the user's own files, so that a terminal can open it; of installed files the part after the packages.
    file = frame.file if frame.users else _INSTALLED.sub("", frame.file)
    if OUR_EXCHANGE in file:
        file = OUR_EXCHANGE.lstrip("/") + file.rpartition(OUR_EXCHANGE)[2]
    return f"{file}:{frame.line} in {frame.function}"


def _ranks(group: Sequence[RankSnapshot]) -> str:
    return named_ranks(snapshot.rank for snapshot in group)


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def _complaints(snapshots: Iterable[RankSnapshot]) -> list[str]:
    by_text: dict[str, list[int]] = {}
    for snapshot in snapshots:
        for text in snapshot.not_judged:
            by_text.setdefault(text, []).append(snapshot.rank)
    return [f"{named_ranks(ranks)}: {text}" for text, ranks in by_text.items()]
