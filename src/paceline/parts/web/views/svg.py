"""Charts as one SVG: lines with bands, dots and bars, on linear or logarithmic axes. Values in, string out.

Everything is a presentation attribute: no element has a `style`, so the picture also shows where a policy forbids styles. Its ground is
transparent. The colours of BOTH can be read on white and on black; LIGHT and DARK are for a page that says which of the two it is.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap

from paceline.views.report.markup import Markup, element

WIDTH = 720.0
_LEFT, _RIGHT = 76.0, 20.0
_HEIGHT = 220.0
_BAR_HEIGHT = 22.0
_FONT = 12.0
# Of a letter, in parts of the font's size: an SVG does not know how wide its text will be.
_LETTER = 0.58
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours of a picture."""

    text: str
    """Titles, labels and what has no series."""
    faint: str
    """Grid and axes."""
    series: tuple[str, ...]
    """One for each series; after the last one they begin again, with another dash."""


BOTH = Palette(
    text="#757575",
    faint="#9a9a9a",
    series=("#2f7fd1", "#c4650a", "#23884f", "#a05ac8", "#cf4a4a", "#14828f"),
)
LIGHT = Palette(
    text="#24292f",
    faint="#c4cad1",
    series=("#1263b0", "#a04d00", "#14683a", "#7d3ba6", "#b02a2a", "#0b626c"),
)
DARK = Palette(
    text="#e6edf3",
    faint="#4a535d",
    series=("#6cb0f5", "#f0a04b", "#5cc98b", "#c99bea", "#f28b8b", "#58c5d2"),
)


def round_number(value: float) -> str:
    """A label of an axis: "0.5", "1 200"."""
    return f"{value:,.6g}".replace(",", " ")


class Draw(StrEnum):
    """How the points of a series are shown."""

    LINE = "line"
    DASHED = "dashed"
    DOTS = "dots"
    HOLLOW = "hollow"
    RING = "ring"


@dataclass(frozen=True, slots=True)
class Point:
    """One value with its interval."""

    x: float
    y: float
    low: float | None = None
    """Lower end of the interval; None: there is none."""
    high: float | None = None
    """Upper end of the interval; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together. Series of one name have one colour in all charts of a picture."""

    name: str
    """As the legend has it."""
    points: tuple[Point, ...]
    """In the order of x. A value that is not above 0 has no place on a logarithmic axis, and is left out there."""
    draw: Draw = Draw.LINE
    """Lines get a band for their intervals, dots get upright bars."""
    is_neutral: bool = False
    """In the colour of the text, such as the choice among the points of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction of a chart."""

    title: str
    """What it shows, with its unit."""
    spell: Callable[[float], str] = round_number
    """A value as text."""
    is_log: bool = False
    """With equal distances for equal ratios; otherwise it begins at 0."""
    at: tuple[float, ...] = ()
    """The places of its labels; empty: round numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series over one pair of axes."""

    title: str
    """What the chart shows."""
    x: Axis
    """From left to right."""
    y: Axis
    """From bottom to top."""
    series: tuple[Series, ...]
    """In the order in which they are drawn."""
    limit: tuple[float, str] | None = None
    """A level that matters, and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One value among others of its kind."""

    label: str
    """Of what."""
    value: float | None
    """How much; None: not known, and `text` says why."""
    low: float | None = None
    """Lower end of the interval; None: there is none."""
    high: float | None = None
    """Upper end of the interval; None: there is none."""
    text: str = ""
    """What stands beside it."""
    is_marked: bool = False
    """The one to take."""
    is_hollow: bool = False
    """One that does not count, such as what does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars below each other, from 0."""

    title: str
    """What they show, with its unit."""
    bars: tuple[Bar, ...]
    """From top to bottom."""
    limit: tuple[float, str] | None = None
    """A value that matters, and its name."""


def picture(
    title: str, desc: str, parts: Sequence[Chart | Bars], *, notes: Iterable[str] = (), palette: Palette = BOTH
) -> str:
    """The whole file.

    `desc`: what the picture shows, for who does not see it. `notes`: lines below it, such as what was left out.

    Holds:   the same values give the same text; every mark is inside the picture
    """
    colors = _Colors(parts, palette)
    drawn: list[Markup] = [_text(title, 0, 18, palette, size=16, weight="bold")]
    top = 30.0
    for row in _legend_rows(parts, colors):
        drawn += [mark for at, series in row for mark in _legend(series, at, top, colors)]
        top += 20.0
    for part in parts:
        marks, height = _chart(part, top, colors) if isinstance(part, Chart) else _bars(part, top, palette)
        drawn += marks
        top += height
    for note in notes:
        for line in wrap(note, int(WIDTH / (_FONT * _LETTER))):
            drawn.append(_text(line, 0, top + _FONT, palette))
            top += _FONT + 5
    height = math.ceil(top + 6)
    made = element(
        "svg",
        element("title", title, id="title"),
        element("desc", desc, id="desc"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height}",
        width=f"{WIDTH:.0f}",
        height=height,
        role="img",
        aria_labelledby="title desc",
        font_family="system-ui, sans-serif",
        font_size=f"{_FONT:.0f}",
    )
    return made.replace("><", ">\n<") + "\n"


# ------------------------------------------------------------------------------------------------------------------ charts


class _Colors:
    """Which colour and dash a series has."""

    def __init__(self, parts: Sequence[Chart | Bars], palette: Palette) -> None:
        self.palette = palette
        names = [one.name for part in parts if isinstance(part, Chart) for one in part.series if not one.is_neutral]
        self._places = {name: place for place, name in enumerate(dict.fromkeys(names))}

    def of(self, series: Series) -> str:
        if series.is_neutral:
            return self.palette.text
        return self.palette.series[self._places[series.name] % len(self.palette.series)]

    def dash(self, series: Series) -> str | None:
        if series.draw is Draw.DASHED:
            return "6 4"
        rounds = self._places.get(series.name, 0) // len(self.palette.series)
        return (None, "2 3", "10 3 2 3")[rounds % 3]


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to places of the picture."""

    axis: Axis
    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(x) if self.axis.is_log else x for x in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.begin + (self.end - self.begin) * min(max(share, 0.0), 1.0)

    def takes(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self.axis.is_log)

    def ticks(self) -> list[float]:
        wanted = self.axis.at or (_log_ticks if self.axis.is_log else _round_ticks)(self.low, self.high)
        return [tick for tick in wanted if self.low <= tick <= self.high]


def _scale(axis: Axis, values: Iterable[float], begin: float, end: float, room: float) -> _Scale:
    """`room`: how much larger than the largest value the end of the axis is, as a fraction."""
    found = [value for value in values if math.isfinite(value) and (value > 0 or not axis.is_log)]
    if axis.is_log:
        low, high = min(found, default=1.0), max(found, default=10.0)
        if low == high:
            low, high = low / 2, high * 2
        return _Scale(axis, low / (1 + room), high * (1 + room), begin, end)
    return _Scale(axis, 0.0, max(found, default=1.0) * (1 + room) or 1.0, begin, end)


def _chart(chart: Chart, top: float, colors: _Colors) -> tuple[list[Markup], float]:
    points = [point for series in chart.series for point in series.points]
    ends = [end for point in points for end in (point.y, point.low, point.high) if end is not None]
    limit = [chart.limit[0]] if chart.limit is not None else []
    x = _scale(chart.x, [*chart.x.at, *(point.x for point in points)], _LEFT + 12, WIDTH - _RIGHT - 12, 0.0)
    y = _scale(chart.y, [*ends, *limit], top + 32 + _HEIGHT, top + 32, 0.08)
    palette = colors.palette
    drawn = [_text(chart.title, 0, top + 18, palette, weight="bold"), *_grid(x, y, palette)]
    # Where many bands lie over each other, a strong one would hide the others.
    lines = [one for one in chart.series if one.draw in (Draw.LINE, Draw.DASHED)]
    for series in lines:
        drawn += _band(series, x, y, colors.of(series), "0.18" if len(lines) < 3 else "0.07")
    for series in chart.series:
        drawn += _marks(series, x, y, colors)
    if chart.limit is not None and y.takes(chart.limit[0]):
        level = _short(y(chart.limit[0]))
        drawn.append(_line(_LEFT, level, WIDTH - _RIGHT, level, palette.text, dash="3 3"))
        drawn.append(_text(chart.limit[1], WIDTH - _RIGHT, y(chart.limit[0]) - 4, palette, anchor="end"))
    return drawn, 32 + _HEIGHT + 44


def _grid(x: _Scale, y: _Scale, palette: Palette) -> Iterator[Markup]:
    for tick in y.ticks():
        yield _line(_LEFT, _short(y(tick)), WIDTH - _RIGHT, _short(y(tick)), palette.faint, width=0.5)
        yield _text(y.axis.spell(tick), _LEFT - 6, y(tick) + 4, palette, anchor="end")
    yield _line(_LEFT, _short(y.begin), WIDTH - _RIGHT, _short(y.begin), palette.faint)
    free = -math.inf
    for tick in x.ticks():
        text = x.axis.spell(tick)
        half = _width(text) / 2
        if x(tick) - half >= free:
            yield _line(_short(x(tick)), _short(y.begin), _short(x(tick)), _short(y.begin + 4), palette.faint)
            yield _text(text, x(tick), y.begin + 17, palette, anchor="middle")
            free = x(tick) + half + 8
    yield _text(x.axis.title, WIDTH - _RIGHT, y.begin + 34, palette, anchor="end")
    yield _text(y.axis.title, WIDTH - _RIGHT, y.end - 8, palette, anchor="end")


def _band(series: Series, x: _Scale, y: _Scale, color: str, opacity: str) -> Iterator[Markup]:
    """The intervals of a line as one surface."""
    known = [one for one in series.points if one.low is not None and one.high is not None]
    known = [one for one in known if x.takes(one.x) and y.takes(one.low or 0.0) and y.takes(one.high or 0.0)]
    if len(known) < 2:
        return
    above = [(x(one.x), y(one.high or 0.0)) for one in known]
    below = [(x(one.x), y(one.low or 0.0)) for one in reversed(known)]
    yield element("path", d=f"{_path([*above, *below])}Z", fill=color, fill_opacity=opacity)


def _marks(series: Series, x: _Scale, y: _Scale, colors: _Colors) -> Iterator[Markup]:
    color = colors.of(series)
    shown = [one for one in series.points if x.takes(one.x) and y.takes(one.y)]
    is_line = series.draw in (Draw.LINE, Draw.DASHED)
    places = [(x(one.x), y(one.y)) for one in shown]
    if is_line and len(places) > 1:
        dash = colors.dash(series)
        yield element("path", d=_path(places), fill="none", stroke=color, stroke_width="2", stroke_dasharray=dash)
    for (across, up), one in zip(places, shown, strict=True):
        if (not is_line or len(shown) == 1) and one.low is not None and one.high is not None and y.takes(one.low):
            yield _line(_short(across), _short(y(one.low)), _short(across), _short(y(one.high)), color, width=1.5)
        yield _dot(series.draw, across, up, color)


def _dot(draw: Draw, x: float, y: float, color: str) -> Markup:
    radius = {Draw.LINE: 2.5, Draw.DASHED: 2.5, Draw.RING: 8.0}.get(draw, 4.0)
    if draw in (Draw.HOLLOW, Draw.RING):
        return element(
            "circle", cx=_short(x), cy=_short(y), r=_short(radius), fill="none", stroke=color, stroke_width="2"
        )
    return element("circle", cx=_short(x), cy=_short(y), r=_short(radius), fill=color)


# ------------------------------------------------------------------------------------------------------------------ legend


def _legend_rows(parts: Sequence[Chart | Bars], colors: _Colors) -> list[list[tuple[float, Series]]]:
    """Each series once, from left to right in as many rows as they need."""
    every = {(one.name, one.draw): one for part in parts if isinstance(part, Chart) for one in part.series}
    rows: list[list[tuple[float, Series]]] = []
    at = WIDTH
    for series in every.values() if len(every) > 1 else ():
        needed = 28 + _width(series.name) + 18
        if at + needed > WIDTH or not rows:
            rows.append([])
            at = 0.0
        rows[-1].append((at, series))
        at += needed
    return rows


def _legend(series: Series, at: float, top: float, colors: _Colors) -> Iterator[Markup]:
    color = colors.of(series)
    if series.draw in (Draw.LINE, Draw.DASHED):
        yield _line(
            _short(at), _short(top + 8), _short(at + 22), _short(top + 8), color, width=2, dash=colors.dash(series)
        )
    else:
        yield _dot(series.draw, at + 11, top + 8, color)
    yield _text(series.name, at + 28, top + 12, colors.palette)


# -------------------------------------------------------------------------------------------------------------------- bars


def _bars(bars: Bars, top: float, palette: Palette) -> tuple[list[Markup], float]:
    left = min(max((_width(bar.label) for bar in bars.bars), default=0.0) + 10, WIDTH / 2)
    beside = min(max((_width(bar.text) for bar in bars.bars), default=0.0) + 10, WIDTH / 3)
    axis = Axis(title=bars.title, spell=str)
    ends = [end for bar in bars.bars for end in (bar.value, bar.high) if end is not None]
    limit = [bars.limit[0]] if bars.limit is not None else []
    x = _scale(axis, [*ends, *limit], left, WIDTH - beside, 0.0)
    drawn = [_text(bars.title, 0, top + 18, palette, weight="bold")]
    begin = top + (44 if bars.limit is not None else 30)
    for place, bar in enumerate(bars.bars):
        drawn += _bar(bar, begin + place * _BAR_HEIGHT, x, palette)
    end = begin + len(bars.bars) * _BAR_HEIGHT
    drawn.append(_line(_short(left), _short(begin), _short(left), _short(end), palette.faint))
    if bars.limit is not None:
        value, name = bars.limit
        drawn.append(
            _line(_short(x(value)), _short(begin - 6), _short(x(value)), _short(end), palette.text, dash="3 3")
        )
        anchor = "end" if x(value) > WIDTH / 2 else "start"
        drawn.append(_text(name, x(value), begin - 10, palette, anchor=anchor))
    return drawn, end - top + 16


def _bar(bar: Bar, top: float, x: _Scale, palette: Palette) -> Iterator[Markup]:
    weight = "bold" if bar.is_marked else None
    color = palette.series[2] if bar.is_marked else palette.series[0]
    middle = top + _BAR_HEIGHT / 2
    yield _text(_cropped(bar.label, x.begin - 10), x.begin - 8, middle + 4, palette, anchor="end", weight=weight)
    ends = [x.begin]
    if bar.value is not None and x.takes(bar.value):
        ends.append(x(bar.value))
        yield element(
            "rect",
            x=_short(x.begin),
            y=_short(top + 4),
            width=_short(max(x(bar.value) - x.begin, 0.5)),
            height=_short(_BAR_HEIGHT - 8),
            fill="none" if bar.is_hollow else color,
            stroke=color if bar.is_hollow else None,
            fill_opacity=None if bar.is_hollow else "0.75",
        )
    if bar.low is not None and bar.high is not None:
        low, high = x(bar.low), x(bar.high)
        ends.append(high)
        yield _line(_short(low), _short(middle), _short(high), _short(middle), palette.text, width=1.5)
        for end in (low, high):
            yield _line(_short(end), _short(middle - 4), _short(end), _short(middle + 4), palette.text, width=1.5)
    room = WIDTH - max(ends) - 8
    yield _text(_cropped(bar.text, room), max(ends) + 8, middle + 4, palette, weight=weight)


# ------------------------------------------------------------------------------------------------------------------ pieces


def _text(
    text: str,
    x: float,
    y: float,
    palette: Palette,
    *,
    anchor: str | None = None,
    size: int | None = None,
    weight: str | None = None,
) -> Markup:
    return element(
        "text",
        text,
        x=_short(x),
        y=_short(y),
        fill=palette.text,
        text_anchor=anchor,
        font_size=size,
        font_weight=weight,
    )


def _line(
    x1: float | str,
    y1: float | str,
    x2: float | str,
    y2: float | str,
    color: str,
    *,
    width: float = 1.0,
    dash: str | None = None,
) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, stroke_width=f"{width:g}", stroke_dasharray=dash)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in places)


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _width(text: str) -> float:
    return len(text) * _FONT * _LETTER


def _cropped(text: str, room: float) -> str:
    most = max(int(room / (_FONT * _LETTER)), 1)
    return text if len(text) <= most else text[: most - 1] + "…"


def _round_ticks(low: float, high: float) -> list[float]:
    """About _TICKS values at 1, 2 or 5 times a power of ten."""
    raw = (high - low) / _TICKS
    if raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; where there are few of them, 2 and 5 times them as well; where those are few too, round values."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        found = [power * factor for power in powers for factor in factors if low <= power * factor <= high]
        if len(found) >= 3:
            return found
    return [tick for tick in _round_ticks(low, high) if tick > 0]
