"""Does the job make progress, since when not, and which ranks delay it? Answered from the heartbeats of all ranks. Pure.

Ranks are compared with each other (`waits`), not with a fixed limit. The only limit is how long a rank may make no progress before
it is suspected, and it depends on the job's own step time.
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
    HOST_RECORDER,
    PHASE,
    STACKS,
    START,
    STEPS,
    Waits,
    is_in_a_wait,
    who_waits,
    with_known_numbers,
    with_what_is_over,
)
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import is_waiting_for_file_lock, is_waiting_in_collective, signature_of

LEAST_SECONDS = 3.0
STEPS_OF_PATIENCE = 5.0
# Before there is a step to measure by.
START_SECONDS = 5.0
# No rank is seen to wait for another: all load, compile or pause, which may take a while before it is reported.
ALONE_SECONDS = 30.0
_STALE_SECONDS = 10.0
_PACES_KEPT = 9
# Two of the intervals over which a rank's CPU use is counted.
_RECENT_SECONDS = 2.5


class StallDetector:
    """Takes the newest heartbeat of every rank and keeps the current stall.

    `world_size` None: only ranks that have reported are counted.
    """

    def __init__(self, world_size: int | None = None) -> None:
        self.world_size = world_size
        self._now: Stall | None = None
        self._attempt: int | None = None
        self._paces: deque[float] = deque(maxlen=_PACES_KEPT)
        self._first_step_seconds = 0.0
        self._steps = -1
        self.cpu = CpuUse()

    def observe(self, heartbeats: Mapping[int, Heartbeat], now_ns: int) -> Stall | None:
        """The stall at this moment, before its level is known; None while the job makes progress.

        Holds:   `since_ns`, `detected_ns` and `since_step` stay while it lasts
        """
        heartbeats = self._of_newest_attempt(heartbeats, now_ns)
        heartbeats = with_known_numbers(heartbeats)
        live = with_what_is_over({rank: heartbeat for rank, heartbeat in heartbeats.items() if not _leaves(heartbeat)})
        if not any(heartbeat.phase is not None for heartbeat in live.values()):
            self._now = None
            return None
        self._note_pace(live)
        self.cpu.note(live)
        missing = frozenset(range(self.world_size or 0)) - heartbeats.keys()
        gone = frozenset(rank for rank in heartbeats if rank not in live) | missing
        threshold = self.threshold_seconds()
        waits = _at_the_rendezvous(live, gone) or self._in_training(live, gone, threshold)
        if waits is None:
            if not self._is_only_unread(live):
                self._now = None
            return self._now
        if waits.basis == START:
            threshold = START_SECONDS
        self._now = self._continued(self._stands(waits, heartbeats, threshold, now_ns), heartbeats)
        return self._now

    def threshold_seconds(self) -> float:
        """How long a rank may make no progress: five steps, and at least three seconds.

        If only the first step is known, which lasts longer than the others, it is one such step plus the limit of the start.
        """
        if self._paces:
            return max(LEAST_SECONDS, STEPS_OF_PATIENCE * median_low(self._paces))
        return START_SECONDS + self._first_step_seconds

    def _of_newest_attempt(self, heartbeats: Mapping[int, Heartbeat], now_ns: int) -> dict[int, Heartbeat]:
        newest = max((heartbeat.attempt for heartbeat in heartbeats.values()), default=None)
        if newest != self._attempt:
            self._attempt, self._now, self._steps = newest, None, -1
            self._paces.clear()
            self._first_step_seconds = 0.0
            self.cpu = CpuUse()
        old_ns = now_ns - int(_STALE_SECONDS * 1e9)
        return {
            rank: heartbeat
            for rank, heartbeat in heartbeats.items()
            if heartbeat.attempt == newest and (heartbeat.at_ns > old_ns or heartbeat.exit_code is not None)
        }

    def _note_pace(self, live: Mapping[int, Heartbeat]) -> None:
        """Keep the median step of the ranks whenever a rank made a step, so that one long step among many changes nothing."""
        counts = [heartbeat.step_count or 0 for heartbeat in live.values()]
        if sum(counts) == self._steps:
            return
        self._steps = sum(counts)
        known = [heartbeat.step_seconds for heartbeat in live.values() if heartbeat.step_seconds]
        if known and max(counts) > 1:
            self._paces.append(median(known))
        elif known:
            self._first_step_seconds = median(known)

    def _in_training(self, live: Mapping[int, Heartbeat], gone: frozenset[int], threshold: float) -> Waits | None:
        stood = {rank: _stood_seconds(heartbeat) for rank, heartbeat in live.items()}
        waiting = [rank for rank, heartbeat in live.items() if stood[rank] >= threshold and is_in_a_wait(heartbeat)]
        if waiting:
            # A late rank may have been idle for a shorter time than the rank that waits for it.
            stalled = frozenset(rank for rank in live if stood[rank] >= threshold / 2)
            return who_waits(live, waiting, stalled, gone)
        if not stood or min(stood.values()) < threshold or self._all_compute(live):
            return None
        return who_waits(live, (), frozenset(live), gone)

    def _all_compute(self, live: Mapping[int, Heartbeat]) -> bool:
        """Whether every rank has used a CPU just now, so that none waits for another. After a while they are inspected anyway."""
        recent_ns = int(_RECENT_SECONDS * 1e9)
        used = {rank: self.cpu.idle_since_ns(rank) for rank in live}
        return all(
            since is not None and heartbeat.at_ns - since < recent_ns and _stood_seconds(heartbeat) < ALONE_SECONDS
            for (rank, heartbeat), since in zip(live.items(), used.values(), strict=True)
        )

    def _stands(self, waits: Waits, heartbeats: Mapping[int, Heartbeat], threshold: float, now_ns: int) -> Stall:
        waiting = [heartbeats[rank] for rank in waits.waiting if rank in heartbeats]
        late = [heartbeats[rank] for rank in waits.late if rank in heartbeats]
        # The collective of a device that is behind is one that the others have left.
        inside = [*waiting, *(heartbeats[rank] for rank in waits.behind if rank in heartbeats)]
        if waiting:
            since_ns = min(heartbeat.moved_ns for heartbeat in waiting)
        else:
            since_ns = max((heartbeat.moved_ns for heartbeat in (late or heartbeats.values())), default=now_ns)
        steps = [
            heartbeat.step_count
            for heartbeat in (waiting or late or heartbeats.values())
            if heartbeat.step_count is not None
        ]
        moving = [
            heartbeat for heartbeat in late if not _leaves(heartbeat) and _stood_seconds(heartbeat) < threshold / 2
        ]
        return Stall(
            # If the rank's own counters change, no snapshot is needed.
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
            recorder=waits.recorder,
            behind=waits.behind,
            together=waits.together,
            operation=_operation(inside, waits),
            payload=_payload(inside, waits),
            since_step=min(steps, default=None),
            attempt=self._attempt or 0,
        )

    def _is_only_unread(self, live: Mapping[int, Heartbeat]) -> bool:
        """Whether the ranks that waited have not changed and merely did not answer this time."""
        before = self._now
        waited = [live[rank] for rank in before.waiting if rank in live] if before is not None else []
        return bool(waited) and all(
            heartbeat.moved_ns <= (before.detected_ns if before else 0)
            and (heartbeat.groups is None or is_in_a_wait(heartbeat))
            for heartbeat in waited
        )

    def _continued(self, found: Stall, heartbeats: Mapping[int, Heartbeat]) -> Stall:
        """Whether the same stall continues: the waiting ranks have made no progress since it began."""
        before = self._now
        if before is None or found.since_ns > before.detected_ns:
            return found
        # A late rank stays late if a flight recorder does not answer for a second.
        weaker = not found.late or BASES.index(found.basis) > BASES.index(before.basis)
        if before.late and weaker and all(_has_not_moved(rank, heartbeats, before.detected_ns) for rank in before.late):
            still = {rank for rank in before.waiting if _has_not_moved(rank, heartbeats, before.detected_ns)}
            found = replace(
                found,
                late=before.late,
                waiting=tuple(sorted((still | set(found.waiting)) - set(before.late))),
                basis=before.basis,
                recorder=before.recorder,
                behind=before.behind,
                together=before.together,
                group=before.group,
                index=before.index,
                operation=before.operation,
                payload=before.payload,
            )
        return replace(found, since_ns=before.since_ns, detected_ns=before.detected_ns, since_step=before.since_step)


def with_snapshots(stall: Stall, snapshots: Mapping[int, RankSnapshot], before: Stall | None = None) -> Stall:
    """The stall with its level and with the progress of the late ranks. If the counters do not show which ranks are late, the stacks may.

    `before`: the previous result for the same stall; it has since when a busy rank has been in one place.
    If no rank is late, any sign of a waiting rank is progress, and ranks of which none is seen to wait merely pause.
    A rank without a snapshot changes nothing.
    """
    stall = _split_by_stacks(stall, snapshots)
    places = dict(before.places) if before is not None and before.since_ns == stall.since_ns else {}
    judged = stall.late or stall.waiting or tuple(sorted(snapshots))
    seen = {rank: snapshots[rank] for rank in judged if rank in snapshots}
    here: dict[int, tuple[int, int]] = {}
    signs: dict[int, tuple[str, ...]] = {}
    for rank, snapshot in seen.items():
        place = crc32(signature_of(snapshot).encode())
        known = places.get(rank)
        here[rank] = (place, known[1]) if known is not None and known[0] == place else (place, snapshot.at_ns)
        in_place_seconds = (snapshot.at_ns - here[rank][1]) / 1e9
        unchanging = bool(place) and in_place_seconds >= UNCHANGING_SECONDS
        signs[rank] = signs_of_progress(snapshot, unchanging=unchanging or _waits_for_its_device(rank, snapshot, stall))
    stuck = [rank for rank, found in signs.items() if not found and not _rests_on_others(rank, seen, signs, stall)]
    if not seen or (stuck and stall.progress and len(stuck) == len(seen)):
        return replace(stall, places={**places, **here})
    somebody_waits = bool(stall.waiting) or any(map(cannot_move, seen.values()))
    return replace(
        stall,
        level=Level.STALL if stuck and somebody_waits else Level.WAITING,
        progress=tuple(dict.fromkeys(sign for found in signs.values() for sign in found)),
        places={**places, **here},
    )


def _waits_for_its_device(rank: int, snapshot: RankSnapshot, stall: Stall) -> bool:
    """Whether the rank is seen to wait for its own device, and for so long that the CPU that such a wait uses proves nothing."""
    for_device = stall.together or rank in stall.behind
    return for_device and snapshot.at_ns - stall.since_ns >= ALONE_SECONDS * 1e9


def _rests_on_others(
    rank: int, snapshots: Mapping[int, RankSnapshot], signs: Mapping[int, tuple[str, ...]], stall: Stall
) -> bool:
    """Whether it delays no rank while other late ranks make progress: no rank waits for it, or it waits for a lock of theirs."""
    if not any(signs.values()) or cannot_move(snapshots[rank]):
        return False
    return not stall.waiting or is_waiting_for_file_lock(snapshots[rank])


def _split_by_stacks(stall: Stall, snapshots: Mapping[int, RankSnapshot]) -> Stall:
    """Which ranks wait and which are late by the stacks, if the counters show no late rank, or only steps and phases."""
    if stall.recorder not in ("", HOST_RECORDER):
        # Who waits for a device is at no place in torch.distributed.
        return stall
    inside = {
        rank: answer
        for rank, snapshot in snapshots.items()
        if (answer := is_waiting_in_collective(snapshot)) is not None
    }
    in_a_wait = {rank for rank, answer in inside.items() if answer}
    if stall.basis in (CALLS, PHASE) and in_a_wait.intersection(stall.late):
        return _without_those_in_a_wait(stall, in_a_wait)
    if stall.late and (stall.basis != STEPS or not in_a_wait):
        return stall
    late = {rank for rank, answer in inside.items() if not answer}
    known = set() if stall.basis == STEPS else set(stall.waiting)
    waiting = in_a_wait | (known - late)
    if not (late or in_a_wait) or (not late and known) or (not waiting and len(late) < len(snapshots)):
        return stall
    return replace(stall, late=tuple(sorted(late)), waiting=tuple(sorted(waiting)), basis=STACKS)


def _without_those_in_a_wait(stall: Stall, in_a_wait: Collection[int]) -> Stall:
    """Ranks without a call from Python that wait in a call from C++: a backward pass, which no recorder shows."""
    late = tuple(rank for rank in stall.late if rank not in in_a_wait)
    return replace(
        stall,
        late=late,
        waiting=tuple(sorted({*stall.waiting, *stall.late} - set(late))),
        crossed=() if late else stall.late,
        basis=STACKS,
        recorder="",
        # The known collective is that of the ranks which issued it; the other ranks wait in another one.
        group=None,
        index=None,
        operation=None,
        payload=None,
    )


def _at_the_rendezvous(live: Mapping[int, Heartbeat], gone: frozenset[int]) -> Waits | None:
    """Ranks that wait for others in init_process_group, and ranks that have not come there."""
    there = [
        rank
        for rank, heartbeat in live.items()
        if heartbeat.phase == "rendezvous" and _stood_seconds(heartbeat) >= START_SECONDS
    ]
    if not there:
        return None
    # A rank that has passed the rendezvous and has made no step yet is not expected there again.
    elsewhere = {rank for rank, heartbeat in live.items() if heartbeat.phase not in ("rendezvous", "starting")}
    return Waits(tuple(sorted(there)), tuple(sorted(gone | elsewhere)), START)


def _leaves(heartbeat: Heartbeat) -> bool:
    """Whether it enters no collective any more. If an exit handler still waits in one, the rank counts as waiting."""
    finalizes = heartbeat.finalizing_ns is not None and not is_in_a_wait(heartbeat)
    return heartbeat.exit_code is not None or heartbeat.exiting or finalizes


def _stood_seconds(heartbeat: Heartbeat) -> float:
    return max(0, heartbeat.at_ns - heartbeat.moved_ns) / 1e9


def _has_not_moved(rank: int, heartbeats: Mapping[int, Heartbeat], since_ns: int) -> bool:
    return rank not in heartbeats or heartbeats[rank].moved_ns <= since_ns


def _operation(waiting: list[Heartbeat], waits: Waits) -> str | None:
    """What they wait in, if they agree on it and it was recorded or issued from Python; DDP's exchange on torch's groups is neither."""
    told = {counters.operation for counters in _waited_in(waiting, waits) if counters.operation is not None}
    names = told or {
        heartbeat.last_call.operation
        for heartbeat in waiting
        if heartbeat.phase == "communication" and heartbeat.last_call
    }
    return names.pop() if len(names) == 1 else None


def _payload(waiting: list[Heartbeat], waits: Waits) -> str | None:
    """Size and type of the tensor: "7,240 float32"."""
    told = {(counters.numel, counters.dtype) for counters in _waited_in(waiting, waits)}
    numel, dtype = told.pop() if len(told) == 1 else (None, None)
    return f"{numel:,} {dtype or 'elements'}" if numel else None


def _waited_in(waiting: list[Heartbeat], waits: Waits) -> list[GroupCounters]:
    """The counters that tell of the collective. gloo's recorder does not say which one is not over."""
    return [
        counters
        for heartbeat in waiting
        for counters in ((heartbeat.groups or ()) if waits.recorder else heartbeat.exchanges)
        if counters.name == waits.group and counters.enqueued > counters.completed
        if not waits.recorder or (counters.recorder == waits.recorder and counters.completed + 1 == waits.index)
    ]
