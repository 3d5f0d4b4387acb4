"""A rank's progress in each of its groups, as a table in its ring's header page. Standard library only.

    bytes 3072 to 4095    32 rows of 4 cells: number of the group (see string_table.py), entered, over, what it is in

torch's flight recorder sees no process group that is written in Python and cannot tell the lanes of a strategy apart. The rank keeps
this table itself, so it can be read at any time without a request. "What it is in" is the oldest exchange that is not over, or the last
one. A row whose number is 0 is free.
"""

import struct
from dataclasses import dataclass

TABLE_OFFSET = 3072
ROWS, ROW_CELLS = 32, 4
FIRST_CELL = TABLE_OFFSET // 8
# What a row holds, as an offset from its first cell.
GROUP, ENTERED, OVER, INSIDE = range(ROW_CELLS)
_TABLE = struct.Struct(f"<{ROWS * ROW_CELLS}Q")
_MOST_ELEMENTS = 2**48 - 1

# Only appended to: a row and a record refer to a type by its index here. As torch spells them, without "torch.".
DTYPES = (
    "unknown", "float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "uint16", "uint32", "uint64", "complex32",
)  # fmt: skip
_ITEM_BYTES = {1: 4, 2: 2, 3: 2, 4: 8, 7: 2, 8: 4, 9: 8, 11: 8, 12: 16, 17: 2, 18: 4, 19: 8, 20: 4}


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One group of one rank, as paceline's own exchange counts it."""

    group: int
    """Number of the group in the rank's string table."""
    entered: int
    """Exchanges entered so far."""
    over: int
    """Exchanges completed so far. If it is less than `entered`, the rank is inside number `over` + 1."""
    operation: int
    """Operation of the oldest incomplete exchange: an index into ring.OPERATIONS."""
    dtype: int
    """Its data type: an index into DTYPES."""
    numel: int
    """Its number of elements."""


def packed(operation: int, dtype: int, numel: int) -> int:
    """What is exchanged, in one cell.

    Holds:   unpacked(packed(o, d, n)) == (o, d, n), for o, d < 256 and n < 2**48
    """
    return operation & 0xFF | (dtype & 0xFF) << 8 | min(max(numel, 0), _MOST_ELEMENTS) << 16


def unpacked(cell: int) -> tuple[int, int, int]:
    """Operation, dtype, elements."""
    return cell & 0xFF, cell >> 8 & 0xFF, cell >> 16


def item_bytes(dtype: int) -> int:
    """Bytes of one element; 1 if the type is not known."""
    return _ITEM_BYTES.get(dtype, 1)


def parse_table(page: bytes) -> tuple[ExchangeRow, ...]:
    """The rows that are in use; none in a page that was written before there was a table."""
    cells = _TABLE.unpack_from(page, TABLE_OFFSET)
    return tuple(
        ExchangeRow(cells[at + GROUP], cells[at + ENTERED], cells[at + OVER], *unpacked(cells[at + INSIDE]))
        for at in range(0, len(cells), ROW_CELLS)
        if cells[at + GROUP]
    )
