"""How far work is that lasts over a second, as one line of text. Values in, text out; cli/progress.py paints the line."""

from collections import deque

from paceline.views.units import count, duration, percent, rate, size

BYTES = "B"
BAR_CELLS = 10
RATE_SECONDS = 10.0
STILL_SECONDS = 5.0
# Before this time and this share of the work, the time that is left is a guess.
LEAST_SECONDS, LEAST_FRACTION = 3.0, 0.03


def progress_text(
    label: str,
    done: float | None,
    total: float | None,
    seconds: float | None,
    unit: str,
    *,
    per_second: float | None = None,
    still_seconds: float = 0.0,
    waits_for: str = "",
) -> str:
    """ "packing code [####......] 43% of 1.2 GiB, 12.1 MB/s, 40 s left".

    Units:   `unit` is BYTES or a noun in the plural ("sizes"); `per_second` in units per second, over the last RATE_SECONDS
    Holds:   no time left before LEAST_SECONDS or LEAST_FRACTION; when nothing has moved for STILL_SECONDS, what it waits for instead
    """
    known = done is not None and bool(total)
    fraction = min(done / total, 1.0) if known and done is not None and total else 0.0
    far = _far(done, total, unit, fraction)
    parts = [f"{label}{far}"]
    if still_seconds >= STILL_SECONDS:
        waits = f", waiting for {waits_for}" if waits_for else ""
        parts.append(f"nothing new for {duration(still_seconds)}{waits}")
    else:
        if unit == BYTES and per_second:
            parts.append(rate(per_second))
        if known and seconds is not None and seconds >= LEAST_SECONDS and LEAST_FRACTION <= fraction < 1.0:
            speed = per_second or (done or 0.0) / seconds
            parts.append(f"{duration(((total or 0.0) - (done or 0.0)) / speed)} left")
    if not known and seconds is not None and still_seconds < STILL_SECONDS:
        parts.append(duration(seconds))
    return ", ".join(parts)


def finished_text(label: str, done: float | None, total: float | None, seconds: float, unit: str) -> str:
    """The last line where lines are not painted over: "packing code: 1.2 GiB (38 s)"."""
    amount = total if total else done
    if not amount:
        return f"{label}: done ({duration(seconds)})"
    what = size(amount) if unit == BYTES else f"{count(round(amount))} {unit}"
    return f"{label}: {what} ({duration(seconds)})"


class RecentRate:
    """The speed over the last RATE_SECONDS, from how far the work was at which time. Times are seconds of one clock."""

    def __init__(self, now: float, done: float = 0.0) -> None:
        self._looks: deque[tuple[float, float]] = deque([(now, done)])
        self._moved = now

    def at(self, now: float, done: float) -> None:
        """Note how far the work is now."""
        if done != self._looks[-1][1]:
            self._moved = now
        self._looks.append((now, done))
        while len(self._looks) > 2 and now - self._looks[1][0] >= RATE_SECONDS:
            self._looks.popleft()

    def still_seconds(self, now: float) -> float:
        """Time since the work last moved."""
        return now - self._moved

    @property
    def per_second(self) -> float | None:
        """Units per second; None: not known yet."""
        (began, before), (now, done) = self._looks[0], self._looks[-1]
        return (done - before) / (now - began) if now > began and done > before else None


def _far(done: float | None, total: float | None, unit: str, fraction: float) -> str:
    """The bar and the amount, with the blank before them; empty if nothing is known."""
    if done is None:
        return ""
    if not total:
        amount = size(done) if unit == BYTES else f"{count(round(done))} {unit}"
        return f" {amount}" if done and unit else ""
    full = min(BAR_CELLS, int(fraction * BAR_CELLS))
    bar = f"[{'#' * full}{'.' * (BAR_CELLS - full)}]"
    if unit == BYTES:
        return f" {bar} {percent(fraction)} of {size(total)}"
    return f" {bar} {count(round(done))} of {count(round(total))} {unit}"
