"""A run at one moment: its pace, its ranks, its machines. Plain text; the caller repaints it while the run lasts."""

from collections.abc import Mapping, Sequence

from paceline.diagnosis.case import Stall
from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.run_state import run_state
from paceline.facts import Evidence, RankRecord, Run, Status
from paceline.spelling import plural
from paceline.views.documents import RunNowDocument, run_now_keys
from paceline.views.host_load import HostUsage, RunLoad
from paceline.views.pace import Pace, RankPace
from paceline.views.restarts import restarts_text
from paceline.views.run_state import stall_line
from paceline.views.status import live_line, ranks_text, run_lasts
from paceline.views.summary import wall_seconds
from paceline.views.table import crop, table
from paceline.views.top_screen import Screen, chosen_ranks, key_line
from paceline.views.top_strip import RankUsage, Values, late_fractions, rank_usage, strip_texts
from paceline.views.units import UNKNOWN, bare_milliseconds, count, percent, rate, size, stamp

_RANK_HEADERS = ("RANK", "HOST", "STEP", "MS/STEP", "LATE", "DATA", "COMM", "CKPT", "CPU", "RSS", "GPU", "STATE")
_RANK_NUMBERS = frozenset(_RANK_HEADERS) - {"HOST", "STATE"}
# Columns that are there only where something is known.
_RANK_OPTIONAL = frozenset({"LATE", "CPU", "RSS", "GPU"})
_HOST_HEADERS = ("HOST", "CPU", "MEMORY", "NET IN", "NET OUT", "DISK", "GPU", "GPU MEMORY", "GPU POWER")
_HOST_NUMBERS = frozenset(_HOST_HEADERS[1:])
# Columns that a narrow terminal leaves out, the first one first. A number that is cut in its middle says nothing.
_HOST_FIRST_OUT = ("DISK", "GPU POWER", "NET OUT", "NET IN", "GPU MEMORY")
_RANK_FIRST_OUT = ("CKPT", "RSS", "CPU", "DATA", "COMM", "GPU", "LATE")
_LEAST_STRIP, _MOST_STRIP = 10, 60
# For an ended run: which value over the whole run.
_OVER = "RUN"


def top_text(
    evidence: Evidence,
    now: Pace,
    loads: Sequence[HostUsage] | Sequence[RunLoad],
    *,
    now_ns: int,
    width: int | None = 100,
    height: int | None = None,
    ascii_only: bool = False,
    screen: Screen | None = None,
    strips: Mapping[str, Values] | None = None,
) -> str:
    """The whole picture. With a `height`, ranks that do not fit are counted in the last line; the slowest one is never left out.

    `screen`: the choice of ranks and what the strips show; None: every rank, and no line about keys. `strips`: the last minute of hosts.
    """
    run = evidence.run
    hosts_text = f"{len(evidence.hosts)} {plural(len(evidence.hosts), 'host')}"
    state = run_state(run, evidence.events)
    now = _without_pace(now) if state.lasting_stall is not None else now
    head = [
        f"{run.id}  {run.name or UNKNOWN}  {_status(run)}  on {hosts_text}",
        live_line(now, wall_seconds(run, now_ns) or -1, width=width, ascii_only=ascii_only),
    ]
    if stalled := stall_line(state, now_ns):
        more = "w: why" if screen is not None else f"paceline why {run.id}"
        head.insert(1, f" {stalled}  ({more})")
    if run.reason and run.status is not Status.COMPLETED:
        head.append(f" {run.reason}")
    if restarts := restarts_text(totals(evidence.events)):
        head.append(f" {restarts}")
    has_strips = screen is not None and strips is not None
    # Columns of which nothing is known give their place to the strips.
    for_hosts = width if width is None or not has_strips else max(width - _MOST_STRIP // 2 - 2, width // 2)
    hosts = _hosts_table(loads, for_hosts, ascii_only)
    if screen is not None and strips is not None and hosts:
        hosts = _with_strips(hosts, loads, screen, strips, width, ascii_only)
    tail = [f"not judged: {text}" for text in evidence.not_judged[:3]]
    if len(evidence.not_judged) > 3:
        tail.append(f"not judged: {len(evidence.not_judged) - 3} more, with --json")
    if screen is not None:
        tail.append(key_line(screen, width))
    room = None if height is None else max(height - len(head) - len(loads) - len(tail) - 5, 1)
    ranks = _ranks_table(evidence, now, room, width, ascii_only, screen or Screen(), state.lasting_stall)
    blocks = ["\n".join(head), hosts, ranks, "\n".join(tail)]
    text = "\n\n".join(block for block in blocks if block)
    return "\n".join(crop(line, width, ascii_only=ascii_only) for line in text.splitlines())


class TopDocument(RunNowDocument, frozen=True, kw_only=True, tag_field="schema", tag="paceline.top/2"):
    """The whole picture, for programs."""

    t_ns: int
    """Now, Unix time in ns."""
    wall_seconds: float | None
    """Time from the start of the run to its end, or to now."""
    samples_per_second: float | None
    """Samples of all ranks in a second, if batches are full; None where other loaders than that of steps are read."""
    spread: float | None
    """The slowest rank's own time of a step over the median rank's."""
    ranks: tuple[RankPace, ...]
    """Each rank."""
    hosts: tuple[HostUsage | RunLoad, ...]
    """Each host, at its last sample."""
    not_judged: tuple[str, ...]
    """What could not be looked at, and why."""


def top_facts(
    evidence: Evidence, now: Pace, loads: Sequence[HostUsage] | Sequence[RunLoad], *, now_ns: int
) -> TopDocument:
    """The same for a program; None is unknown."""
    run = evidence.run
    return TopDocument(
        **run_now_keys(run, totals(evidence.events), run_state(run, evidence.events), now),
        t_ns=now_ns,
        wall_seconds=wall_seconds(run, now_ns),
        samples_per_second=now.samples_per_second,
        spread=now.spread,
        ranks=now.ranks,
        hosts=tuple(loads),
        not_judged=tuple(evidence.not_judged),
    )


def top_line(now: Pace, loads: Sequence[HostUsage], *, now_ns: int, width: int | None = 100) -> str:
    """One line for a file or a pipe, of fixed columns as those of `top_line_header`."""
    cpu = [load.cpu_fraction for load in loads if load.cpu_fraction is not None]
    values = (
        stamp(now_ns),
        UNKNOWN if now.step is None else str(now.step),
        bare_milliseconds(now.step_seconds),
        percent(now.loading_fraction).rstrip("%"),
        percent(now.exposed_communication_fraction).rstrip("%"),
        percent(now.checkpoint_fraction).rstrip("%"),
        ranks_text(now),
        UNKNOWN if now.spread is None else f"{now.spread:.2f}",
        percent(max(cpu) if cpu else None).rstrip("%"),
    )
    return crop("  ".join(text.rjust(wide) for text, wide in zip(values, _LINE_WIDTHS, strict=True)), width)


_LINE_WIDTHS = (20, 8, 8, 6, 6, 6, 9, 6, 7)


def top_line_header() -> str:
    """Names of top_line's columns, in the manner of `nvidia-smi dmon`: a # line that parsers skip."""
    names = ("# time", "step", "step_ms", "data%", "comm%", "ckpt%", "ranks", "spread", "maxcpu%")
    return "  ".join(text.rjust(wide) for text, wide in zip(names, _LINE_WIDTHS, strict=True)).lstrip()


def _status(run: Run) -> str:
    same = str(run.status) == str(run.secondary_status)
    return str(run.status) if same else f"{run.status} ({run.secondary_status})"


def _hosts_table(loads: Sequence[HostUsage] | Sequence[RunLoad], width: int | None, ascii_only: bool) -> str:
    """The machines; for an ended run with mean and peak."""
    if not loads:
        return ""
    every: tuple[str, ...] = _HOST_HEADERS
    rows: list[tuple[str, ...]] = []
    for load in loads:
        if isinstance(load, RunLoad):
            every = (_HOST_HEADERS[0], _OVER, *_HOST_HEADERS[1:])
            for word, over in (("mean", load.mean), ("peak", load.peak)):
                host, *values = _host_row(over)
                rows.append((host, word, *values))
        else:
            rows.append(_host_row(load))
    headers, kept = _columns_that_fit(every, rows, width, _HOST_FIRST_OUT)
    return table(headers, kept, right=_HOST_NUMBERS, width=width, ascii_only=ascii_only)


def _columns_that_fit(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, first_out: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """The columns for which there is room: if not for all, unknown ones are left out, and then those of `first_out` one by one."""
    keep = list(range(len(headers)))

    def is_too_wide() -> bool:
        wanted = sum(max(len(row[column]) for row in (headers, *rows)) + 2 for column in keep) - 2
        return width is not None and wanted > width

    if is_too_wide():
        keep = [column for column in keep if any(row[column] != UNKNOWN for row in rows)]
    for header in first_out:
        if is_too_wide():
            keep = [column for column in keep if headers[column] != header]
    return [headers[column] for column in keep], [[row[column] for column in keep] for row in rows]


def _with_strips(
    hosts: str,
    loads: Sequence[HostUsage] | Sequence[RunLoad],
    screen: Screen,
    strips: Mapping[str, Values],
    width: int | None,
    ascii_only: bool,
) -> str:
    """The table of hosts with a strip at the end of each line, where there is room for one."""
    first, *lines = hosts.splitlines()
    wide = max(map(len, (first, *lines))) + 2
    cells = _MOST_STRIP if width is None else min(width - wide, _MOST_STRIP)
    names = [load.host for load in loads if isinstance(load, HostUsage)]
    if cells < _LEAST_STRIP or len(names) != len(lines):
        return hosts
    texts = strip_texts(strips, screen.shown, cells, ascii_only=ascii_only)
    header = f"{screen.shown.upper()}, LAST 60 S"[:cells]
    return "\n".join(
        [
            f"{first.ljust(wide)}{header}",
            *(f"{line.ljust(wide)}{texts.get(name, '')}".rstrip() for line, name in zip(lines, names, strict=True)),
        ]
    )


def _ranks_table(
    evidence: Evidence,
    now: Pace,
    room: int | None,
    width: int | None,
    ascii_only: bool,
    screen: Screen,
    stall: Stall | None,
) -> str:
    if not now.ranks:
        return ""
    late, usage = late_fractions(now), rank_usage(evidence.telemetry, evidence.events)
    newest = max(record.attempt for record in evidence.ranks)
    lasting = run_lasts(evidence.run)
    states = {
        (record.host, record.rank): _state(record, lasting, stall)
        for record in evidence.ranks
        if record.attempt == newest
    }
    chosen = chosen_ranks(screen, now.ranks, late, usage)
    shown = list(chosen)
    if room is not None and len(shown) > room:
        shown = shown[: max(room - 1, 1)]
        if now.slowest in chosen and now.slowest is not None and now.slowest not in shown:
            shown[-1] = now.slowest
    if not shown:
        return f"no rank of {len(now.ranks)} is one of {screen.words!r}"
    every = [
        _rank_row(rank, states.get(key, UNKNOWN), late.get(key), usage.get(key, RankUsage()))
        for rank in shown
        for key in [(rank.host, rank.rank)]
    ]
    known = [
        place
        for place, header in enumerate(_RANK_HEADERS)
        if header not in _RANK_OPTIONAL or any(row[place] != UNKNOWN for row in every)
    ]
    rows = [[row[place] for place in known] for row in every]
    headers, kept = _columns_that_fit([_RANK_HEADERS[place] for place in known], rows, width, _RANK_FIRST_OUT)
    text = table(headers, kept, right=_RANK_NUMBERS, width=width, ascii_only=ascii_only)
    left_out = len(chosen) - len(shown)
    return f"{text}\n{left_out} more {plural(left_out, 'rank')}" if left_out else text


def _rank_row(rank: RankPace, state: str, late: float | None, usage: RankUsage) -> tuple[str, ...]:
    return (
        str(rank.rank),
        rank.host,
        count(rank.step),
        bare_milliseconds(rank.step_seconds),
        percent(late),
        percent(rank.loading_fraction),
        percent(rank.exposed_communication_fraction),
        percent(rank.checkpoint_fraction),
        percent(usage.cpu_cores),
        size(usage.resident_bytes),
        percent(usage.gpu_busy_fraction),
        state,
    )


def _without_pace(now: Pace) -> Pace:
    """Of a run that makes no steps: how fast the last ones were says nothing of it."""
    ranks = tuple(RankPace(host=rank.host, rank=rank.rank, step=rank.step) for rank in now.ranks)
    return Pace(ranks=ranks, ranks_here=now.ranks_here, ranks_wanted=now.ranks_wanted, step=now.step)


def _state(record: RankRecord, lasting: bool, stall: Stall | None) -> str:
    if record.exit is None:
        if stall is not None and record.rank in stall.late:
            return "late"
        return UNKNOWN if not lasting else "waits" if stall is not None and record.rank in stall.waiting else "running"
    return f"exit {record.exit.code}" if record.exit.code >= 0 else f"signal {-record.exit.code}"


def _host_row(load: HostUsage) -> tuple[str, ...]:
    memory = (
        UNKNOWN if load.memory_used_bytes is None else f"{size(load.memory_used_bytes)} of {size(load.memory_bytes)}"
    )
    gpu_memory = (
        UNKNOWN
        if load.gpu_memory_used_bytes is None
        else f"{size(load.gpu_memory_used_bytes)} of {size(load.gpu_memory_bytes)}"
    )
    power = UNKNOWN if load.gpu_power_watts is None else f"{load.gpu_power_watts:.0f} W"
    return (
        load.host,
        percent(load.cpu_fraction),
        memory,
        rate(load.network_in_bytes_per_second),
        rate(load.network_out_bytes_per_second),
        rate(load.disk_bytes_per_second),
        percent(load.gpu_busy_fraction),
        gpu_memory,
        power,
    )
