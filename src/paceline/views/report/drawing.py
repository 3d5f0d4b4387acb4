"""Pictures as SVG: values in, string out. Colours are classes of the page's style sheet; no element has a style of its own."""

from collections.abc import Callable, Sequence
from itertools import groupby

from paceline.views.report.markup import Markup, element

WIDTH = 1000.0
# The least share of a bar that is drawn.
_LEAST_SHARE = 0.002
_LEFT = 70.0
_ROW_HEIGHT = 14.0
# A cell has one of so many shades.
_LEVELS = 12
Values = Sequence[float | None]


def bar(title: str, parts: Sequence[tuple[str, float]]) -> Markup:
    """One stacked bar. `parts`: class and size of each part, in its order."""
    whole = sum(size for _, size in parts) or 1.0
    at, drawn = 0.0, []
    for name, size in parts:
        width = WIDTH * size / whole
        if width >= WIDTH * _LEAST_SHARE:
            drawn.append(element("rect", class_=name, x=_short(at), y=0, width=_short(width), height=26))
        at += width
    return _picture(title, 26, *drawn)


def curves(
    title: str, lines: Sequence[tuple[str, Values]], spell: Callable[[float], str], marks: Values = ()
) -> Markup:
    """Lines over the columns of the time, from 0 to the largest value. `lines`: class and values; a None is a gap.

    `spell`: a value as text, for the axis. `marks`: places between 0 and 1 of upright lines.
    """
    height = 110.0
    largest = max((value for _, values in lines for value in values if value is not None), default=0.0) or 1.0
    drawn = [
        element("line", class_="axis", x1=_LEFT, x2=WIDTH, y1=height, y2=height),
        element("line", class_="axis", x1=_LEFT, x2=WIDTH, y1=10, y2=10),
        element("text", spell(largest), x=_LEFT - 6, y=14, text_anchor="end"),
        element("text", "0", x=_LEFT - 6, y=height, text_anchor="end"),
    ]
    for name, values in lines:
        if path := _path(values, largest, height):
            drawn.append(element("path", class_=f"curve {name}".strip(), d=path))
    drawn += [
        element("line", class_="mark", x1=_short(x), x2=_short(x), y1=10, y2=height)
        for x in (_LEFT + (WIDTH - _LEFT) * mark for mark in marks if mark is not None)
    ]
    return _picture(title, height + 4, *drawn)


def rows(
    title: str, named: Sequence[tuple[str, Values]], stood: Sequence[Sequence[bool]] = (), *, darkest: float = 1.0
) -> Markup:
    """One row of cells for each rank: the larger a value, the darker its cell. None: nothing is known, and the cell is empty.

    `darkest`: the value of the darkest cell. `stood`: for each row the cells in a colour of their own. Cells of one row that look
    alike are one element, so that many ranks make no large file.
    """
    drawn = []
    for number, (name, values) in enumerate(named):
        y = number * _ROW_HEIGHT
        levels = [None if value is None else round(_LEVELS * value / darkest) for value in values]
        drawn.append(element("text", name, x=_short(_LEFT - 6), y=_short(y + 10), text_anchor="end"))
        drawn.append(element("path", class_="empty", d=_cells([True] * len(levels), y)))
        drawn.append(element("path", class_="known", d=_cells([level is not None for level in levels], y)))
        drawn += [
            element(
                "path",
                class_="cell",
                fill_opacity=_short(level / _LEVELS, 2),
                d=_cells([one == level for one in levels], y),
            )
            for level in sorted({level for level in levels if level})
        ]
        if stood and any(stood[number]):
            drawn.append(element("path", class_="stood", d=_cells(stood[number], y)))
    return _picture(title, len(named) * _ROW_HEIGHT, *drawn)


def _cells(chosen: Sequence[bool], y: float) -> str:
    """The path around these cells of a row."""
    width, at, parts = (WIDTH - _LEFT) / max(len(chosen), 1), 0, []
    for is_chosen, cells in groupby(chosen):
        count = len(list(cells))
        if is_chosen:
            long = _short(count * width)
            parts.append(f"M{_short(_LEFT + at * width)} {_short(y)}h{long}v{_short(_ROW_HEIGHT - 1)}h-{long}z")
        at += count
    return "".join(parts)


def _picture(title: str, height: float, *drawn: Markup) -> Markup:
    return element(
        "svg", element("title", title), *drawn, viewBox=f"0 0 {WIDTH:g} {_short(height)}", role="img", aria_label=title
    )


def _path(values: Values, largest: float, height: float) -> str:
    width = (WIDTH - _LEFT) / max(len(values), 1)
    parts, is_drawing = [], False
    for place, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        x, y = _LEFT + (place + 0.5) * width, height - (height - 10) * min(value / largest, 1.0)
        # A value between two gaps is a short line, so that it is seen.
        parts.append(f"{'L' if is_drawing else 'M'}{_short(x)} {_short(y)}" + ("" if is_drawing else "h0.5"))
        is_drawing = True
    return "".join(parts)


def _short(number: float, digits: int = 1) -> str:
    return f"{number:.{digits}f}".rstrip("0").rstrip(".")
