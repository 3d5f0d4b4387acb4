"""What each rank did when: its steps, phases and collectives, as spans of time, from its segment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.recording.clocks import HostClocks
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.ring import (
    COMMUNICATION_MEASURED,
    HEADER_BYTES,
    OPERATIONS,
    RECORD,
    RECORD_BYTES,
    RankPhase,
    RecordKind,
    parse_header,
)
from paceline.recording.segments import segments

_NS = 1e6


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted."""

    kind: str
    """"step", "phase" or "collective"."""
    name: str
    """What it was, for people."""
    begin_ns: int
    """Its begin, Unix time."""
    end_ns: int
    """Its end."""
    facts: dict[str, float | int]
    """More about it, with units in the names."""
    link: int | None = None
    """The same number on every rank that takes part in one collective; None: it is none."""


@dataclass(frozen=True, slots=True)
class RankSpans:
    """The spans of one process."""

    host: str
    """Its host."""
    rank: int
    """Global rank."""
    attempt: int
    """The attempt, counted from 0."""
    pid: int
    """Process id on its host."""
    spans: tuple[Span, ...]
    """In the order in which they were recorded."""


def rank_spans(
    directories: Sequence[RunDirectory],
    *,
    from_ns: int,
    to_ns: int,
    ranks: frozenset[int] | None = None,
    most_records: int,
    clocks: HostClocks | None = None,
) -> tuple[list[RankSpans], list[str]]:
    """The spans of the chosen ranks in a window of time, and texts about what is left out. `ranks`: None is all.

    `most_records`: of all of them together; of each segment the newest ones are read. `clocks`: puts the stamps of other hosts right.
    """
    found, complaints = [], []
    paths = segments(directories)
    of_each = max(most_records // max(len(paths), 1), 1)
    for path in paths:
        try:
            offset_ns = 0 if clocks is None else clocks.offset_ns(path.parent.parent.name)
            spans, left_out = _of_segment(path, from_ns + offset_ns, to_ns + offset_ns, ranks, of_each)
            spans = spans and replace(spans, spans=tuple(_shifted(span, -offset_ns) for span in spans.spans))
        except (OSError, ValueError) as error:
            complaints.append(f"{path.parent.parent.name} {path.parent.name} {path.name}: {error}")
            continue
        if spans is not None:
            found.append(spans)
            if left_out:
                complaints.append(f"{left_out} earlier records of rank {spans.rank}, attempt {spans.attempt}")
    return found, complaints


def _of_segment(
    path: Path, from_ns: int, to_ns: int, ranks: frozenset[int] | None, most: int
) -> tuple[RankSpans | None, int]:
    with open_plain(path) as file:
        header = parse_header(file.read(HEADER_BYTES))
        if ranks is not None and header.rank not in ranks:
            return None, 0
        count = (file.seek(0, 2) - HEADER_BYTES) // RECORD_BYTES
        file.seek(HEADER_BYTES + max(count - most, 0) * RECORD_BYTES)
        body = file.read(min(count, most) * RECORD_BYTES)
    attempt = path.parent.name.removeprefix("attempt_")
    made = (_span(kind, code, values) for kind, code, _, *values in RECORD.iter_unpack(body))
    spans = tuple(span for span in made if span is not None and span.end_ns >= from_ns and span.begin_ns <= to_ns)
    number = int(attempt) if attempt.isdigit() else header.attempt
    return RankSpans(path.parent.parent.name, header.rank, number, header.pid, spans), max(count - most, 0)


def _shifted(span: Span, by_ns: int) -> Span:
    return replace(span, begin_ns=span.begin_ns + by_ns, end_ns=span.end_ns + by_ns) if by_ns else span


def _span(kind: int, code: int, values: Sequence[int]) -> Span | None:
    if kind == RecordKind.STEP:
        index, end_ns, duration_ns, data_ns, communication_ns, checkpoint_ns, _ = values
        measured = code & COMMUNICATION_MEASURED
        facts = {
            "data_ms": data_ns / _NS,
            "exposed_communication_ms" if measured else "exposed_communication_estimate_ms": communication_ns / _NS,
            "checkpoint_ms": checkpoint_ns / _NS,
        }
        return Span("step", f"step {index}", end_ns - duration_ns, end_ns, facts)
    if kind == RecordKind.PHASE:
        name = RankPhase(code).name.lower() if code in set(RankPhase) else f"phase {code}"
        return Span("phase", name, values[0], values[0] + values[1], {})
    if kind == RecordKind.COLLECTIVE:
        number, begin_ns, waited_ns, size_bytes, group, *_ = values
        operation = OPERATIONS[code] if code < len(OPERATIONS) else "unknown"
        facts = {"bytes": size_bytes, "group": group, "number": number}
        return Span("collective", operation, begin_ns, begin_ns + waited_ns, facts, group << 40 | number)
    return None
