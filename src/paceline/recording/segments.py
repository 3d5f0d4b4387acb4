"""Turns the segments of a recording, which agents collected from their ranks' rings, into facts about ranks."""

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

from paceline.facts import RankRecord, Step
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.ring import (
    COMMUNICATION_MEASURED,
    HEADER_BYTES,
    RECORD,
    RECORD_BYTES,
    Basis,
    Instrument,
    RecordKind,
    RingHeader,
    RingReader,
    parse_header,
)

_NAME = re.compile(r"rank_\d+(-\d+)?\.seg\Z")
_NS = 1e9


def rank_records(
    directories: Sequence[RunDirectory], *, last_records: int | None = None, only_lengths: bool = False
) -> tuple[tuple[RankRecord, ...], list[str]]:
    """One record per segment, and texts about what could not be read or was not seen by the rank itself.

    `last_records` reads only so many of each segment's records, for their steps; totals are in its header and always whole.
    `only_lengths` reads how long each of these steps was and nothing more of it, which takes a tenth of the time.
    """
    found: dict[tuple[int, int, str], RankRecord] = {}
    complaints: list[str] = []
    for path in segments(directories):
        record = _rank_record(path, last_records, only_lengths, complaints)
        if record is not None:
            key = (record.attempt, record.rank, record.host)
            # A second process with the same rank (rank_<r>-<pid>.seg) counts if it trains.
            if key not in found or (record.step_count or 0) > (found[key].step_count or 0):
                found[key] = record
    return tuple(found.values()), _folded(complaints)


def segments(directories: Sequence[RunDirectory]) -> list[Path]:
    """The files of all ranks of all attempts."""
    return [path for directory in directories for path in sorted(directory.path.glob("hosts/*/attempt_*/rank_*.seg"))]


def newest_steps(paths: Iterable[Path]) -> tuple[int, int] | None:
    """Of these segments: the number of steps of the process that is furthest behind, and when the newest step of any ended (Unix ns).

    Only the headers are read. None: none has a step.
    """
    counts, ends = [], []
    for path in paths:
        try:
            with open_plain(path) as file:
                header = parse_header(file.read(HEADER_BYTES))
        except (OSError, ValueError):
            continue
        counts.append(header.step_count)
        ends.append(header.last_step_ns or 0)
    return (min(counts), max(ends)) if any(ends) else None


def from_header(
    header: RingHeader, host: str, *, attempt: int | None = None, steps: tuple[Step, ...] = ()
) -> RankRecord:
    """The record of a rank from its ring's header; a total whose instrument was missing or dropped is None, not 0."""
    blind = header.missing | header.dropped_instruments | header.turned_off
    stepless = Instrument.STEPS in blind
    # A framework whose waits nobody sees may exchange without a group that is counted here.
    may_exchange = header.group_count or (Instrument.WAITS in blind and header.world_size != 1)
    communication_seen = not may_exchange or header.communication_basis & (Basis.WAITS_TIMED | Basis.DDP_SAMPLED)
    return RankRecord(
        host=host,
        rank=header.rank,
        attempt=header.attempt if attempt is None else attempt,
        pid=header.pid,
        world_size=header.world_size,
        step_count=None if stepless else header.step_count,
        first_step_ns=header.first_step_ns,
        last_step_ns=header.last_step_ns,
        step_seconds=None if stepless else header.step_total_ns / _NS,
        data_seconds=None if Instrument.DATA in blind else header.data_total_ns / _NS,
        communication_seconds=header.communication_total_ns / _NS if communication_seen else None,
        checkpoint_seconds=None if Instrument.CHECKPOINT in blind else header.checkpoint_total_ns / _NS,
        checkpoint_outside_seconds=None if Instrument.CHECKPOINT in blind else header.checkpoint_outside_ns / _NS,
        saved_steps=None if Instrument.CHECKPOINT in blind else header.saved_steps,
        loaded_ns=None if Instrument.CHECKPOINT in blind else header.loaded_ns,
        loaded_file=header.loaded_file,
        optimizer_loaded=header.optimizer_loaded,
        parameters_asked=header.parameters_asked,
        parameters_loaded=header.parameters_loaded,
        collective_count=None if Instrument.COLLECTIVES in blind else header.collective_count,
        loader_batches=header.loader_batches,
        batch_size=header.batch_size,
        left_by=None if Instrument.EXIT in blind or not header.left_by else header.left_by - 1,
        left_at=header.left_at,
        batches_taken=None if Instrument.DATA in blind else header.batches_taken or None,
        ran_out_steps=None if Instrument.DATA in blind or stepless else header.ran_out_steps or None,
        ran_out_batches=None if Instrument.DATA in blind or stepless else header.ran_out_batches or None,
        dropped_records=header.lost_count,
        steps=steps,
    )


def from_progress(plain: Any, host: str) -> RankRecord | None:
    """A rank's totals from a telemetry line, if they are the fields of its record; otherwise None.

    Fields of a later version are passed over.
    """
    if not isinstance(plain, dict):
        return None
    names = {field.name for field in dataclasses.fields(RankRecord)} - {"host", "steps", "step_lengths", "exit"}
    values = {name: value for name, value in plain.items() if name in names}
    texts = {"loaded_file", "left_at"}
    if not all(
        isinstance(value, str) if name in texts else value is None or isinstance(value, (int, float))
        for name, value in values.items()
    ):
        return None
    if not all(isinstance(values.get(name), int) for name in ("rank", "attempt")):
        return None
    try:
        return RankRecord(host=host, **values)
    except TypeError:
        return None


def append_segment(file: BinaryIO, reader: RingReader, *, without: Collection[int] = ()) -> int:
    """Drain the ring into a segment file, opened for reading and writing, and say how many records it got; none of the kinds `without`."""
    records = drained(reader, without)
    append_records(file, reader, records)
    return len(records) // RECORD_BYTES


def drained(reader: RingReader, without: Collection[int] = ()) -> bytes:
    """The ring's records since the last call, except those of the kinds `without`."""
    records, _ = reader.drain()
    if not without:
        return records
    return b"".join(
        records[at : at + RECORD_BYTES]
        for at in range(0, len(records), RECORD_BYTES)
        if int.from_bytes(records[at : at + 2], "little") not in without
    )


def append_records(file: BinaryIO, reader: RingReader, records: bytes) -> None:
    """Append drained records to a segment file.

    The header page is rewritten in place after the records, so it never promises less than the file holds.
    """
    end = file.seek(0, os.SEEK_END)
    # A record that an earlier, killed agent wrote only in part is overwritten.
    whole = HEADER_BYTES + (end - HEADER_BYTES) // RECORD_BYTES * RECORD_BYTES if end >= HEADER_BYTES else HEADER_BYTES
    file.seek(whole)
    file.write(records)
    file.seek(0)
    file.write(reader.page())
    file.flush()


def _rank_record(path: Path, last_records: int | None, only_lengths: bool, complaints: list[str]) -> RankRecord | None:
    host, attempt = path.parent.parent.name, path.parent.name.removeprefix("attempt_")
    who = f"{host} attempt {attempt} {path.name}"
    match = _NAME.match(path.name)
    if match is None or not attempt.isdigit():
        return None
    try:
        page, body = _read(path, None if last_records is None else last_records * RECORD_BYTES)
        header = parse_header(page)
    except (OSError, ValueError) as error:
        complaints.append(f"{who}: {error}")
        return None
    whole = len(body) - len(body) % RECORD_BYTES
    if whole != len(body):
        complaints.append(f"{who}: ends inside a record")
    record = from_header(header, host, attempt=int(attempt), steps=() if only_lengths else _steps(body[:whole]))
    if only_lengths:
        record = dataclasses.replace(record, step_lengths=_step_lengths(body[:whole]))
    complaints += _blind_spots(header, f"rank {header.rank} on {host}")
    return record


def _read(path: Path, tail_bytes: int | None) -> tuple[bytes, bytes]:
    with open_plain(path) as file:
        page = file.read(HEADER_BYTES)
        if tail_bytes is None:
            return page, file.read()
        end = file.seek(0, 2)
        torn = max(end - HEADER_BYTES, 0) % RECORD_BYTES
        file.seek(max(end - torn - tail_bytes, HEADER_BYTES))
        return page, file.read()


def _steps(body: bytes) -> tuple[Step, ...]:
    return tuple(
        Step(
            index=values[0],
            end_ns=values[1],
            duration_ns=values[2],
            data_ns=values[3],
            communication_ns=values[4],
            checkpoint_ns=values[5],
            communication_measured=bool(code & COMMUNICATION_MEASURED),
        )
        for kind, _, code, *values in RECORD.iter_unpack(body)
        if kind == RecordKind.STEP
    )


def _step_lengths(body: bytes) -> tuple[tuple[int, int], ...]:
    # Column by column: of a list of runs, hundreds of thousands of records are read at once.
    cells = memoryview(body).cast("Q")
    stamps, indices, lengths = (cells[at :: RECORD_BYTES // 8].tolist() for at in (0, 1, 3))
    are_steps = (stamp & 0xFFFF == RecordKind.STEP for stamp in stamps)
    return tuple(compress(zip(indices, lengths, strict=True), are_steps))


def _blind_spots(header: RingHeader, who: str) -> list[str]:
    said = []
    if header.turned_off:
        said.append(f"{who}: PACELINE_OFF turned off {_names(header.turned_off)}")
    if header.missing:
        said.append(f"{who}: {_framework(header.communication_basis)} does not show {_not_shown(header.missing)}")
    if header.dropped_instruments:
        said.append(
            f"{who}: watching {_names(header.dropped_instruments)} failed: {header.failure or 'no reason kept'}"
        )
    elif header.failure:
        # Of an instrument that `Instrument` has no member for, or of what is none.
        said.append(f"{who}: {header.failure}")
    if header.communication_basis & Basis.DEVICE_WAITS_UNSEEN:
        said.append(f"{who}: waits of the device are not in its communication time")
    if header.lost_count:
        said.append(f"{who}: {header.lost_count} records were lost, totals were not")
    return said


def _framework(basis: int) -> str:
    if basis & Basis.STEPS_BY_CALL:
        return "TensorFlow"
    if basis & Basis.STEPS_BY_BATCH:
        return "JAX"
    return "paceline.step()" if basis & Basis.STEPS_BY_SCRIPT else "this torch"


_SHOWS = {
    Instrument.STEPS: "when a step ends",
    Instrument.DATA: "the wait for data",
    Instrument.WAITS: "the wait for collectives",
    Instrument.COLLECTIVES: "how many collectives there are beside those from Python",
    Instrument.DDP: "DDP's exposed communication",
    Instrument.REPLICA: "whether all replicas are equal",
    Instrument.WORKER_SERVER: "anything while its Python does not run (no worker server)",
    Instrument.FLIGHT_RECORDER: "which collective of C++ a rank is in (no flight recorder)",
}


def _not_shown(missing: Instrument) -> str:
    texts = [_SHOWS.get(part) or _names(part) for part in missing]
    return ", ".join(texts[:-1]) + " and " * (len(texts) > 1) + texts[-1]


def _names(instruments: Instrument) -> str:
    return ", ".join(str(part.name).lower().replace("_", " ") for part in instruments)


def _folded(complaints: Iterable[str]) -> list[str]:
    """The same message of many ranks once, with their number, so that 512 ranks do not fill the screen."""
    groups: dict[str, list[str]] = {}
    for complaint in complaints:
        who, _, what = complaint.partition(": ")
        groups.setdefault(what, []).append(who)
    return [
        f"{whos[0]}: {what}" if len(whos) == 1 else f"{len(whos)} ranks ({whos[0]} ...): {what}"
        for what, whos in groups.items()
    ]
