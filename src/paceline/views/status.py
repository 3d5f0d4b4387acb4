"""The one live line of a running job: repainted on a terminal, key=value elsewhere."""

from paceline.facts import Run, Status
from paceline.spelling import plural
from paceline.views.pace import Pace
from paceline.views.table import crop
from paceline.views.units import UNKNOWN, bare_milliseconds, clock, count, milliseconds, percent, stamp, times


def live_line(
    now: Pace, elapsed_seconds: float, *, doing: str = "", width: int | None = 100, ascii_only: bool = False
) -> str:
    """One line for a terminal. `doing` says what happens while there are no steps: "starting", "waiting for algo-2"."""
    if now.step is None:
        parts = [doing or "no step seen yet"]
    else:
        step = f"step {count(now.step)}"
        parts = [f"{step}  {milliseconds(now.step_seconds)}" if now.step_seconds is not None else step]
        parts.append(
            f"data {percent(now.loading_fraction)}  exposed comm {percent(now.exposed_communication_fraction)}  "
            f"ckpt {percent(now.checkpoint_fraction)}"
        )
    ranks = f"{ranks_text(now)} {plural(now.ranks_wanted, 'rank')}"
    parts.append(ranks if now.spread is None else f"{ranks}  spread {times(now.spread, ascii_only=ascii_only)}")
    parts.append(clock(elapsed_seconds))
    return crop(" " + "  |  ".join(parts), width, ascii_only=ascii_only)


def plain_line(now: Pace, time_ns: int, *, doing: str = "") -> str:
    """One line for a log file; the keys are always the same, an unknown value is "-"."""
    values = {
        "step": UNKNOWN if now.step is None else str(now.step),
        "step_ms": bare_milliseconds(now.step_seconds),
        "loading_pct": percent(now.loading_fraction).rstrip("%"),
        "exposed_communication_pct": percent(now.exposed_communication_fraction).rstrip("%"),
        "ranks": ranks_text(now),
        "spread": UNKNOWN if now.spread is None else f"{now.spread:.2f}",
    }
    line = f"{stamp(time_ns)} paceline " + " ".join(f"{key}={value}" for key, value in values.items())
    return f"{line} doing={doing.replace(' ', '_')}" if doing else line


def ranks_text(now: Pace) -> str:
    """ "7/8": arrived ranks of all ranks; only "8" once the run is over."""
    wanted = UNKNOWN if now.ranks_wanted is None else str(now.ranks_wanted)
    return wanted if now.ranks_here is None else f"{now.ranks_here}/{wanted}"


def run_lasts(run: Run) -> bool:
    """Whether the picture of this run can still change."""
    return run.status in (Status.IN_PROGRESS, Status.STOPPING)
