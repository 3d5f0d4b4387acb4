"""A run on tracks of time, for ui.perfetto.dev and chrome://tracing: the job, each rank, each host.

Source:  perfetto protos/perfetto/trace/track_event/track_event.proto, track_descriptor.proto, trace_packet.proto (v52) for the numbers of
         fields; "Trace Event Format", Google, for the other format
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.parts.web.views.protobuf import bytes_field, double_field, fixed64_field, number_field
from paceline.recording.rank_sets import named_ranks
from paceline.recording.rank_spans import RankSpans
from paceline.views.live import event_text
from paceline.views.report.markup import without_controls

_JOB, _HANGS = 1, 2
_SEQUENCE = 1
# Numbers of tracks; a rank has three below its own.
_RANK_TRACKS, _HOST_TRACKS = 1_000, 1_000_000_000
_LANES = ("step", "phase", "collective")
_COUNTERS = (
    ("CPU in use, %", "cpu", "busy_fraction", 100.0),
    ("memory in use, MiB", "memory", "used_bytes", 1 / (1 << 20)),
)
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_ENDS_A_HANG = frozenset({"standstill_over", "restart", "run_finished"})


@dataclass(frozen=True, slots=True)
class Track:
    """One row."""

    number: int
    """Its number, unique in the trace."""
    name: str
    """Its name."""
    parent: int | None = None
    """The track that it belongs to; None: it is a group."""
    is_counter: bool = False
    """Whether its values are drawn as a curve."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something on a track at one time."""

    track: int
    """Number of the track."""
    kind: int
    """Begin, end, instant or counter."""
    t_ns: int
    """When, Unix time."""
    name: str = ""
    """Its name; of an end, nothing."""
    facts: Mapping[str, float | int] = field(default_factory=dict)
    """More about it."""
    link: int | None = None
    """What connects it with marks on other tracks."""
    value: float = 0.0
    """Of a counter."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that is drawn."""

    tracks: tuple[Track, ...]
    """The rows, parents first."""
    marks: tuple[Mark, ...]
    """In the order of time."""


def timeline(
    ranks: Sequence[RankSpans],
    events: Iterable[Mapping[str, Any]],
    telemetry: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    from_ns: int,
    to_ns: int,
) -> Timeline:
    """The tracks of a run in a window of time.

    Holds:   on each track begins and ends alternate in nesting order: a span that would cut another one begins where that one ends
    """
    events = sorted(events, key=lambda event: t_ns if isinstance(t_ns := event.get("t_ns"), int) else 0)
    tracks, marks = [Track(_JOB, "job")], list(_of_job(events, from_ns, to_ns))
    hangs = list(_hangs(events, from_ns, to_ns))
    if hangs:
        tracks.append(Track(_HANGS, "hangs", _JOB))
    for begin_ns, end_ns, name in hangs:
        marks += [Mark(_HANGS, _BEGIN, begin_ns, name), Mark(_HANGS, _END, end_ns)]
    for place, of_rank in enumerate(ranks):
        group = _RANK_TRACKS + 10 * place
        tracks.append(Track(group, f"rank {of_rank.rank} on {of_rank.host}, attempt {of_rank.attempt}"))
        for lane, kind in enumerate(_LANES, 1):
            spans = sorted(
                (one for one in of_rank.spans if one.kind == kind), key=lambda one: (one.begin_ns, -one.end_ns)
            )
            if not spans:
                continue
            tracks.append(Track(group + lane, f"{kind}s", group))
            last_ns = 0
            for span in spans:
                begin_ns = max(span.begin_ns, last_ns)
                last_ns = max(span.end_ns, begin_ns)
                marks.append(Mark(group + lane, _BEGIN, begin_ns, span.name, span.facts, span.link))
                marks.append(Mark(group + lane, _END, last_ns))
    for place, (host, lines) in enumerate(telemetry.items()):
        group = _HOST_TRACKS + 100 * place
        tracks.append(Track(group, host))
        for lane, (name, section, key, scale) in enumerate(_COUNTERS, 1):
            tracks.append(Track(group + lane, name, group, is_counter=True))
            marks += _counters(group + lane, lines, section, key, scale, from_ns, to_ns)
    # At one time a span ends before the next one begins; a span without length begins before it ends.
    order = sorted(range(len(marks)), key=lambda place: (marks[place].t_ns, place))
    return Timeline(tuple(tracks), tuple(marks[place] for place in order))


def _of_job(events: Iterable[Mapping[str, Any]], from_ns: int, to_ns: int) -> Iterator[Mark]:
    for event in events:
        text, t_ns = event_text(event), event.get("t_ns")
        if text is not None and isinstance(t_ns, int) and from_ns <= t_ns <= to_ns:
            yield Mark(_JOB, _INSTANT, t_ns, text.removeprefix("paceline  "))


def _hangs(events: Iterable[Mapping[str, Any]], from_ns: int, to_ns: int) -> Iterator[tuple[int, int, str]]:
    """Begin, end and name of each time in which no rank made progress: from its begin, which is known only later, to what ended it."""
    since_ns, name = None, ""
    for event in [*events, {"event": "run_finished", "t_ns": to_ns}]:
        t_ns, still = event.get("t_ns"), event.get("standstill")
        if not isinstance(t_ns, int):
            continue
        begin_ns = still.get("since_ns") if isinstance(still, Mapping) else None
        is_other = isinstance(begin_ns, int) and begin_ns != since_ns
        if since_ns is not None and (is_other or event.get("event") in _ENDS_A_HANG):
            end_ns = min(begin_ns if isinstance(begin_ns, int) and is_other else t_ns, to_ns)
            if max(since_ns, from_ns) < end_ns:
                yield max(since_ns, from_ns), end_ns, name
            since_ns = None
        if isinstance(begin_ns, int) and is_other and isinstance(still, Mapping):
            late = [rank for rank in still.get("late") or () if isinstance(rank, int)]
            since_ns, name = begin_ns, f"hang: the others wait for {named_ranks(late)}" if late else "hang"


def _counters(
    track: int, lines: Iterable[Mapping[str, Any]], section: str, key: str, scale: float, from_ns: int, to_ns: int
) -> Iterator[Mark]:
    for line in lines:
        t_ns, values = line.get("t_ns"), line.get(section)
        value = values.get(key) if isinstance(values, Mapping) else None
        is_there = isinstance(value, int | float) and not isinstance(value, bool)
        if is_there and isinstance(t_ns, int) and from_ns <= t_ns <= to_ns:
            yield Mark(track, _COUNTER, t_ns, value=float(value or 0.0) * scale)


# --------------------------------------------------------------------------------------------------------------- Perfetto


def perfetto(found: Timeline) -> bytes:
    """The timeline as a sequence of perfetto's TracePackets."""
    return b"".join(_packet(one) for one in (*map(_descriptor, found.tracks), *map(_event, found.marks)))


def _descriptor(track: Track) -> bytes:
    fields = number_field(1, track.number) + _text(2, track.name)
    if track.parent is not None:
        fields += number_field(5, track.parent)
    if track.is_counter:
        fields += bytes_field(8, b"")
    return bytes_field(60, fields)


def _event(mark: Mark) -> bytes:
    fields = number_field(9, mark.kind) + number_field(11, mark.track)
    if mark.name:
        fields += _text(23, mark.name)
    if mark.kind == _COUNTER:
        fields += double_field(44, mark.value)
    for name, value in mark.facts.items():
        told = number_field(4, value) if isinstance(value, int) else double_field(5, value)
        fields += bytes_field(4, _text(10, name) + told)
    if mark.link is not None:
        fields += fixed64_field(47, mark.link)
    return number_field(8, mark.t_ns) + bytes_field(11, fields)


def _packet(fields: bytes) -> bytes:
    return bytes_field(1, fields + number_field(10, _SEQUENCE))


def _text(number: int, text: str) -> bytes:
    return bytes_field(number, without_controls(text).encode())


# ----------------------------------------------------------------------------------------------------------------- Chrome


def chrome(found: Timeline) -> str:
    """The timeline in the Trace Event Format: one JSON object."""
    group_of = {track.number: track.parent or track.number for track in found.tracks}
    name_of = {track.number: without_controls(track.name) for track in found.tracks}
    made: list[dict[str, Any]] = []
    for track in found.tracks:
        kind = "thread_name" if track.parent is not None else "process_name"
        made.append(
            {
                "ph": "M",
                "name": kind,
                "pid": group_of[track.number],
                "tid": track.number,
                "args": {"name": name_of[track.number]},
            }
        )
    for mark in found.marks:
        event: dict[str, Any] = {"pid": group_of[mark.track], "tid": mark.track, "ts": mark.t_ns / 1e3}
        if mark.kind == _COUNTER:
            event |= {"ph": "C", "name": name_of[mark.track], "args": {"value": mark.value}}
        else:
            event |= {"ph": {_BEGIN: "B", _END: "E", _INSTANT: "i"}[mark.kind], "name": without_controls(mark.name)}
            event |= {"s": "p"} if mark.kind == _INSTANT else {}
            event |= {"args": dict(mark.facts)} if mark.facts else {}
        made.append(event)
    return json.dumps({"traceEvents": made, "displayTimeUnit": "ms"})
