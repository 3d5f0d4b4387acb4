"""`paceline why --log`: reads files that the user names, of any kind, and shows what they reveal."""

import argparse
import gzip
import os
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from paceline.cli.terminal import ascii_only, room, use_color
from paceline.diagnosis.logs.flight_recorder_dumps import RecorderDump, looks_like_dump, parse_dump
from paceline.diagnosis.logs.judge_logs import judge_logs
from paceline.diagnosis.logs.lines import Log, plain_text
from paceline.errors import UsageError
from paceline.findings import CauseFinding

# The cause is near the beginning or near the end of a log. The middle of a log of gigabytes is progress output.
END_BYTES = 8 << 20
# Of a longer dump, only the beginning and the end are read, as of a log, and it is judged as truncated.
MOST_DUMP_BYTES = 16 << 20
# A text may contain a few control characters, of a progress bar or a truncated line.
_MOST_BINARY_FRACTION = 0.02
_CHUNK_BYTES = 1 << 18
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...


def answer_logs(args: argparse.Namespace) -> Sequence[CauseFinding]:
    """Print the findings in the files. Returns the findings, for the exit code.

    Raises:  UsageError U27: a file cannot be read, or is neither text nor a flight-recorder dump
    """
    from paceline.rules import all_causes
    from paceline.views.documents import json_text
    from paceline.views.why import WhyPage, why_json
    from paceline.views.why_log import logs_text

    logs: list[Log] = []
    dumps: list[RecorderDump] = []
    for name in dict.fromkeys(args.logs):
        part = read_part(name)
        if isinstance(part, Log):
            logs.append(part)
        else:
            dumps.append(part)
    diagnosis = judge_logs(logs, dumps, {cause.code: cause.title for cause in all_causes()})
    if args.json:
        print(json_text(why_json(diagnosis, None)))
    else:
        page = WhyPage(
            width=room(sys.stdout), color=use_color(args.color, sys.stdout), ascii_only=ascii_only(sys.stdout)
        )
        pages = frozenset(cause.code for cause in all_causes())
        print(logs_text(diagnosis, logs, dumps, pages, page))
    return diagnosis.findings


def read_part(name: str) -> Log | RecorderDump:
    """One file: the beginning and the end of a text, or a whole flight-recorder dump. gzip files are decompressed.

    Raises:  UsageError U27: the file cannot be read, or is neither
    """
    try:
        data, note = _read(name)
    except OSError as error:
        saw = error.strerror or str(error)
        raise UsageError("U27", f"{name} cannot be read", saw=saw, next=f"ls -l {name}") from error
    if looks_like_dump(data):
        try:
            return parse_dump(name, data)
        except ValueError as error:
            if data[:1] == b"\x80":
                raise _no_text(name, f"a pickle: {error}") from error
    if (why := _binary(data)) is not None:
        raise _no_text(name, why)
    return Log(name, _decoded(data), note or ("" if data.strip() else "it is empty"))


def _read(name: str) -> tuple[bytes, str]:
    if name == "-":
        return _both_ends(cast(_Readable, sys.stdin.buffer), None)
    with Path(name).open("rb") as file:
        if not file.seekable():
            # A pipe, as a shell makes it of <(kubectl logs train-0).
            return _both_ends(file, None)
        head = file.read(4096)
        file.seek(0)
        if head[:2] == b"\x1f\x8b":
            return _both_ends(gzip.GzipFile(fileobj=file), None)
        size = os.fstat(file.fileno()).st_size
        if looks_like_dump(head) and size <= MOST_DUMP_BYTES:
            return file.read(), ""
        return _both_ends(file, size)


def _both_ends(file: _Readable, size: int | None) -> tuple[bytes, str]:
    """The first and the last END_BYTES, without the lines cut at the gap. A stream is read to its end."""
    head, tail, total, cut = b"", b"", 0, ""
    try:
        # With read(), the exception at a truncation would lose the data decompressed before it.
        while chunk := file.read1(_CHUNK_BYTES):
            total += len(chunk)
            if len(head) < END_BYTES:
                head += chunk
                # How much a read gives differs from Python to Python.
                head, tail = head[:END_BYTES], head[END_BYTES:]
                if len(head) == END_BYTES and size is not None and size > 2 * END_BYTES + _CHUNK_BYTES:
                    file.seek(size - END_BYTES)
                    total, tail = size - END_BYTES, b""
            else:
                tail = (tail + chunk)[-END_BYTES:]
    except (EOFError, zlib.error):
        cut = "it is truncated: judged by the part before the end"
    left_out = total - len(head) - len(tail)
    if left_out <= 0:
        return head + tail, cut
    kept = head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]
    note = f"{left_out / 1e6:.0f} MB in its middle were not read; line numbers after them are too small"
    return kept, "; ".join(filter(None, (note, cut)))


def _binary(data: bytes) -> str | None:
    """Why the data is not text; None if it is text."""
    head = data[:65536]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return None
    if b"\0" in head:
        return "it has zero bytes"
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    if head and controls / len(head) > _MOST_BINARY_FRACTION:
        return f"{controls} of its first {len(head)} bytes are control characters"
    return None


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return plain_text(data.decode("utf-16", "replace"))
    return plain_text(data.decode("utf-8", "replace"))


def _no_text(name: str, why: str) -> UsageError:
    return UsageError(
        "U27",
        f"{name} is neither a text nor a flight-recorder dump",
        saw=why,
        next="give the job's text output; a dump is what torch wrote to TORCH_FR_DUMP_TEMP_FILE",
    )
