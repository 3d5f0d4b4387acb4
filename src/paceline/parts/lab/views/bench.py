"""The table of `paceline bench`: nccl-tests' lines, column by column, for programs that read those.

paceline's own lines begin with "# ".
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from paceline.parts.comm.planner.regression import Change, Regression
from paceline.parts.lab.nccl_tests import (
    PROGRAMS,
    BenchRow,
    BenchWorld,
    Skipped,
    Table,
    Timing,
    algbw,
    average_busbw,
    busbw,
    size_text,
    wrong_elements,
)
from paceline.views.units import count, counted, milliseconds, stamp

SCHEMA = "paceline.bench/2"
_LABEL = 20


def header(collective: str, world: BenchWorld, asked: Mapping[str, Any], version: str) -> str:
    """Everything above the first row.

    Source:  nccl-tests src/util.cu, writeReportHeader, writeDeviceReport, writeResultHeader
    """
    sizes = asked["sizes"]
    lines = [
        f"# paceline {version}, columns and definitions of nccl-tests; backend {world.backend}, {_ranks(world)}, "
        f"tensors on {world.device}, torch {world.torch}",
        f"# Collective test starting: {PROGRAMS[collective]}",
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)} warmup iters: {asked['warmup']} "
        f"iters: {asked['iterations']} agg iters: {asked['aggregate']} validation: {asked['check']} graph: 0 unalign: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank.rank:2d} Group  0 Pid {rank.pid:6d} on {rank.hostname:>10} device {max(0, rank.device):2d} "
            f"[{rank.device_hex}] {rank.device_info}"
            for rank in world.ranks
        ),
        "#",
        f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}           out-of-place                       in-place",
        _columns("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
        _columns("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""),
    ]
    return "\n".join(lines)


def row_line(row: BenchRow, collective: str, ranks: int) -> str:
    """One size.

    Source:  nccl-tests src/util.cu, writeBenchmarkLinePreamble, writeBenchmarkLineBody
    """
    groups = "".join(_group(row, timing, collective, ranks) for timing in (row.out_of_place, row.in_place))
    return f"{row.size_bytes:>12}  {row.count:>12}  {row.type:>8}  {row.operation:>6}  {row.root:>6}{groups}"


def footer(table: Table) -> str:
    """Everything below the last row, except a comparison."""
    wrong = wrong_elements(table.rows)
    lines = [
        f"# {'Out of bounds values':<{_LABEL}} : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# {'Avg bus bandwidth':<{_LABEL}} : {average_busbw(table):g}",
        "#",
        f"# Collective test concluded: {PROGRAMS[table.collective]}",
    ]
    return "\n".join([*lines, *_notes(table)])


def comparison_lines(what: str, comparison: Regression, *, confirmed: bool = True) -> list[str]:
    """A comparison with an earlier result, as lines of text; `what` "" if there is only one comparison."""
    named = f"{what}: " if what else ""
    day = stamp(comparison.since_ns)[:10]
    lines = []
    if worse := comparison.worse:
        most = max(worse, key=lambda one: one.slower_fraction)
        again = "; measured twice" if confirmed else "; measured once: run it again before you act on it"
        lines.append(f"{named}slower than on {day} by {most.slower_fraction:.0%} at {_change(most)}{again}")
        others = [f"{one.label} {one.slower_fraction:.0%}" for one in worse if one is not most]
        if others:
            lines.append(f"slower too: {', '.join(others)}")
    elif comparison.changes:
        judged = len(comparison.changes)
        lines.append(f"{named}as fast as on {day} at {judged} of {judged + len(comparison.too_noisy)} figures")
    else:
        lines.append(f"{named}not judged against {day}")
    if comparison.too_noisy:
        lines.append(
            f"not judged, figures that differ too much from one iteration to the next: {', '.join(comparison.too_noisy)}"
        )
    if comparison.new:
        lines.append(f"not judged, not measured then: {', '.join(comparison.new)}")
    return lines


def comparison_facts(comparison: Regression, *, confirmed: bool = True) -> dict[str, Any]:
    """The same for a program."""
    return {
        "since_ns": comparison.since_ns,
        "worse": [one.label for one in comparison.worse],
        "confirmed": confirmed and bool(comparison.worse),
        "figures": msgspec.to_builtins(comparison.changes),
        "not_judged": [*comparison.too_noisy, *comparison.new],
    }


def table_json(table: Table) -> dict[str, Any]:
    """The table under nccl-tests' own keys (its -J) and paceline's keys: times in us, bandwidths in GB/s."""
    wrong = wrong_elements(table.rows)
    return {
        "schema": SCHEMA,
        "collective": table.collective,
        "asked": dict(table.asked),
        "world": world_facts(table.world),
        "results": [_row_facts(row, table) for row in table.rows],
        "left_out": msgspec.to_builtins(table.left),
        "out_of_bounds": {"count": wrong, "okay": not wrong},
        "average_bus_bandwidth": {"bandwidth": average_busbw(table), "okay": "unchecked"},
    }


def world_facts(world: BenchWorld) -> dict[str, Any]:
    """Ranks and where they ran."""
    return {
        "ranks": world.size,
        "hosts": list(world.hosts),
        "machines": sorted({rank.machine for rank in world.ranks}),
        "backend": world.backend,
        "device": world.device,
        "torch": world.torch,
        "devices": [{name: value for name, value in asdict(rank).items() if name != "machine"} for rank in world.ranks],
    }


def float_text(value: float, width: int) -> str:
    """The number with at most two decimals, as many as fit the width.

    Holds:   (1.2345, 7) -> "   1.23"; (123456.7, 7) -> " 123457"
    Source:  nccl-tests src/util.cu, getFloatStr
    """
    for digits in (2, 1, 0):
        if len(text := f"{value:{width}.{digits}f}") <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def _group(row: BenchRow, timing: Timing, collective: str, ranks: int) -> str:
    wrong = "   N/A" if timing.nwrong is None else f"{timing.nwrong:6g}"
    bus = busbw(row, timing, collective, ranks)
    return f"  {float_text(timing.time, 7)}  {float_text(algbw(row, timing), 6)}  {float_text(bus, 6)}  {wrong}"


def _columns(size: str, elements: str, kind: str, operation: str, root: str, *group: str) -> str:
    time, alg, bus, wrong = group
    one = f"  {time:>7}  {alg:>6}  {bus:>6}  {wrong:>6}"
    return f"# {size:>10}  {elements:>12}  {kind:>8}  {operation:>6}  {root:>6}{one}{one}".rstrip()


def _step(sizes: Sequence[int]) -> str:
    if len(sizes) > 1 and sizes[1] % sizes[0] == 0 and (len(sizes) < 3 or sizes[2] * sizes[0] == sizes[1] ** 2):
        return f"{sizes[1] // sizes[0]}(factor)"
    return f"{sizes[1] - sizes[0] if len(sizes) > 1 else 1048576}(bytes)"


def _ranks(world: BenchWorld) -> str:
    hosts = len(world.hosts)
    return f"{count(world.size)} ranks on {counted(hosts, 'host')}"


def _notes(table: Table) -> list[str]:
    asked = table.asked.get("iterations")
    fewer = [row for row in table.rows if asked and row.out_of_place.iterations < asked]
    lines = []
    if fewer:
        least = min(row.out_of_place.iterations for row in fewer)
        sizes = ", ".join(size_text(row.size_bytes) for row in fewer)
        lines.append(f"# fewer than {asked} iterations, {least} at least, so that no size takes too long: {sizes}")
    for why in dict.fromkeys(one.reason for one in table.left):
        lines.append(
            f"# left out: {', '.join(dict.fromkeys(_left(one) for one in table.left if one.reason == why))}: {why}"
        )
    return lines


def _left(left: Skipped) -> str:
    return size_text(int(left.what)) if left.what.isdigit() else left.what


def _change(one: Change) -> str:
    now, then = (
        f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else milliseconds(seconds)
        for seconds in (one.seconds, one.usual_seconds)
    )
    return f"{one.label} ({now}, {then} then; margin {one.margin_fraction:.0%})"


def _row_facts(row: BenchRow, table: Table) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "size": row.size_bytes,
        "count": row.count,
        "type": row.type,
        "redop": row.operation,
        "root": str(row.root),
    }
    for name, timing in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        bandwidths = {"alg_bw": algbw(row, timing), "bus_bw": busbw(row, timing, table.collective, table.world.size)}
        facts[name] = asdict(timing) | bandwidths
    return facts | {"actual_iterations": row.out_of_place.iterations}
