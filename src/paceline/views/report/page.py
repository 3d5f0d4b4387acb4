"""The page of a run, in the order in which a worried person asks: what happened, how fast, who is late, where the time went, the proof."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.findings import NO_CODE
from paceline.recording.rank_sets import named_ranks
from paceline.views.report.drawing import bar, curves, rows
from paceline.views.report.grid import NOT_JUDGED, STOOD, cells_of, value_of
from paceline.views.report.markup import Markup, document, element, joined
from paceline.views.units import (
    UNKNOWN,
    count,
    counted,
    duration,
    milliseconds,
    percent,
    rate,
    samples_rate,
    size,
    stamp,
)

Facts = Mapping[str, Any]
_SLOW = frozenset({"slow", "waiting", "quality"})
_STALLED = frozenset({"stall", "waiting"})
# The picture without the script: of more ranks than the first number only the worst.
_MOST_ROWS, _WORST_ROWS = 64, 32
# Of a table, of hosts drawn by the script, and of hosts drawn without it.
_MOST_TABLE_ROWS, _MOST_HOSTS, _MOST_DRAWN_HOSTS = 500, 64, 16
_MAP_TITLE = {"late": "How late each rank came to the collectives", "step": "How long the steps of each rank took"}
# These the reader, and the script, find in the page itself.
_IN_THE_PAGE = frozenset(
    {
        "lateness",
        "logs",
        "stacks_text",
        "not_judged",
        "left_out",
        "summary",
        "forecast_text",
        "restart_lines",
        "told_live",
    }
)
_PARTS = (
    ("compute", "compute", "compute_seconds"),
    ("data", "data", "loading_seconds"),
    ("communication", "exposed communication", "exposed_communication_seconds"),
    ("checkpoint", "checkpoint", "checkpoint_seconds"),
    ("stood", "stood still", "stood_seconds"),
    ("lost", "outside of steps", "lost_seconds"),
)
_MACHINE = (
    ("cpu_fraction", "CPU in use", percent),
    ("memory_used_bytes", "memory in use", size),
    ("network_in_bytes_per_second", "received", rate),
    ("network_out_bytes_per_second", "sent", rate),
    ("disk_bytes_per_second", "read and written", rate),
    ("gpu_busy_fraction", "GPUs in use", percent),
    ("gpu_memory_used_bytes", "GPU memory in use", size),
)


def page_html(facts: Facts) -> str:
    """The whole page, in one file that loads nothing and says everything without its script. `facts`: paceline.page/1."""
    parts = sections(facts)
    links = (element("a", brief, href=f"#{name}") for name, brief, _, _ in _SECTIONS)
    main = element("main", *(parts[name] for name, _, _, _ in _SECTIONS))
    nav = element("nav", *links, aria_label="Sections")
    return document(page_title(facts), parts["head"], nav, main, parts["foot"], model=for_the_script(facts))


def page_title(facts: Facts) -> str:
    """ "N01 hangs: r-7f3a91 train": what is the matter comes first, because a tab shows the beginning."""
    identity, word = facts["identity"], facts["now"]["state"]
    code = next((f"{finding['code']} " for finding in facts["verdict"]["findings"] if finding["code"] != NO_CODE), "")
    return f"{code}{word}: {identity['run_id']} {identity['name']}".rstrip()


def sections(facts: Facts) -> dict[str, Markup]:
    """Each part of the page by the id of its element: `head`, the sections in their order, `foot`."""
    return {
        "head": _head(facts),
        **{
            name: element("section", element("h2", title), content(facts), id=name, aria_label=title)
            for name, _, title, content in _SECTIONS
        },
        "foot": _foot(facts),
    }


def for_the_script(facts: Facts) -> dict[str, Any]:
    """What the script draws: the facts without what stands in the page as text, figures with four digits."""
    kept = {name: value for name, value in facts.items() if name not in _IN_THE_PAGE}
    return {name: _short(value) for name, value in {**kept, "machines": _hosts_shown(facts)}.items()}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value


# ------------------------------------------------------------------------------------------------------------ sections


def _head(facts: Facts) -> Markup:
    identity, state = facts["identity"], facts["state"]
    code = facts["verdict"]["exit_code"]
    words = state["words"] if code is None else f"{state['words']}, exit {code}"
    hosts = counted(len(identity["hosts"]), "host")
    about = [
        f"{counted(identity['ranks_wanted'], 'rank')} on {hosts}" if identity["ranks_wanted"] else hosts,
        f"started {stamp(identity['started_ns'])}",
        f"lasted {duration(facts['summary']['wall_seconds'])}" if facts["summary"]["wall_seconds"] is not None else "",
    ]
    return element(
        "header",
        element(
            "h1",
            f"{identity['run_id']}  {identity['name']}",
            element("span", words, class_=f"state {state['tone']}"),
        ),
        element("p", ", ".join(filter(None, about))),
        element("p", element("code", " ".join(identity["command"]))) if identity["command"] else "",
        element("p", facts["summary"]["reason"]) if _is_said_in_the_head(facts) else "",
        *(element("p", note["text"], class_=f"note {note['kind']}") for note in facts["notes"]),
        id="head",
    )


def _verdict(facts: Facts) -> Markup:
    findings = facts["verdict"]["findings"]
    told = {(one["code"], tuple(one["ranks"])): one["live"] for one in facts["told_live"]}
    parts = [_finding(finding, told.get((finding["code"], tuple(finding["ranks"])), "")) for finding in findings]
    if not findings:
        steps = facts["summary"]["steady_step_count"]
        parts += [element("div", element("h3", reason), class_="finding")] if (reason := _failure(facts)) else []
        what = "No further cause was found" if reason else "Nothing was found"
        parts.append(element("p", what + (f" in {counted(steps, 'steady step')}." if steps else ".")))
    parts += [element("p", f"Earlier: {_earlier(one)}") for one in facts["verdict"]["earlier"]]
    parts += [element("p", line) for line in facts["restart_lines"]]
    if facts["not_judged"]:
        title = f"Not judged: {counted(len(facts['not_judged']), 'thing')}"
        parts.append(_folded(title, element("ul", *(element("li", text) for text in facts["not_judged"]))))
    return joined([*parts, _tiles(facts)])


def _failure(facts: Facts) -> str:
    """How the run failed, in the words of its agent; empty if it did not, or if its agent is gone."""
    has_failed = facts["summary"]["status"] == "Failed" and facts["identity"]["finished_ns"] is not None
    return str(facts["summary"]["reason"] or "") if has_failed else ""


def _is_said_in_the_head(facts: Facts) -> bool:
    """A failure without a finding is what happened, and an agent that is gone has a note."""
    is_gone = any(note["kind"] == "agent_gone" for note in facts["notes"])
    return (
        bool(facts["summary"]["reason"]) and not is_gone and (bool(facts["verdict"]["findings"]) or not _failure(facts))
    )


def _finding(finding: Facts, live: str) -> Markup:
    who = named_ranks(finding["ranks"]) if finding["ranks"] else ""
    where = ", ".join(finding["hosts"][:4])
    title = f"{finding['level']}[{finding['code']}] {finding['title']}"
    title += f": {who}" if who else ""
    title += f" on {where}" if where else ""
    title += f", since step {count(finding['since_step'])}" if finding["since_step"] is not None else ""
    lines = [
        *(("saw", text) for text in finding["saw"]),
        *(("not", text) for text in finding["ruled_out"]),
        *(("next", text) for text in finding["next"]),
        *([("more", f"paceline help {finding['code']}")] if finding["code"] != NO_CODE else []),
        *(
            [("live", f"{live}, it said while the run lasted. This is judged again from the recording.")]
            if live
            else []
        ),
    ]
    listed = (
        joined(
            [
                element("dt", name if at == 0 or lines[at - 1][0] != name else "", class_=name),
                element("dd", text, class_=name),
            ]
        )
        for at, (name, text) in enumerate(lines)
    )
    tone = "finding slow" if finding["level"] in _SLOW else "finding"
    return element(
        "div", element("h3", f"{title} (confidence: {finding['confidence']})"), element("dl", *listed), class_=tone
    )


def _earlier(one: Facts) -> str:
    who = f", {named_ranks(one['ranks'])}" if one["ranks"] else ""
    because = f"; {one['reason']}" if one["reason"] else ""
    return f"{one['code']} {one['title']}{who} in attempt {one['attempt']}{because}"


def _tiles(facts: Facts) -> Markup:
    now, summary = facts["now"], facts["summary"]
    seconds, speed = now["step_seconds"], now["samples_per_second"]
    end = facts["forecast"]
    tiles = [
        (
            "How fast?",
            f"{milliseconds(seconds)} a step" if seconds is not None else UNKNOWN,
            _last_step(facts) if speed is None else f"{_last_step(facts)}, {samples_rate(speed)}",
        ),
        (
            "Who is slow?",
            _slowest(facts),
            _slowest_more(facts),
        ),
        ("When done?", *_end_tile(facts, end)),
        ("Cost?", *_cost_tile(facts["cost"])),
        (
            "Lost outside of steps",
            duration(summary["lost_seconds"]) if summary["lost_seconds"] is not None else UNKNOWN,
            f"{duration(summary['startup_seconds'])} before the first step" if summary["startup_seconds"] else "",
        ),
        ("Restarts", count(summary["restart_count"]), _lost_steps(summary)),
    ]
    drawn = (
        element("div", name, element("b", value), element("span", more, class_="dim"), class_="tile")
        for name, value, more in tiles
    )
    return element("div", *drawn, class_="tiles")


def _last_step(facts: Facts) -> str:
    mark = _stall_mark(facts) if _stalled(facts) is not None else None
    step = f"step {count(facts['now']['step'])}"
    return step if mark is None else f"{step}, then none for {duration((mark['until_ns'] - mark['t_ns']) / 1e9)}"


def _stalled(facts: Facts) -> Facts | None:
    """The finding that names ranks for which the others wait."""
    return next((one for one in facts["verdict"]["findings"] if one["level"] in _STALLED and one["ranks"]), None)


def _slowest(facts: Facts) -> str:
    stalled = _stalled(facts)
    if stalled is not None:
        return f"{named_ranks(stalled['ranks'])}, stood still"
    slowest = facts["summary"]["slowest"]
    return named_ranks(slowest["ranks"]) if slowest is not None else "nobody"


def _slowest_more(facts: Facts) -> str:
    stalled, spread = _stalled(facts), facts["now"]["spread"]
    if stalled is not None:
        return f"{stalled['code']}, {stalled['confidence']}"
    return f"the slowest is {spread:.2f} of the median" if spread is not None else "not judged"


def _cost_tile(cost: Facts | None) -> tuple[str, str]:
    if cost is None:
        return "not known", "paceline report --price USD_PER_HOUR"
    more = [f"{_usd(cost['usd_at_end'])} at the end"] if cost["usd_at_end"] is not None else []
    more += [f"{_usd(cost['usd_lost'])} of it in restarts"] if cost["usd_lost"] else []
    more += [f"{cost['usd_per_hour']:g} USD an hour and host, {cost['price_from']}"]
    return _usd(cost["usd_so_far"]), ", ".join(more)


def _usd(amount: float) -> str:
    return f"{amount:.2f} USD"


def _end_tile(facts: Facts, end: Facts | None) -> tuple[str, str]:
    if facts["identity"]["finished_ns"] is not None:
        return "it has ended", stamp(facts["identity"]["finished_ns"])
    if end is None or end.get("needed_seconds") is None:
        return UNKNOWN, "paceline run --set total_steps=N"
    return duration(max(end["needed_seconds"] - end["elapsed_seconds"], 0.0)), facts["forecast_text"]


def _lost_steps(summary: Facts) -> str:
    lost = summary["lost_step_count"]
    return "" if lost is None else f"{counted(lost, 'step')} lost"


def _time(facts: Facts) -> Markup:
    summary = _with_time_stood(facts)
    known = [(name, word, summary[key]) for name, word, key in _PARTS if summary[key] is not None]
    if summary["in_steps_seconds"] is None:
        return element("p", "Not judged: no rank reported steps.")
    whole = sum(seconds for _, _, seconds in known) or 1.0
    legend = joined(
        element(
            "span",
            element("span", class_=f"key {name}"),
            f"{word} {percent(seconds / whole, 1)}, {duration(seconds)}",
            class_="item",
        )
        for name, word, seconds in known
    )
    missing = [word for name, word, key in _PARTS if summary[key] is None and name != "stood"]
    parts = [bar("Where the time went", [(name, seconds) for name, _, seconds in known]), element("p", legend)]
    if missing:
        parts.append(element("p", f"Not judged: {', '.join(missing)}.", class_="dim"))
    return joined(parts)


def _with_time_stood(facts: Facts) -> Facts:
    """The summary with the time of the stall at the end of the run apart from what else is outside of steps."""
    summary, mark = facts["summary"], _stall_mark(facts)
    if facts["now"]["stands_still_since_ns"] is None or mark is None or summary["lost_seconds"] is None:
        return {**summary, "stood_seconds": None}
    stood = min((mark["until_ns"] - mark["t_ns"]) / 1e9, summary["lost_seconds"])
    return {**summary, "stood_seconds": stood, "lost_seconds": summary["lost_seconds"] - stood}


def _map(facts: Facts) -> Markup:
    grid, columns = facts["grid"], facts["axis"]["columns"]
    parts = [element("p", _who_is_late(facts), class_="answer")]
    plane = "late" if len(grid["rows"]) != 1 else "step"
    drawn = _rows_shown(grid, plane, columns)
    if drawn:
        named = [(f"rank {row['rank']}", [value_of(grid, plane, cell) for cell in cells]) for row, cells in drawn]
        stood = [[cell == STOOD for cell in cells] for _, cells in drawn]
        left_out = len(grid["rows"]) - len(drawn)
        if left_out:
            parts.append(
                element("p", f"Here are the {len(drawn)} worst ranks; the script shows all.", class_="dim unscripted")
            )
        darkest = grid["darkest_share"] if plane == "late" else 1.0
        picture = rows(_MAP_TITLE[plane], named, stood, darkest=darkest)
        parts.append(element("div", picture, _map_key(plane, darkest), id="map-picture"))
    pace = facts["pace"]
    if any(value is not None for value in pace["mean_seconds"]):
        lines = [("peak", pace["longest_seconds"]), ("", pace["mean_seconds"])]
        title = element("h3", "A step over the time: the mean of all ranks, and above it the longest")
        picture = curves("Step time", lines, milliseconds, _marks(facts))
        parts.append(element("div", title, picture, _span(facts), id="pace-picture"))
    return joined(parts)


def _map_key(plane: str, darkest: float) -> Markup:
    words = {
        "late": f"the darker, the later it came to the collectives; the darkest is {percent(darkest)} of a step",
        "step": "the darker, the longer its steps; the darkest is 8 times the median step",
    }
    return element(
        "p",
        *(element("span", class_="key shade"), words[plane]),
        *(element("span", class_="key stood"), "it stood: no step ended"),
        *(element("span", class_="key empty"), "not known"),
        class_="dim",
    )


def _who_is_late(facts: Facts) -> str:
    """The answer of the map in one sentence."""
    summary, rows_ = facts["summary"], facts["grid"]["rows"]
    stalled = _stalled(facts)
    if stalled is not None:
        since, mark = stalled["since_step"], _stall_mark(facts)
        after = f" after step {count(since)}" if since is not None else ""
        after += f", since {stamp(mark['t_ns'])}" if mark is not None else ""
        return f"{_who(stalled)} stood still{after}. The others waited, and no step ended."
    cells = cells_of(facts["grid"], "late", facts["axis"]["columns"])
    if (reason := _failure(facts)) and any(STOOD in row for row in cells):
        return f"No step ended any more: {reason}."
    slowest = summary["slowest"]
    if slowest is not None:
        span = f"{milliseconds(slowest['waited_seconds_low'])} to {milliseconds(slowest['waited_seconds_high'])}"
        who = named_ranks(slowest["ranks"])
        where = ", ".join(slowest["hosts"][:4])
        return f"{who} on {where}: the others wait {span} of each step of {milliseconds(slowest['step_seconds'])}."
    if not rows_:
        return "Not judged: no rank reported steps."
    if len(rows_) == 1:
        return "One rank: nobody waits for it. The map shows how long its steps took."
    if facts["grid"]["has_lateness"]:
        return "Nobody: no rank comes later to the collectives than chance would have it."
    return "Not judged: the recording does not say how late each rank came to the collectives."


def _stall_mark(facts: Facts) -> Facts | None:
    """The last stall that lasted to the end of the run or of the attempt."""
    return next((mark for mark in reversed(facts["marks"]) if mark["kind"] == "standstill"), None)


def _who(finding: Facts) -> str:
    where = ", ".join(finding["hosts"][:4])
    return named_ranks(finding["ranks"]) + (f" on {where}" if where else "")


def _rows_shown(grid: Facts, plane: str, columns: int) -> list[tuple[Facts, bytes]]:
    """All rows, or the worst of many."""
    listed = list(zip(grid["rows"], cells_of(grid, plane, columns), strict=True))
    if len(listed) <= _MOST_ROWS:
        return listed
    worst = sorted(listed, key=lambda row: -sum(cell for cell in row[1] if cell != NOT_JUDGED))
    return sorted(worst[:_WORST_ROWS], key=lambda row: row[0]["rank"])


def _ranks(facts: Facts) -> Markup:
    late = facts["lateness"]["rows"]
    share = {row["rank"]: max((one for one in row["share"] if one is not None), default=None) for row in late}
    headers = ("rank", "host", "step", "ms a step", "late at most", "data", "communication", "checkpoint")
    table_rows = [
        (
            str(rank["rank"]),
            rank["host"],
            count(rank["step"]),
            milliseconds(rank["step_seconds"]),
            percent(share.get(rank["rank"])),
            percent(rank["loading_fraction"]),
            percent(rank["exposed_communication_fraction"]),
            percent(rank["checkpoint_fraction"]),
        )
        for rank in sorted(facts["now"]["ranks"], key=lambda rank: -(share.get(rank["rank"]) or 0.0))
    ]
    if not table_rows:
        return element("p", "No rank is recorded.")
    table = _table("Ranks of the newest attempt", headers, table_rows[:_MOST_TABLE_ROWS], left=("host",))
    more = len(table_rows) - _MOST_TABLE_ROWS
    left_out = f"These are the latest ranks; {count(more)} more are in paceline report --json."
    return joined([table, element("p", left_out, class_="dim")]) if more > 0 else table


def _machines(facts: Facts) -> Markup:
    parts = []
    shown = _hosts_shown(facts)
    for machine in shown[:_MOST_DRAWN_HOSTS]:
        drawn: list[Markup] = []
        for key, word, spell in _MACHINE:
            values = machine[key]
            if any(value is not None for value in values):
                drawn += [element("p", word, class_="dim"), curves(f"{machine['host']}: {word}", [("", values)], spell)]
        content = joined(drawn) if drawn else element("p", "No sample of this host is in this recording.")
        parts.append(_folded(machine["host"], content, is_open=len(facts["machines"]) == 1))
    if not parts:
        return element("p", "No host is recorded.")
    if len(shown) > _MOST_DRAWN_HOSTS:
        words = f"Here are {_MOST_DRAWN_HOSTS} hosts; the script draws {len(shown)}."
        parts.append(element("p", words, class_="dim unscripted"))
    left_out = len(facts["machines"]) - len(shown)
    if left_out:
        parts.append(element("p", f"{count(left_out)} more hosts are in paceline report --json.", class_="dim"))
    missing = [
        element("p", f"{one['host']}: {one['sensor']} could not be measured: {one['reason']}", class_="note")
        for one in facts["sensors_missing"][:_MOST_DRAWN_HOSTS]
    ]
    return joined([element("div", *parts, _span(facts), id="machines-picture"), *missing])


def _hosts_shown(facts: Facts) -> list[Facts]:
    """The hosts whose load is drawn: those of the findings first."""
    named = {host for finding in facts["verdict"]["findings"] for host in finding["hosts"]}
    return sorted(facts["machines"], key=lambda machine: machine["host"] not in named)[:_MOST_HOSTS]


def _stacks(facts: Facts) -> Markup:
    if not facts["stacks_text"]:
        return element("p", "No snapshot of the ranks was taken. One of a run that lasts: paceline stack.")
    return element("pre", facts["stacks_text"], tabindex="0")


def _logs(facts: Facts) -> Markup:
    parts: list[Markup] = []
    for log in facts["logs"]:
        stream = {"out": "stdout", "err": "stderr"}[log["stream"]]
        before = f", {size(log['left_out_bytes'])} before this left out" if log["left_out_bytes"] else ""
        title = f"rank {log['rank']} on {log['host']}, attempt {log['attempt']}, {stream}{before}"
        text = element("pre", log["text"], tabindex="0", data_rank=str(log["rank"]), data_times=_times(facts, log))
        parts.append(_folded(title, text, is_open=not parts))
    return element("div", *parts, id="log-texts") if parts else element("p", "No output of a rank is here.")


def _times(facts: Facts, log: Facts) -> str | None:
    """When the lines came, for the script: "line seconds,line seconds", from the start of the axis on."""
    begin = facts["axis"]["from_ns"]
    return ",".join(f"{line} {(t_ns - begin) / 1e9:.1f}" for line, t_ns in log["line_times"]) or None


def _events(facts: Facts) -> Markup:
    listed = [(stamp(event["t_ns"]), event["text"]) for event in facts["told"]]
    stamps = [str(event["t_ns"]) for event in facts["told"]]
    if not listed:
        return element("p", "No event is recorded.")
    return _table("What was told while the run lasted", ("time", "event"), listed, left=("event",), at=stamps)


def _foot(facts: Facts) -> Markup:
    left_out = [element("p", f"Left out: {text}.") for text in facts["left_out"]]
    version = facts["identity"]["paceline_version"] or UNKNOWN
    made = f"Made {stamp(facts['made_ns'])} from the recording of paceline {version}. This file needs no network."
    return element("footer", *left_out, element("p", made, class_="dim"), id="foot")


# -------------------------------------------------------------------------------------------------------------- pieces


def _marks(facts: Facts) -> list[float | None]:
    """The places of events that explain a change, between 0 and 1."""
    axis = facts["axis"]
    span = max(axis["to_ns"] - axis["from_ns"], 1)
    return [(event["t_ns"] - axis["from_ns"]) / span for event in facts["told"] if event["is_marked"]]


def _span(facts: Facts) -> Markup:
    axis = facts["axis"]
    return element("p", f"{stamp(axis['from_ns'])} to {stamp(axis['to_ns'])}", class_="dim")


def _folded(title: str, content: Markup, *, is_open: bool = False) -> Markup:
    return element("details", element("summary", title), content, open=is_open)


def _table(
    caption: str,
    headers: Sequence[str],
    listed: Sequence[Sequence[str]],
    *,
    left: Sequence[str],
    at: Sequence[str] = (),
) -> Markup:
    """A table that scrolls in a box of its own. `left`: headers of the columns whose text begins at the left; `at`: times of its rows."""
    tones = ["" if header in left else "number" for header in headers]
    head = element(
        "tr",
        *(element("th", name, scope="col", class_=tone or None) for name, tone in zip(headers, tones, strict=True)),
    )
    body = (
        element(
            "tr",
            *(element("td", cell, class_=tone or "wide") for cell, tone in zip(row, tones, strict=True)),
            data_at=at[place] if at else None,
        )
        for place, row in enumerate(listed)
    )
    whole = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", whole, class_="box", tabindex="0", role="region", aria_label=caption)


_SECTIONS: tuple[tuple[str, str, str, Callable[[Facts], Markup]], ...] = (
    ("verdict", "Verdict", "What happened", _verdict),
    ("time", "Time", "Where the time went", _time),
    ("map", "Who is late", "Who keeps the others waiting", _map),
    ("machines", "Machines", "Machines", _machines),
    ("ranks", "Ranks", "Ranks", _ranks),
    ("stacks", "Stacks", "Where the ranks were in their code", _stacks),
    ("logs", "Logs", "What the ranks wrote last", _logs),
    ("events", "Events", "Events", _events),
)
"""Id, name in the list of sections, title, content."""
