"""Numbers with their units as a person reads them. An unknown value is "-", never 0."""

from datetime import UTC, datetime

from paceline.spelling import plural

UNKNOWN = "-"


def count(value: int | None) -> str:
    """Thousands set apart by a space: "5 981"."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """ "1 rank", "2 048 ranks"."""
    return f"{count(number)} {plural(number, noun)}"


def duration(seconds: float | None) -> str:
    """The two largest units: "41m 07s", "2h 04m", "3.2 s"."""
    if seconds is None or seconds < 0:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}h"
    return f"{hours}h {minute:02d}m" if hours else f"{minutes}m {second:02d}s"


def clock(seconds: float | None) -> str:
    """Time since the start, as a stopwatch shows it: "00:01:32"."""
    if seconds is None or seconds < 0:
        return UNKNOWN
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}"


def milliseconds(seconds: float | None) -> str:
    """Three significant digits: "412 ms", "4.21 ms", "12400 ms", without a blank: beside a count it would be read as two numbers."""
    if seconds is None:
        return UNKNOWN
    return f"{bare_milliseconds(seconds)} ms"


def bare_milliseconds(seconds: float | None) -> str:
    """The same without the unit, for a column that names it."""
    if seconds is None:
        return UNKNOWN
    value = seconds * 1e3
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{round(value)}"


def percent(fraction: float | None, digits: int = 0) -> str:
    """ "4%", "4.3%"."""
    return UNKNOWN if fraction is None else f"{fraction * 100:.{digits}f}%"


def times(ratio: float | None, *, ascii_only: bool = False) -> str:
    """ "1.03×"."""
    return UNKNOWN if ratio is None else f"{ratio:.2f}{'x' if ascii_only else '×'}"


def size(value_bytes: float | None) -> str:
    """Memory, binary: "139 GiB"."""
    return _scaled(value_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def rate(bytes_per_second: float | None) -> str:
    """Network and disk, decimal: "1.2 GB/s"."""
    text = _scaled(bytes_per_second, 1000, ("B", "kB", "MB", "GB", "TB"))
    return text if text == UNKNOWN else f"{text}/s"


def samples_rate(per_second: float | None) -> str:
    """Throughput of the training: "2 860 samples/s", "0.4 samples/s"."""
    if per_second is None:
        return UNKNOWN
    return f"{count(round(per_second)) if per_second >= 10 else f'{per_second:.1f}'} samples/s"


def stamp(time_ns: int | None) -> str:
    """UTC to the second: "2026-11-20T11:42:30Z"."""
    if not time_ns:
        return UNKNOWN
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _scaled(value: float | None, base: int, names: tuple[str, ...]) -> str:
    if value is None:
        return UNKNOWN
    step = 0
    while abs(value) >= base and step < len(names) - 1:
        value /= base
        step += 1
    return f"{value:.1f} {names[step]}" if value < 10 and step else f"{value:.0f} {names[step]}"
