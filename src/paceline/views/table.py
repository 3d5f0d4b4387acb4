"""Columns of plain text that fit a width. No colour, no borders: it is read in tmux and by awk alike."""

from collections.abc import Sequence

_GAP = 2
_LEAST = 4


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[str] = frozenset(),
    width: int | None = 100,
    ascii_only: bool = False,
) -> str:
    """Rows under their headers; `right` names the columns of numbers.

    Holds: no line is longer than `width` (None: as long as need be), unless every column is already at its least; text gives way
           before numbers, the widest column first
    """
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    if width is not None:
        room = width - _GAP * (len(headers) - 1)
        _shrink(widths, [column for column, header in enumerate(headers) if header not in right], room)
        _shrink(widths, list(range(len(headers))), room)
    lines = [_line(headers, headers, widths, right, ascii_only)]
    lines += [_line(row, headers, widths, right, ascii_only) for row in rows]
    return "\n".join(lines)


def crop(text: str, width: int | None, *, ascii_only: bool = False) -> str:
    """At most `width` characters (None: all), with a mark where something was left out: in the middle, since a path, a name and a
    sentence say most at their ends.
    """
    if width is None or len(text) <= width:
        return text
    mark = ("..." if ascii_only else "…")[:width]
    kept = width - len(mark)
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


def _shrink(widths: list[int], columns: list[int], room: int) -> None:
    while columns and sum(widths) > room:
        widest = max(columns, key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def _line(
    row: Sequence[str], headers: Sequence[str], widths: Sequence[int], right: frozenset[str], ascii_only: bool
) -> str:
    cells = []
    for text, header, width in zip(row, headers, widths, strict=True):
        text = crop(text, width, ascii_only=ascii_only)
        cells.append(text.rjust(width) if header in right else text.ljust(width))
    return (" " * _GAP).join(cells).rstrip()
