"""Does the job stand still, since when, and who holds it up: asked once a second of the pulses of all ranks. Pure.

Ranks are compared with each other (`waits`), not with a limit of their own. The one limit is how long a rank may stand before
anybody asks, and it follows the job's own pace.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median, median_low
from zlib import crc32

from paceline.diagnosis.case import GroupCounters, Heartbeat, Level, Stall
from paceline.diagnosis.hang.progress import UNCHANGING_SECONDS, cannot_move, signs_of_progress
from paceline.diagnosis.hang.stillness import CpuUse
from paceline.diagnosis.hang.wait_graph import (
    BASES,
    CALLS,
    PHASE,
    STACKS,
    START,
    STEPS,
    Waits,
    is_in_a_wait,
    who_waits,
    with_what_is_over,
)
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import is_waiting_for_file_lock, is_waiting_in_collective, signature_of

LEAST_SECONDS = 3.0
STEPS_OF_PATIENCE = 5.0
# Before there is a step to measure by.
START_SECONDS = 5.0
# Nobody is seen to wait for anybody: everybody loads, compiles or pauses, which may take its time before it is worth a word.
ALONE_SECONDS = 30.0
_STALE_SECONDS = 10.0
_PACES_KEPT = 9
# Two of the spans over which a rank's use of CPU is counted.
_RECENT_SECONDS = 2.5


class StallDetector:
    """Fed with the newest pulse of every rank, it keeps the standstill that lasts.

    `world_size` None: only ranks that were heard of are counted.
    """

    def __init__(self, world_size: int | None = None) -> None:
        self.world_size = world_size
        self._now: Stall | None = None
        self._attempt: int | None = None
        self._paces: deque[float] = deque(maxlen=_PACES_KEPT)
        self._first_step_seconds = 0.0
        self._steps = -1
        self.cpu = CpuUse()

    def observe(self, pulses: Mapping[int, Heartbeat], now_ns: int) -> Stall | None:
        """The standstill of this moment, provisionally a stall; None while the job moves.

        Holds:   `since_ns`, `detected_ns` and `since_step` stay while it lasts
        """
        pulses = self._of_newest_attempt(pulses, now_ns)
        live = with_what_is_over({rank: pulse for rank, pulse in pulses.items() if not _leaves(pulse)})
        if not any(pulse.phase is not None for pulse in live.values()):
            self._now = None
            return None
        self._note_pace(live)
        self.cpu.note(live)
        missing = frozenset(range(self.world_size or 0)) - pulses.keys()
        gone = frozenset(rank for rank in pulses if rank not in live) | missing
        threshold = self.threshold_seconds()
        waits = _at_the_rendezvous(live, gone) or self._in_training(live, gone, threshold)
        if waits is None:
            if not self._is_only_unread(live):
                self._now = None
            return self._now
        if waits.basis == START:
            threshold = START_SECONDS
        self._now = self._continued(self._stands(waits, pulses, threshold, now_ns), pulses)
        return self._now

    def threshold_seconds(self) -> float:
        """How long a rank may stand: five steps, and three seconds at least.

        As long as only the first step is known, which lasts longer than the others: one such step and the patience of the start.
        """
        if self._paces:
            return max(LEAST_SECONDS, STEPS_OF_PATIENCE * median_low(self._paces))
        return START_SECONDS + self._first_step_seconds

    def _of_newest_attempt(self, pulses: Mapping[int, Heartbeat], now_ns: int) -> dict[int, Heartbeat]:
        newest = max((pulse.attempt for pulse in pulses.values()), default=None)
        if newest != self._attempt:
            self._attempt, self._now, self._steps = newest, None, -1
            self._paces.clear()
            self._first_step_seconds = 0.0
            self.cpu = CpuUse()
        old_ns = now_ns - int(_STALE_SECONDS * 1e9)
        return {
            rank: pulse
            for rank, pulse in pulses.items()
            if pulse.attempt == newest and (pulse.at_ns > old_ns or pulse.exit_code is not None)
        }

    def _note_pace(self, live: Mapping[int, Heartbeat]) -> None:
        """Keep the median step of the ranks whenever somebody stepped; one long step among many then changes nothing."""
        counts = [pulse.step_count or 0 for pulse in live.values()]
        if sum(counts) == self._steps:
            return
        self._steps = sum(counts)
        known = [pulse.step_seconds for pulse in live.values() if pulse.step_seconds]
        if known and max(counts) > 1:
            self._paces.append(median(known))
        elif known:
            self._first_step_seconds = median(known)

    def _in_training(self, live: Mapping[int, Heartbeat], gone: frozenset[int], threshold: float) -> Waits | None:
        stood = {rank: _stood_seconds(pulse) for rank, pulse in live.items()}
        waiting = [rank for rank, pulse in live.items() if stood[rank] >= threshold and is_in_a_wait(pulse)]
        if waiting:
            # A late rank need not have stood as long as the one that waits for it.
            standing = frozenset(rank for rank in live if stood[rank] >= threshold / 2)
            return who_waits(live, waiting, standing, gone)
        if not stood or min(stood.values()) < threshold or self._all_compute(live):
            return None
        return who_waits(live, (), frozenset(live), gone)

    def _all_compute(self, live: Mapping[int, Heartbeat]) -> bool:
        """Whether every rank has used a CPU just now, so that none waits for another. After a while they are looked at all the same."""
        recent_ns = int(_RECENT_SECONDS * 1e9)
        used = {rank: self.cpu.idle_since_ns(rank) for rank in live}
        return all(
            since is not None and pulse.at_ns - since < recent_ns and _stood_seconds(pulse) < ALONE_SECONDS
            for (rank, pulse), since in zip(live.items(), used.values(), strict=True)
        )

    def _stands(self, waits: Waits, pulses: Mapping[int, Heartbeat], threshold: float, now_ns: int) -> Stall:
        waiting = [pulses[rank] for rank in waits.waiting if rank in pulses]
        late = [pulses[rank] for rank in waits.late if rank in pulses]
        if waiting:
            since_ns = min(pulse.moved_ns for pulse in waiting)
        else:
            since_ns = max((pulse.moved_ns for pulse in (late or pulses.values())), default=now_ns)
        steps = [pulse.step_count for pulse in (waiting or late or pulses.values()) if pulse.step_count is not None]
        moving = [pulse for pulse in late if not _leaves(pulse) and _stood_seconds(pulse) < threshold / 2]
        return Stall(
            # What moves in the eyes of its own counters needs no closer look to be believed.
            level=Level.WAITING if late and len(moving) == len(late) else Level.STALL,
            progress=("its counters move",) if late and len(moving) == len(late) else (),
            since_ns=since_ns,
            detected_ns=now_ns,
            threshold_seconds=threshold,
            late=waits.late,
            waiting=waits.waiting,
            crossed=waits.crossed,
            basis=waits.basis,
            group=waits.group,
            index=waits.index,
            operation=_operation(waiting, waits.group),
            payload=_payload(waiting, waits.group),
            since_step=min(steps, default=None),
            attempt=self._attempt or 0,
        )

    def _is_only_unread(self, live: Mapping[int, Heartbeat]) -> bool:
        """Whether the ranks that waited stand as they stood, and merely did not answer this time."""
        before = self._now
        waited = [live[rank] for rank in before.waiting if rank in live] if before is not None else []
        return bool(waited) and all(
            pulse.moved_ns <= (before.detected_ns if before else 0) and (pulse.groups is None or is_in_a_wait(pulse))
            for pulse in waited
        )

    def _continued(self, found: Stall, pulses: Mapping[int, Heartbeat]) -> Stall:
        """The same standstill goes on while the ranks that wait have not moved since it began."""
        before = self._now
        if before is None or found.since_ns > before.detected_ns:
            return found
        # A second in which a flight recorder did not answer makes nobody less late.
        weaker = not found.late or BASES.index(found.basis) > BASES.index(before.basis)
        if before.late and weaker and all(_has_not_moved(rank, pulses, before.detected_ns) for rank in before.late):
            still = {rank for rank in before.waiting if _has_not_moved(rank, pulses, before.detected_ns)}
            found = replace(
                found,
                late=before.late,
                waiting=tuple(sorted((still | set(found.waiting)) - set(before.late))),
                basis=before.basis,
                group=before.group,
                index=before.index,
                operation=before.operation,
                payload=before.payload,
            )
        return replace(found, since_ns=before.since_ns, detected_ns=before.detected_ns, since_step=before.since_step)


def with_looks(standstill: Stall, looks: Mapping[int, RankSnapshot], before: Stall | None = None) -> Stall:
    """The standstill with its level and with what moves on the late ranks. Where the counters could not tell who is late, the stacks may.

    `before`: what this function said last of the same standstill; it remembers since when a busy rank has been in one place.
    Where nobody is late, whatever moves on a rank that waits is progress, and ranks of which none is seen to wait merely pause.
    A rank that nobody could look at changes nothing.
    """
    standstill = _split_by_stacks(standstill, looks)
    places = dict(before.places) if before is not None and before.since_ns == standstill.since_ns else {}
    judged = standstill.late or standstill.waiting or tuple(sorted(looks))
    seen = {rank: looks[rank] for rank in judged if rank in looks}
    here: dict[int, tuple[int, int]] = {}
    signs: dict[int, tuple[str, ...]] = {}
    for rank, look in seen.items():
        place = crc32(signature_of(look).encode())
        known = places.get(rank)
        here[rank] = (place, known[1]) if known is not None and known[0] == place else (place, look.at_ns)
        in_place_seconds = (look.at_ns - here[rank][1]) / 1e9
        signs[rank] = signs_of_progress(look, unchanging=bool(place) and in_place_seconds >= UNCHANGING_SECONDS)
    stuck = [rank for rank, found in signs.items() if not found and not _rests_on_others(rank, seen, signs, standstill)]
    if not seen or (stuck and standstill.progress and len(stuck) == len(seen)):
        return replace(standstill, places={**places, **here})
    somebody_waits = bool(standstill.waiting) or any(map(cannot_move, seen.values()))
    return replace(
        standstill,
        level=Level.STALL if stuck and somebody_waits else Level.WAITING,
        progress=tuple(dict.fromkeys(sign for found in signs.values() for sign in found)),
        places={**places, **here},
    )


def _rests_on_others(
    rank: int, looks: Mapping[int, RankSnapshot], signs: Mapping[int, tuple[str, ...]], standstill: Stall
) -> bool:
    """Whether it holds up nobody as long as other late ranks get on: nobody waits for it, or it stands before a lock of theirs."""
    if not any(signs.values()) or cannot_move(looks[rank]):
        return False
    return not standstill.waiting or is_waiting_for_file_lock(looks[rank])


def _split_by_stacks(standstill: Stall, looks: Mapping[int, RankSnapshot]) -> Stall:
    """Who waits and who is late by the stacks, where the counters cannot tell: they show nobody late, or steps and phases alone."""
    inside = {rank: answer for rank, look in looks.items() if (answer := is_waiting_in_collective(look)) is not None}
    in_a_wait = {rank for rank, answer in inside.items() if answer}
    if standstill.basis in (CALLS, PHASE) and in_a_wait.intersection(standstill.late):
        return _without_those_in_a_wait(standstill, in_a_wait)
    if standstill.late and (standstill.basis != STEPS or not in_a_wait):
        return standstill
    late = {rank for rank, answer in inside.items() if not answer}
    known = set() if standstill.basis == STEPS else set(standstill.waiting)
    waiting = in_a_wait | (known - late)
    if not (late or in_a_wait) or (not late and known) or (not waiting and len(late) < len(looks)):
        return standstill
    return replace(standstill, late=tuple(sorted(late)), waiting=tuple(sorted(waiting)), basis=STACKS)


def _without_those_in_a_wait(standstill: Stall, in_a_wait: Collection[int]) -> Stall:
    """Of the ranks that issued nothing from Python, some wait in what C++ began: a backward pass, which no recorder shows."""
    late = tuple(rank for rank in standstill.late if rank not in in_a_wait)
    return replace(
        standstill,
        late=late,
        waiting=tuple(sorted({*standstill.waiting, *standstill.late} - set(late))),
        crossed=() if late else standstill.late,
        basis=STACKS,
        # What is known of the wait is that of the ranks which issued it, and these others wait in something else.
        group=None,
        index=None,
        operation=None,
        payload=None,
    )


def _at_the_rendezvous(live: Mapping[int, Heartbeat], gone: frozenset[int]) -> Waits | None:
    """Ranks that have waited for others in init_process_group, and those that have not come there."""
    there = [
        rank for rank, pulse in live.items() if pulse.phase == "rendezvous" and _stood_seconds(pulse) >= START_SECONDS
    ]
    if not there:
        return None
    # One that has passed the rendezvous and has not stepped yet is not expected there again.
    elsewhere = {rank for rank, pulse in live.items() if pulse.phase not in ("rendezvous", "starting")}
    return Waits(tuple(sorted(there)), tuple(sorted(gone | elsewhere)), START)


def _leaves(pulse: Heartbeat) -> bool:
    """Whether it comes to no collective any more. An exit handler may still wait in one, and is then a rank that waits."""
    finalizes = pulse.finalizing_ns is not None and not is_in_a_wait(pulse)
    return pulse.exit_code is not None or pulse.exiting or finalizes


def _stood_seconds(pulse: Heartbeat) -> float:
    return max(0, pulse.at_ns - pulse.moved_ns) / 1e9


def _has_not_moved(rank: int, pulses: Mapping[int, Heartbeat], since_ns: int) -> bool:
    return rank not in pulses or pulses[rank].moved_ns <= since_ns


def _operation(waiting: list[Heartbeat], group: str | None) -> str | None:
    """What they wait in, where they agree on it and it was told or issued from Python; DDP's exchange on torch's groups is neither."""
    told = {counters.operation for counters in _waited_in(waiting, group)}
    names = told or {
        pulse.last_call.operation for pulse in waiting if pulse.phase == "communication" and pulse.last_call
    }
    return names.pop() if len(names) == 1 else None


def _payload(waiting: list[Heartbeat], group: str | None) -> str | None:
    """How much of it: "7,240 float32"."""
    told = {(counters.numel, counters.dtype) for counters in _waited_in(waiting, group)}
    numel, dtype = told.pop() if len(told) == 1 else (None, None)
    return f"{numel:,} {dtype or 'elements'}" if numel else None


def _waited_in(waiting: list[Heartbeat], group: str | None) -> list[GroupCounters]:
    return [
        counters
        for pulse in waiting
        for counters in pulse.exchanges
        if counters.name == group and counters.enqueued > counters.completed
    ]
