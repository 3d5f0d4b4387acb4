"""Event files, byte by byte; tests/parts/web/pages/test_tensorboard.py reads them with the published package."""

import struct

import pytest

from paceline.parts.web.views.tensorboard import (
    Scalars,
    crc32c,
    file_begin,
    host_scalars,
    pace_scalars,
    run_scalars,
    scalars_record,
)
from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.views.pace import Pace

SECOND = 1_000_000_000
START = 1_795_000_000 * SECOND


@pytest.mark.parametrize(
    ("data", "crc"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)]
)
def test_the_checksum_is_castagnolis(data, crc):
    """The values are those of RFC 3720, B.4."""
    assert crc32c(data) == crc


def test_a_record_has_its_length_and_both_checksums():
    record = scalars_record(Scalars(START, 7, {"run/step_seconds": 0.25}))
    (length,) = struct.unpack("<Q", record[:8])
    assert len(record) == 8 + 4 + length + 4
    for data, kept in ((record[:8], record[8:12]), (record[12:-4], record[-4:])):
        (masked,) = struct.unpack("<I", kept)
        turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
        assert ((turned << 15 | turned >> 17) & 0xFFFFFFFF) == crc32c(data)
    assert b"run/step_seconds" in record and struct.pack("<f", 0.25) in record


def test_a_file_begins_with_its_version():
    assert file_begin(START)[12:-4] == b"\x09" + struct.pack("<d", START / 1e9) + b"\x1a\x0dbrain.Event:2"


def test_the_steps_of_a_part_of_the_time_are_those_of_all_ranks():
    axis = TimeAxis(START, START + 20 * SECOND, 2)
    steps = [
        StepColumns("node05", rank, 0, [10, 0], [10 * SECOND // 10, 0], [SECOND // 5 * (rank + 1), 0])
        for rank in range(2)
    ]
    (only,) = run_scalars(steps, axis, START)
    assert (only.t_ns, only.step) == (START + 10 * SECOND, 10)
    assert only.values == pytest.approx(
        {"run/step_seconds": 0.1, "run/longest_step_seconds": 0.4, "run/steps_per_second": 1.0}
    )


def test_what_is_not_known_of_a_host_has_no_value():
    lines = [{"t_ns": START + second * SECOND, "cpu": {"busy_fraction": 0.5}} for second in (1, 2)]
    found = list(host_scalars("node05", lines, TimeAxis(START, START + 4 * SECOND, 4), START))
    assert [one.values for one in found] == [{"host/cpu_fraction": 0.5}] * len(found) and found


def test_a_pace_without_a_step_is_no_moment():
    axis = TimeAxis(START, START + 10 * SECOND, 1)
    assert list(pace_scalars(Pace(), axis, START)) == []
    now = Pace(step_seconds=0.2, step_counts=(40, 60))
    (only,) = pace_scalars(now, axis, START)
    assert only.values == {"run/step_seconds": 0.2, "run/steps_per_second": 5.0} and only.step == 10
