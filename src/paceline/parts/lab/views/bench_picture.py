"""A bench as a picture: bandwidth and time of a collective by size, gradient strategies side by side, or the slowest pairs."""

from collections.abc import Callable, Iterator, Sequence

from paceline.parts.comm.planner.strategy_times import PLAIN, StrategyTime, fastest
from paceline.parts.lab.nccl_tests import BenchRow, Table, Timing, algbw, size_text
from paceline.parts.lab.slow_pairs import Pair, Slow
from paceline.parts.lab.views.bench_pairs import slow_lines
from paceline.parts.web.views.svg import BOTH, Axis, Bar, Bars, Chart, Draw, Palette, Point, Series, picture
from paceline.spelling import plural
from paceline.views.units import bare_milliseconds, count, counted, times

_MOST_PAIRS = 40


def collective_svg(table: Table, *, palette: Palette = BOTH) -> str:
    """The picture of one collective: every measured size, type, reduction and root, in place and out of place."""
    sizes = tuple(sorted({float(row.size_bytes) for row in table.rows}))
    x = Axis(title="bytes", spell=lambda value: size_text(round(value)), is_log=True, at=sizes)
    speed = Chart(
        title="Bandwidth (algbw)",
        x=x,
        y=Axis(title="GB/s"),
        series=tuple(_series(table, _speed)),
    )
    time = Chart(
        title="Time",
        x=x,
        y=Axis(title="us", is_log=True),
        series=tuple(_series(table, _time)),
    )
    world = table.world
    where = f"{counted(world.size, 'rank')} on {counted(len(world.hosts), 'host')}, {world.backend} on {world.device}"
    desc = f"Bandwidth and time of {table.collective} by size among {where}."
    return picture(f"{table.collective}: {where}", desc, [speed, time], notes=_notes(table), palette=palette)


def strategies_svg(found: Sequence[StrategyTime], program: Sequence[str], *, palette: Palette = BOTH) -> str:
    """The step of each strategy with its median absolute deviation. Strategies that lose or fail are in it."""
    best = fastest(found)
    plain = next((one.step for one in found if one.strategy == PLAIN), None)
    bars = Bars(
        title="Time of a step, ms",
        bars=tuple(_strategy(one, is_best=one is best) for one in found),
        limit=(plain.seconds * 1e3, f"plain DDP {bare_milliseconds(plain.seconds)} ms") if plain is not None else None,
    )
    take = (
        f"Fastest beyond chance: {best.strategy}."
        if best is not None
        else "No exact strategy beats plain beyond chance."
    )
    title = f"Gradient strategies: {' '.join(program)}"
    notes = (take, "Whiskers are the median absolute deviation of a step. A lossy strategy gives other averages.")
    return picture(title, f"The step of each gradient strategy. {take}", [bars], notes=notes, palette=palette)


def pairs_svg(pairs: Sequence[Pair], slow: Sequence[Slow] | None, *, palette: Palette = BOTH) -> str:
    """The bandwidth of each pair, the slowest first."""
    order = sorted(pairs, key=lambda pair: pair.gb_per_second)
    shown, left = order[:_MOST_PAIRS], len(order[_MOST_PAIRS:])
    bars = Bars(
        title=f"Bandwidth each way of {size_text(pairs[0].size_bytes)}, GB/s" if pairs else "Bandwidth, GB/s",
        bars=tuple(
            Bar(
                label=pair.name,
                value=pair.gb_per_second,
                low=_gb(pair.size_bytes, pair.seconds + pair.mad_seconds),
                high=_gb(pair.size_bytes, max(pair.seconds - pair.mad_seconds, pair.seconds / 2)),
                text=_number(pair.gb_per_second),
            )
            for pair in shown
        ),
    )
    notes = [*slow_lines(slow, len(pairs))]
    if left:
        notes.append(f"Not drawn: {count(left)} faster {plural(left, 'pair')}; the table has them.")
    return picture("sendrecv between each two", "The bandwidth of each pair.", [bars], notes=notes, palette=palette)


def _series(table: Table, point: Callable[[BenchRow, Timing], Point]) -> Iterator[Series]:
    groups = dict.fromkeys((row.type, row.operation, row.root) for row in table.rows)
    for group in groups:
        rows = [row for row in table.rows if (row.type, row.operation, row.root) == group]
        kind, operation, root = group
        name = " ".join([kind, operation, *([f"root {root}"] if root >= 0 else [])]) if len(groups) > 1 else ""
        for how, draw in (("out of place", Draw.LINE), ("in place", Draw.DASHED)):
            of_size = {row.size_bytes: row for row in rows}
            found = (point(row, row.out_of_place if draw is Draw.LINE else row.in_place) for row in of_size.values())
            yield Series(name=f"{name} {how}".strip(), points=tuple(sorted(found, key=lambda one: one.x)), draw=draw)


def _speed(row: BenchRow, timing: Timing) -> Point:
    return Point(
        row.size_bytes,
        algbw(row, timing),
        _gb(row.size_bytes, max(timing.max_us, timing.time) / 1e6),
        _gb(row.size_bytes, min(timing.min_us, timing.time) / 1e6),
    )


def _time(row: BenchRow, timing: Timing) -> Point:
    time_us = timing.time
    return Point(row.size_bytes, time_us, min(timing.min_us, time_us), max(timing.max_us, time_us))


def _gb(size_bytes: float, seconds: float) -> float:
    return size_bytes / seconds / 1e9 if seconds > 0 else 0.0


def _strategy(one: StrategyTime, *, is_best: bool) -> Bar:
    kind = "" if one.is_exact else ", lossy"
    if one.step is None:
        return Bar(label=one.strategy, value=None, text=f"failed: {one.failure}", is_hollow=True)
    step = one.step
    speed = "" if one.times_plain is None else f", {times(one.times_plain)} plain"
    return Bar(
        label=one.strategy,
        value=step.seconds * 1e3,
        low=max(step.seconds - step.mad_seconds, 0.0) * 1e3,
        high=(step.seconds + step.mad_seconds) * 1e3,
        text=f"{bare_milliseconds(step.seconds)}{speed}{kind}",
        is_marked=is_best,
        is_hollow=not one.is_exact,
    )


def _notes(table: Table) -> Iterator[str]:
    yield "Bands are from the fastest to the slowest iteration."
    if table.left:
        yield f"Not measured: {', '.join(dict.fromkeys(one.what for one in table.left))}; the table says why."


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else count(round(value))
