"""The tensors of a saved slot as a file in the safetensors format: length of a JSON header, header, bytes. Standard library only.

Any reader of that format opens such a file. The names of the tensors are their numbers in the slot.
"""

import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence

BLOCK_BYTES = 4 << 20
# Where a slot's tensors begin, and how its tensors end: see parts/resume/worker/tensors.py, `layout`.
_ALIGNED_BYTES, _PAGE_BYTES = 64, 4096
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000
# torch's name -> the format's name, bytes of an element. Without a name in the format, a tensor is written as bytes.
_DTYPES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "int64": ("I64", 8), "int32": ("I32", 4),
    "int16": ("I16", 2), "int8": ("I8", 1), "uint64": ("U64", 8), "uint32": ("U32", 4), "uint16": ("U16", 2), "uint8": ("U8", 1),
    "bool": ("BOOL", 1), "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "complex64": ("C64", 8), "complex128": ("", 16),
    "complex32": ("", 4), "float8_e4m3fnuz": ("", 1), "float8_e5m2fnuz": ("", 1), "float8_e8m0fnu": ("", 1),
}  # fmt: skip

Described = Sequence[tuple[str, Sequence[int]]]
"""dtype (torch's name) and shape of each tensor."""


class PieceError(Exception):
    """A piece that is damaged, or a tensor that no piece can hold."""


def header_of(described: Described) -> bytes:
    """The beginning of a file with these tensors, up to the bytes of the first one.

    Raises:  PieceError: a dtype is not known here
    """
    tensors: dict[str, object] = {"__metadata__": {"described": json.dumps(described)}}
    at = 0
    for number, ((dtype, shape), size) in enumerate(zip(described, sizes_of(described), strict=True)):
        name = _DTYPES[dtype][0]
        tensors[str(number)] = {
            "dtype": name or "U8",
            "shape": list(shape) if name else [size],
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def sizes_of(described: Described) -> list[int]:
    """The bytes of each tensor.

    Raises:  PieceError: a dtype is not known here
    """
    if unknown := next((dtype for dtype, _ in described if dtype not in _DTYPES), None):
        raise PieceError(f"tensors of dtype {unknown} cannot be written")
    return [math.prod(shape) * _DTYPES[dtype][1] for dtype, shape in described]


def layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each tensor begins in a slot, and the bytes of all, whole pages.

    Holds:   layout([1, 64, 65]) == ([0, 64, 128], 4096)
    """
    places, at = [], 0
    for size in sizes:
        places.append(at)
        at += -(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES
    return places, -(-at // _PAGE_BYTES) * _PAGE_BYTES


def piece_of(descriptor: int, slot_at: int, described: Described) -> Iterator[bytes]:
    """The content of the file for the slot that begins at `slot_at` of a state buffer, in blocks.

    Raises:  PieceError: a dtype is not known here, or the buffer ends before its tensors do
    """
    yield header_of(described)
    sizes = sizes_of(described)
    for place, size in zip(layout(sizes)[0], sizes, strict=True):
        yield from _bytes_at(descriptor, slot_at + place, size)


def _bytes_at(descriptor: int, at: int, size: int) -> Iterator[bytes]:
    end = at + size
    while at < end:
        block = os.pread(descriptor, min(BLOCK_BYTES, end - at), at)
        if not block:
            raise PieceError("the buffer was emptied while it was read")
        at += len(block)
        yield block


def put_piece(blocks: Iterator[bytes], descriptor: int, slot_at: int, most_bytes: int) -> int:
    """Write the tensors of a file back to the slot that begins at `slot_at`. Returns the bytes of the slot's tensors, whole pages.

    `most_bytes`: the size of the file, so that no header has more memory taken than the file has bytes.

    Holds:   put_piece(piece_of(a, x, described), b, y, size) makes the tensors at y of b those at x of a
    Raises:  PieceError: it is no such file, or it is cut; OSError: there is no room
    """
    reader = _Reader(blocks)
    sizes = _sizes_in(reader)
    if sum(sizes) > most_bytes:
        raise PieceError("its header is that of a larger file")
    places, total = layout(sizes)
    if total:
        os.posix_fallocate(descriptor, slot_at, total)
    for place, size in zip(places, sizes, strict=True):
        _put_at(reader, size, descriptor, slot_at + place)
    return total


def checksums_of(blocks: Iterator[bytes]) -> list[int]:
    """The CRC-32 of each tensor of a file.

    Raises:  PieceError: it is no such file, or it is cut
    """
    reader = _Reader(blocks)
    return [_checksum(reader, size) for size in _sizes_in(reader)]


def _checksum(reader: "_Reader", size: int) -> int:
    found = 0
    while size:
        block = reader.take(min(size, BLOCK_BYTES))
        found = zlib.crc32(block, found)
        size -= len(block)
    return found


def _sizes_in(reader: "_Reader") -> list[int]:
    """The bytes of each tensor, as the header at the beginning of a file has them."""
    length = int.from_bytes(reader.take(_LENGTH_BYTES), "little")
    if length > _MOST_HEADER_BYTES:
        raise PieceError("its header is no header of this format")
    try:
        tensors = json.loads(reader.take(length))
        count = len(tensors) - len({"__metadata__"} & tensors.keys())
        offsets = [tensors[str(number)]["data_offsets"] for number in range(count)]
        sizes = [int(end) - int(begin) for begin, end in offsets]
        if any(size < 0 for size in sizes):
            raise ValueError("a tensor ends before it begins")
        return sizes
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise PieceError("its header is no header of this format") from error


def _put_at(reader: "_Reader", size: int, descriptor: int, at: int) -> None:
    while size:
        block = reader.take(min(size, BLOCK_BYTES))
        os.pwrite(descriptor, block, at)
        at += len(block)
        size -= len(block)


class _Reader:
    """Blocks of any size, read in other sizes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def take(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not self._rest:
                self._rest = memoryview(next(self._blocks, b""))
                if not self._rest:
                    raise PieceError("it is cut")
            wanted = size - len(found)
            found += self._rest[:wanted]
            self._rest = self._rest[wanted:]
        return bytes(found)
