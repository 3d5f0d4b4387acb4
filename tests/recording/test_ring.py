"""The ring and its segment: what was written is read, what was overwritten is counted, what is no ring is refused."""

import os
import re
import struct

import pytest

from paceline.recording.exchanges import (
    DTYPES,
    FIRST_CELL,
    ROW_CELLS,
    ROWS,
    TABLE_OFFSET,
    item_bytes,
    packed,
    unpacked,
)
from paceline.recording.ring import (
    HEADER_BYTES,
    RECORD_BYTES,
    TEXTS,
    Cell,
    NotARing,
    RankPhase,
    RecordKind,
    RingReader,
    RingWriter,
    parse_header,
    parse_records,
)
from paceline.recording.segments import append_segment


@pytest.fixture
def ring(tmp_path):
    ring = RingWriter(tmp_path / "0-1.ring", capacity=8)
    yield ring
    ring.drop()


def read_segment(path):
    """The header, the records, and whether the file ends inside one."""
    raw = path.read_bytes()
    body = raw[HEADER_BYTES:]
    whole = len(body) - len(body) % RECORD_BYTES
    return parse_header(raw[:HEADER_BYTES]), parse_records(body[:whole]), whole != len(body)


def steps(raw):
    return [record.values[0] for record in parse_records(raw)]


@pytest.mark.parametrize("records", [0, 1, 7])
def test_a_ring_that_has_not_the_records_it_promises_is_none(ring, records):
    os.truncate(ring.path, HEADER_BYTES + records * RECORD_BYTES)
    with pytest.raises(NotARing, match="shorter than the 8 records"):
        RingReader(ring.path)


def test_what_was_written_is_read_back(ring):
    ring.cells[Cell.RANK] = 3
    ring.text("host", "algo-2")
    ring.write(RecordKind.STEP, 7, 1, 2, 3, 4, 5, 6, 2**64 - 1)
    ring.write(RecordKind.PHASE, RankPhase.CHECKPOINT, 10, 20)
    reader = RingReader(ring.path)
    header = reader.header()
    assert (header.rank, header.host, header.cursor, header.world_size, header.exit_code) == (
        3,
        "algo-2",
        2,
        None,
        None,
    )
    step, phase = parse_records(reader.drain()[0])
    assert (step.kind, step.code, step.values) == (RecordKind.STEP, 7, (1, 2, 3, 4, 5, 6, 2**64 - 1))
    assert (phase.kind, phase.code, phase.values) == (RecordKind.PHASE, RankPhase.CHECKPOINT, (10, 20, 0, 0, 0, 0, 0))
    assert reader.drain() == (b"", 0)


def test_overwritten_records_are_counted(ring):
    reader = RingReader(ring.path)
    for index in range(20):
        ring.write(RecordKind.STEP, 0, index, 0)
    raw, lost = reader.drain()
    # Nor can the oldest slot be trusted: the writer fills it next.
    assert (steps(raw), lost, reader.header().lost_count) == (list(range(13, 20)), 13, 13)


def test_a_slot_that_is_overwritten_while_it_is_read_is_lost_not_wrong(ring):
    for index in range(8):
        ring.write(RecordKind.STEP, 0, index, 0)
    reader = RingReader(ring.path)
    # The writer is in the middle of record 8: its words are there, its stamp and the cursor are not.
    ring.cells[HEADER_BYTES // 8 + 1] = 8
    raw, lost = reader.drain()
    assert (steps(raw), lost) == (list(range(1, 8)), 1)


def test_a_cursor_that_another_thread_set_back_neither_repeats_nor_invents_records(ring):
    reader = RingReader(ring.path)
    ring.write(RecordKind.STEP, 0, 0, 0)
    ring.write(RecordKind.STEP, 0, 1, 0)
    assert steps(reader.drain()[0]) == [0, 1]
    # The thread that wrote the first record comes to its last word only now.
    ring.cells[Cell.CURSOR] = 1
    assert reader.drain() == (b"", 0)
    ring.write(RecordKind.STEP, 0, 2, 0)
    assert (steps(reader.drain()[0]), reader.lost_count) == ([2], 0)


def test_a_segment_holds_every_drained_record_and_the_latest_header(ring, tmp_path):
    reader = RingReader(ring.path)
    path = tmp_path / "rank_0.seg"
    with path.open("w+b") as file:
        for index in range(3):
            ring.write(RecordKind.STEP, 0, index, 0)
            ring.cells[Cell.STEP_COUNT] = index + 1
            assert append_segment(file, reader) == 1
    header, records, truncated = read_segment(path)
    assert (header.step_count, [record.values[0] for record in records], truncated) == (3, [0, 1, 2], False)


def test_a_segment_that_ends_inside_a_record_says_so_and_can_be_continued(ring, tmp_path):
    reader = RingReader(ring.path)
    path = tmp_path / "rank_0.seg"
    ring.write(RecordKind.STEP, 0, 1, 0)
    with path.open("w+b") as file:
        append_segment(file, reader)
        file.seek(0, os.SEEK_END)
        file.write(b"x" * 10)
    _, records, truncated = read_segment(path)
    assert (len(records), truncated) == (1, True)
    ring.write(RecordKind.STEP, 0, 2, 0)
    with path.open("r+b") as file:
        append_segment(file, reader)
    _, records, truncated = read_segment(path)
    assert ([record.values[0] for record in records], truncated) == ([1, 2], False)


def test_an_unknown_version_is_refused(ring):
    ring.cells[Cell.VERSION] = 99
    with pytest.raises(NotARing, match="version 99"):
        RingReader(ring.path)


@pytest.mark.parametrize(
    "content", [b"", b"PACERING", b"x" * HEADER_BYTES, struct.pack("<3Q", 1, 1, 1).ljust(HEADER_BYTES)]
)
def test_a_file_that_is_no_ring_is_refused(tmp_path, content):
    path = tmp_path / "0-1.ring"
    path.write_bytes(content)
    with pytest.raises(NotARing):
        RingReader(path)


def test_a_new_process_with_an_old_number_does_not_disturb_who_still_reads_the_old_ring(ring):
    ring.write(RecordKind.STEP, 0, 1, 0)
    reader = RingReader(ring.path)
    RingWriter(ring.path, capacity=8).drop()
    assert steps(reader.drain()[0]) == [1]
    assert RingReader(ring.path).drain() == (b"", 0)


def test_the_whole_room_is_taken_at_once(ring):
    assert os.stat(ring.path).st_size == HEADER_BYTES + 8 * RECORD_BYTES
    assert os.stat(ring.path).st_blocks * 512 >= os.stat(ring.path).st_size


def test_texts_are_cut_to_their_room(ring):
    ring.text("failure", "ü" * 10_000)
    assert RingReader(ring.path).header().failure.startswith("ü" * 200)


def test_the_table_of_exchanges_is_part_of_the_header(ring):
    assert parse_header(ring_page(ring)).exchanges == ()
    at = FIRST_CELL + ROW_CELLS
    ring.cells[at + 1], ring.cells[at + 2], ring.cells[at + 3] = 12, 11, packed(3, 9, 2**48 - 1)
    ring.cells[at] = 2**40 + 5
    (row,) = parse_header(ring_page(ring)).exchanges
    assert (row.group, row.entered, row.over) == (2**40 + 5, 12, 11)
    assert (row.operation, row.dtype, row.numel) == (3, 9, 2**48 - 1)


def test_no_text_of_the_header_reaches_into_the_table(ring):
    for name, (offset, room) in TEXTS.items():
        assert offset + room <= TABLE_OFFSET
        ring.text(name, "x" * 10_000)
    assert TABLE_OFFSET + ROWS * ROW_CELLS * 8 == HEADER_BYTES
    assert parse_header(ring_page(ring)).exchanges == ()


@pytest.mark.parametrize("numel", [0, 1, 2**48 - 1])
def test_what_is_exchanged_fits_one_cell(numel):
    assert unpacked(packed(25, len(DTYPES) - 1, numel)) == (25, len(DTYPES) - 1, numel)


def test_every_type_has_the_size_that_its_name_says():
    sizes = {name: item_bytes(code) for code, name in enumerate(DTYPES)}
    bits = {name: int(digits[0]) for name in DTYPES if (digits := re.findall(r"\d+", name))}
    assert {name: size * 8 for name, size in sizes.items() if name in bits} == bits
    assert len(DTYPES) == len(set(DTYPES)) < 256


def ring_page(ring):
    reader = RingReader(ring.path)
    page = reader.page()
    reader.close()
    return page
