"""Figures of a run as TensorBoard's event files. Values in, bytes out; tensorboard itself is not needed.

A file is a sequence of records: length, its checksum, an Event message, its checksum. One Event holds every figure of one moment.

Source:  TensorFlow, core/lib/io/record_writer.h; core/util/event.proto; core/framework/summary.proto
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.parts.web.views.protobuf import bytes_field, double_field, float_field, number_field
from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.views.host_load import usage_in_columns
from paceline.views.pace import Pace

_NS = 1_000_000_000
_POLYNOMIAL = 0x82F63B78
# Name in TensorBoard -> field of HostUsage.
_OF_A_HOST = {
    "host/cpu_fraction": "cpu_fraction",
    "host/memory_used_bytes": "memory_used_bytes",
    "host/network_received_bytes_per_second": "network_in_bytes_per_second",
    "host/network_sent_bytes_per_second": "network_out_bytes_per_second",
    "host/disk_bytes_per_second": "disk_bytes_per_second",
    "host/gpu_busy_fraction": "gpu_busy_fraction",
    "host/gpu_memory_used_bytes": "gpu_memory_used_bytes",
    "host/gpu_power_watts": "gpu_power_watts",
}


@dataclass(frozen=True, slots=True)
class Scalars:
    """The figures of one moment."""

    t_ns: int
    """Unix time."""
    step: int
    """Place on TensorBoard's axis of steps: seconds since the start of the run."""
    values: Mapping[str, float]
    """Name -> value."""


def host_scalars(host: str, lines: Iterable[Mapping[str, Any]], axis: TimeAxis, started_ns: int) -> Iterator[Scalars]:
    """How busy a host was in each part of the time of which there is a sample."""
    found = usage_in_columns(host, lines, axis)
    for column in range(axis.columns):
        values = {name: float(value) for name, key in _OF_A_HOST.items() if (value := found[key][column]) is not None}
        if values:
            yield _moment(axis, column, started_ns, values)


def run_scalars(steps: Sequence[StepColumns], axis: TimeAxis, started_ns: int) -> Iterator[Scalars]:
    """The mean and the longest step of all ranks in each part of the time, and the steps of a mean rank in a second."""
    seconds = max((axis.to_ns - axis.from_ns) / axis.columns / _NS, 1e-9)
    for column in range(axis.columns):
        counts = [one.counts[column] for one in steps if one.counts[column]]
        if counts:
            total_ns = sum(one.totals_ns[column] for one in steps)
            longest_ns = max(one.longest_ns[column] for one in steps)
            values = {
                "run/step_seconds": total_ns / sum(counts) / _NS,
                "run/longest_step_seconds": longest_ns / _NS,
                "run/steps_per_second": sum(counts) / len(counts) / seconds,
            }
            yield _moment(axis, column, started_ns, values)


def pace_scalars(now: Pace, axis: TimeAxis, started_ns: int) -> Iterator[Scalars]:
    """The step of a pace that is over an axis of one part; nothing if no step ended in it."""
    steps = [count for count in now.step_counts if count]
    if steps and now.step_seconds is not None:
        seconds = max((axis.to_ns - axis.from_ns) / _NS, 1e-9)
        values = {"run/step_seconds": now.step_seconds, "run/steps_per_second": sum(steps) / len(steps) / seconds}
        yield _moment(axis, 0, started_ns, values)


def _moment(axis: TimeAxis, column: int, started_ns: int, values: Mapping[str, float]) -> Scalars:
    """At the end of a part of the time, when everything in it has happened."""
    t_ns = axis.from_ns + (axis.to_ns - axis.from_ns) * (column + 1) // axis.columns
    return Scalars(t_ns, max(t_ns - started_ns, 0) // _NS, values)


# ----------------------------------------------------------------------------------------------------------------- the file


def file_begin(t_ns: int) -> bytes:
    """The first record of a file."""
    return _record(double_field(1, t_ns / _NS) + bytes_field(3, b"brain.Event:2"))


def scalars_record(moment: Scalars) -> bytes:
    """One moment as one record."""
    values = b"".join(
        bytes_field(1, bytes_field(1, name.encode()) + float_field(2, value)) for name, value in moment.values.items()
    )
    return _record(double_field(1, moment.t_ns / _NS) + number_field(2, moment.step) + bytes_field(5, values))


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and moved, as TensorFlow masks it."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum.

    Holds:   crc32c(b"123456789") == 0xE3069283
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE = _table()
