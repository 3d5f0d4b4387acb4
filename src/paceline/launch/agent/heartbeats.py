"""The progress of each rank of this host, twice a second: a heartbeat from its ring, its process and, if it stands still, its flight
recorders.

The sampler is passive: it reads shared memory, /proc and the rank's own memory. Where that cannot be read, and for groups on a device, it
asks torch's worker server, which answers without the rank's Python. The ring has the collectives of paceline's own exchange. The flight
recorder has the collectives of torch's process groups. If a group is in both (paceline's group hands its small exchanges to a gloo group of
its own), the ring is complete. The coordinator decides whether a rank stands still for too long, from the heartbeats of all hosts.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from paceline.backend_names import names_in, waits_on_device
from paceline.diagnosis.case import Call, GroupCounters, Heartbeat
from paceline.diagnosis.crash.rendezvous import brought
from paceline.diagnosis.desync.calls import RankCalls
from paceline.diagnosis.flight_recorder import Trace, TraceEntry, parse_traces, traces_of
from paceline.diagnosis.hang.wait_graph import DEFAULT_GROUP_NAMES
from paceline.launch.agent.ring_collector import RingCollector
from paceline.probes.flight_recorder_memory import read_recorders
from paceline.probes.processes import read_stat
from paceline.probes.worker_server import GLOO, GateClosed, traces
from paceline.recording.ring import Instrument, RingHeader
from paceline.recording.string_table import AGAIN

ANSWER_SECONDS = 0.3
# A full recorder takes longer on a loaded machine, and no one waits for the answer here.
_TRACE_SECONDS = 1.0
ASKED_AT_ONCE = 8
_MOST_GROUPS = 64
# How many entries of its flight recorder one rank sends, the least number per rank, and the limit for all ranks together, because the
# coordinator holds the entries of all ranks.
_TRACE_ENTRIES, _LEAST_ENTRIES, _ENTRIES_OF_ALL_RANKS = 256, 64, 32_768
# A flight recorder of 2,000 entries takes 7 ms to answer, so a rank is not asked in the middle of a usual step.
_ASKED_AFTER_SECONDS = 2.0
_ASKED_AFTER_STEPS = 2.0
_ASKED_AGAIN_SECONDS = 1.0
_TRIED_AFTER_STEPS = 3


@dataclass(slots=True)
class _Seen:
    """What was known of a rank at the last heartbeat."""

    marker: tuple[Any, ...] = ()
    """The values of the ring's header that change with progress."""
    moved_ns: int = 0
    """When the rank last made progress, in Unix ns."""
    asked_ns: int = 0
    """When the rank's flight recorder was last asked, in Unix ns; 0: never."""
    groups: tuple[GroupCounters, ...] | None = None
    """The flight recorders' answer since the ring last changed; None: no answer."""
    driver_answers: bool | None = None
    """Whether the CUDA driver answered for the rank at the same time; None: not known."""
    steps: int = 0
    """Number of optimizer steps so far."""
    step_total_seconds: float = 0.0
    """Total time of these steps."""
    step_seconds: float | None = None
    """Mean time of the newest steps; None: too few steps."""
    last_call: Call | None = None
    """The newest collective that was issued from Python; None: no collective was seen."""
    calls: dict[str, int] = field(default_factory=dict)
    """Group -> number of its newest call. The groups with the oldest calls are left out."""
    group_ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Group -> its ranks. The group of all ranks is left out."""
    rendezvous_text: str = ""
    """The rank's rendezvous settings, as the text in its ring."""
    rendezvous: dict[str, str] = field(default_factory=dict)
    """The same settings, parsed."""

    def note_rendezvous(self, text: str) -> None:
        """Parse the rendezvous settings if they have changed: they change once or twice, and this is called twice a second."""
        if text != self.rendezvous_text:
            self.rendezvous_text, self.rendezvous = text, brought(text)

    def note_steps(self, header: RingHeader) -> None:
        """Note the pace since the last heartbeat that saw a step. A rank's first step is a warm-up and does not count."""
        steps, total_seconds = header.step_count - self.steps, header.step_total_ns / 1e9
        if steps <= 0:
            return
        if self.steps:
            self.step_seconds = (total_seconds - self.step_total_seconds) / steps
        elif steps > 1 and header.first_step_ns and header.last_step_ns:
            self.step_seconds = (header.last_step_ns - header.first_step_ns) / 1e9 / (steps - 1)
        self.steps, self.step_total_seconds = header.step_count, total_seconds


class HeartbeatSampler:
    """The heartbeats of one attempt on one host. One caller at a time, in a thread: a call may wait for a rank that does not answer."""

    def __init__(self, host: str, attempt: int, sockets: Path) -> None:
        self._host = host
        self._attempt = attempt
        self._sockets = sockets
        self._seen: dict[int, _Seen] = {}
        self._askers = ThreadPoolExecutor(ASKED_AT_ONCE, "paceline-ask")
        # Whether the flight recorder shows the ranks' collectives; None: not known yet.
        self.recorder_shows: bool | None = None

    def look(self, rings: RingCollector, now_ns: int) -> tuple[list[Heartbeat], list[RankCalls]]:
        """A heartbeat of every rank that has a ring, and the calls since the last heartbeat."""
        calls = rings.take_calls()
        for of_rank in calls:
            self._note_calls(of_rank)
        headers = rings.headers()
        stalled = [
            rank for rank, header in headers.items() if self._stands(rank, header, now_ns) and _may_be_asked(header)
        ]
        self._ask(stalled, headers, rings, now_ns)
        exchanges = rings.exchanges()
        if self.recorder_shows is None:
            self._try_recorder(headers, exchanges, rings.backends())
        return [
            self._heartbeat(rank, header, exchanges.get(rank, ()), now_ns) for rank, header in headers.items()
        ], calls

    def traces(self, rings: RingCollector, *, finished: bool = False) -> dict[int, list[TraceEntry]]:
        """The newest collectives of every rank, from its flight recorder and its ring. A rank without any in both is left out.

        `finished`: with those that are over also where a recorder gives them out only with the GIL.
        """
        headers = {rank: header for rank, header in rings.headers().items() if _may_be_asked(header)}
        backends = rings.backends()
        found = self._askers.map(
            partial(self._trace_of, timeout_seconds=_TRACE_SECONDS, finished=finished),
            [header.pid for header in headers.values()],
            [backends.get(rank, frozenset()) for rank in headers],
        )
        ranks = max((header.world_size or 1 for header in headers.values()), default=1)
        most = max(_LEAST_ENTRIES, min(_TRACE_ENTRIES, _ENTRIES_OF_ALL_RANKS // ranks))
        entries, groups = rings.exchanged(most), rings.groups_exchanged()
        for rank, (answer, _) in zip(headers, found, strict=True):
            if answer is not None and answer.entries:
                ours = _as_recorded(groups.get(rank, ()))
                theirs = [entry for entry in answer.entries[-most:] if entry.group not in ours]
                both = sorted((*theirs, *entries.get(rank, ())), key=lambda entry: entry.created_ns or 0)
                entries[rank] = both[-most:]
        return {rank: of_rank for rank, of_rank in entries.items() if of_rank}

    def close(self) -> None:
        self._askers.shutdown(wait=False, cancel_futures=True)

    def _note_calls(self, of_rank: RankCalls) -> None:
        seen = self._seen.setdefault(of_rank.rank, _Seen())
        for call in of_rank.calls[-1:]:
            if seen.last_call is None or call.issued_ns >= seen.last_call.issued_ns:
                seen.last_call = call
        # A send or receive that came after the collective has no number.
        counted = next((call.index for call in reversed(of_rank.calls) if call.index), 0)
        if counted:
            # Keep the newest groups only: a job may make a new group at every step.
            seen.calls.pop(of_rank.group, None)
            seen.calls[of_rank.group] = counted
            if len(seen.calls) > _MOST_GROUPS:
                oldest = next(iter(seen.calls))
                del seen.calls[oldest]
                seen.group_ranks.pop(oldest, None)
            # The group of all ranks needs no list of its ranks twice a second from each rank.
            if of_rank.group not in DEFAULT_GROUP_NAMES:
                seen.group_ranks[of_rank.group] = of_rank.group_ranks

    def _stands(self, rank: int, header: RingHeader, now_ns: int) -> bool:
        """Whether the ring has not changed since the last heartbeat."""
        seen = self._seen.setdefault(rank, _Seen())
        progress = (header.cursor, header.step_count, header.phase, header.phase_since_ns, header.exchanges)
        marker = (header.pid, *progress, header.finalizing_ns, header.exiting)
        if marker == seen.marker:
            return True
        began = not seen.marker
        seen.marker, seen.groups, seen.driver_answers = marker, None, None
        stamps = (header.last_step_ns, header.phase_since_ns, seen.last_call.issued_ns if seen.last_call else None)
        newest = max((stamp for stamp in stamps if stamp is not None and stamp <= now_ns), default=now_ns)
        # A change without a stamp of its own happened since the last heartbeat, which is a second ago at most.
        seen.moved_ns = newest if began or newest > seen.moved_ns else now_ns
        seen.note_steps(header)
        return False

    def _ask(self, ranks: Sequence[int], headers: Mapping[int, RingHeader], rings: RingCollector, now_ns: int) -> None:
        due = [rank for rank in ranks if self._is_due(self._seen[rank], now_ns)]
        if not due:
            return
        backends = rings.backends()
        found = list(
            self._askers.map(
                self._trace_of,
                [headers[rank].pid for rank in due],
                [backends.get(rank, frozenset()) for rank in due],
            )
        )
        # Read the ring after the answers: it then has every exchange of paceline that is in the answers.
        groups_of = rings.groups_exchanged()
        for rank, (answer, driver_answers) in zip(due, found, strict=True):
            seen = self._seen[rank]
            seen.asked_ns = now_ns
            seen.driver_answers = driver_answers
            if answer is None and driver_answers is False:
                # What it answered before it fell silent still holds: its ring has not changed.
                continue
            ours = _as_recorded(groups_of.get(rank, ()))
            groups = tuple(g for g in answer.groups if g.name not in ours) if answer is not None else None
            if groups and seen.groups is not None and groups != seen.groups:
                seen.moved_ns = now_ns
            seen.groups = groups

    def _try_recorder(
        self,
        headers: Mapping[int, RingHeader],
        exchanges: Mapping[int, tuple[GroupCounters, ...]],
        backends: Mapping[int, frozenset[str]],
    ) -> None:
        """Ask one rank that trains with others, once, whether the recorder of its backend has any of their collectives."""
        trains = (
            rank
            for rank, header in headers.items()
            if header.step_count >= _TRIED_AFTER_STEPS and header.group_count and (header.world_size or 1) > 1
            if header.worker_server and not header.leaving_ns and not exchanges.get(rank)
        )
        rank = next(trains, None)
        if rank is None:
            return
        joined = backends.get(rank, frozenset())
        answer, _ = self._trace_of(headers[rank].pid, joined)
        if answer is not None:
            # The recorder of another backend may have a few calls, and shows nothing of these.
            names = {name for backend in joined for name in names_in(backend)}
            on_device = {name for name in names if waits_on_device(name)}
            has_any = {one.recorder for one in answer.groups} | {one.recorder for one in answer.entries}
            self.recorder_shows = any(
                not names or bool(names - on_device if recorder == GLOO else on_device) for recorder in has_any
            )

    @staticmethod
    def _is_due(seen: _Seen, now_ns: int) -> bool:
        stood, ago = (now_ns - seen.moved_ns) / 1e9, (now_ns - seen.asked_ns) / 1e9
        enough = max(_ASKED_AFTER_SECONDS, _ASKED_AFTER_STEPS * (seen.step_seconds or 0.0))
        return stood >= enough and ago >= max(_ASKED_AGAIN_SECONDS, stood / 8)

    def _trace_of(
        self, pid: int, backends: frozenset[str], timeout_seconds: float = ANSWER_SECONDS, *, finished: bool = False
    ) -> tuple[Trace | None, bool | None]:
        """What the rank's recorders have, and whether the CUDA driver answered. `finished`: with the lines of the newest calls, too."""
        if backends and not any(waits_on_device(name) for backend in backends for name in names_in(backend)):
            read = read_recorders(pid, frames=finished)
            if read.documents:
                return traces_of(read.documents), None
        try:
            found = traces(self._sockets / f"{pid}.sock", timeout_seconds, backends=backends, finished=finished)
        except GateClosed:
            return None, None
        if found is None:
            return None, None
        return parse_traces(found.answers) if found.are_whole else None, found.driver_answers

    def _heartbeat(self, rank: int, header: RingHeader, exchanges: tuple[GroupCounters, ...], now_ns: int) -> Heartbeat:
        seen = self._seen[rank]
        seen.note_rendezvous(header.rendezvous)
        stat = read_stat(header.pid)
        return Heartbeat(
            host=self._host,
            rank=rank,
            at_ns=now_ns,
            moved_ns=min(seen.moved_ns, now_ns),
            attempt=self._attempt,
            pid=header.pid,
            state=stat.state if stat is not None else None,
            cpu_seconds=stat.cpu_seconds if stat is not None else None,
            step_count=header.step_count,
            step_seconds=seen.step_seconds,
            last_step_ns=header.last_step_ns,
            phase=header.phase.name.lower(),
            phase_since_ns=header.phase_since_ns,
            last_call=seen.last_call,
            calls=dict(seen.calls),
            group_ranks=dict(seen.group_ranks),
            groups=seen.groups,
            driver_answers=seen.driver_answers,
            exchanges=exchanges,
            finalizing_ns=header.finalizing_ns,
            exiting=header.exiting,
            loader_batches=header.loader_batches or None,
            rendezvous=seen.rendezvous,
        )


def _may_be_asked(header: RingHeader) -> bool:
    """Whether a rank's flight recorder may be asked: the rank's gate is closed when the rank leaves."""
    return not header.leaving_ns and Instrument.FLIGHT_RECORDER not in header.turned_off


def _as_recorded(groups: Iterable[str]) -> frozenset[str]:
    """The flight recorder's names of these groups: it does not distinguish a second initialisation from the first."""
    return frozenset(group.partition(AGAIN)[0] for group in groups)
