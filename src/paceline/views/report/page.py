"""The page of a run, in the order in which a worried person asks: what happened, how fast, who is late, where the time went, the proof."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.findings import NO_CODE
from paceline.recording.rank_sets import named_ranks
from paceline.views.report.drawing import bar, curves, rows
from paceline.views.report.markup import Markup, document, element, joined
from paceline.views.units import UNKNOWN, count, counted, duration, milliseconds, percent, rate, size, stamp

Facts = Mapping[str, Any]
_STATES = {"Completed": ("done", "good"), "Failed": ("failed", "bad"), "Stopped": ("stopped", "warn")}
_SLOW = frozenset({"slow", "waiting", "quality"})
_PARTS = (
    ("compute", "compute", "compute_seconds"),
    ("data", "data", "loading_seconds"),
    ("communication", "exposed communication", "exposed_communication_seconds"),
    ("checkpoint", "checkpoint", "checkpoint_seconds"),
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
    """The whole page, in one file that loads nothing and needs no script. `facts`: paceline.page/1."""
    sections = [
        ("verdict", "What happened", _verdict(facts)),
        ("time", "Where the time went", _time(facts)),
        ("ranks", "Ranks", _ranks(facts)),
        ("machines", "Machines", _machines(facts)),
        ("stacks", "Where the ranks were in their code", _stacks(facts)),
        ("logs", "What the ranks wrote last", _logs(facts)),
        ("events", "Events", _events(facts)),
    ]
    shown = [section for section in sections if section[2]]
    links = (element("a", title, href=f"#{name}") for name, title, _ in shown)
    blocks = (
        element("section", element("h2", title), content, id=name, aria_label=title) for name, title, content in shown
    )
    identity = facts["identity"]
    return document(
        f"{identity['run_id']} {_state(facts)[0]}",
        _head(facts),
        element("nav", *links),
        element("main", *blocks),
        _foot(facts),
    )


# ------------------------------------------------------------------------------------------------------------ sections


def _head(facts: Facts) -> Markup:
    identity, (state, tone) = facts["identity"], _state(facts)
    code = facts["verdict"]["exit_code"]
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
            element("span", state + (f", exit {code}" if code is not None else ""), class_=f"state {tone}"),
        ),
        element("p", ", ".join(filter(None, about))),
        element("p", element("code", " ".join(identity["command"]))) if identity["command"] else "",
        element("p", facts["summary"]["reason"]) if facts["summary"]["reason"] else "",
    )


def _verdict(facts: Facts) -> Markup:
    findings = facts["verdict"]["findings"]
    parts = [_finding(finding) for finding in findings]
    if not findings:
        steps = facts["summary"]["steady_step_count"]
        parts.append(element("p", "Nothing was found" + (f" in {counted(steps, 'steady step')}." if steps else ".")))
    parts += [element("p", f"Earlier: {_earlier(one)}") for one in facts["verdict"]["earlier"]]
    parts += [element("p", line) for line in facts["restart_lines"]]
    if facts["not_judged"]:
        title = f"Not judged: {len(facts['not_judged'])}"
        parts.append(_folded(title, element("ul", *(element("li", text) for text in facts["not_judged"]))))
    return joined([*parts, _tiles(facts)])


def _finding(finding: Facts) -> Markup:
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
        *([("more", f"paceline explain {finding['code']}")] if finding["code"] != NO_CODE else []),
    ]
    listed = (
        joined([element("dt", name if at == 0 or lines[at - 1][0] != name else ""), element("dd", text)])
        for at, (name, text) in enumerate(lines)
    )
    tone = "finding slow" if finding["level"] in _SLOW else "finding"
    return element("div", element("h3", f"{title} ({finding['confidence']})"), element("dl", *listed), class_=tone)


def _earlier(one: Facts) -> str:
    who = f", {named_ranks(one['ranks'])}" if one["ranks"] else ""
    because = f"; {one['reason']}" if one["reason"] else ""
    return f"{one['code']} {one['title']}{who} in attempt {one['attempt']}{because}"


def _tiles(facts: Facts) -> Markup:
    now, summary = facts["now"], facts["summary"]
    seconds = now["step_seconds"]
    slowest = summary["slowest"]
    end = facts["forecast"]
    tiles = [
        (
            "How fast?",
            f"{milliseconds(seconds)} a step" if seconds is not None else UNKNOWN,
            f"step {count(now['step'])}",
        ),
        (
            "Who is slow?",
            _slowest(slowest),
            f"spread {now['spread']:.2f}" if now["spread"] is not None else "not judged",
        ),
        ("When done?", *_end_tile(facts, end)),
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


def _slowest(slowest: Any) -> str:
    return f"rank {slowest['rank']}" if isinstance(slowest, Mapping) and "rank" in slowest else "nobody"


def _end_tile(facts: Facts, end: Facts | None) -> tuple[str, str]:
    if facts["identity"]["finished_ns"] is not None:
        return "it has ended", stamp(facts["identity"]["finished_ns"])
    if end is None or end.get("needed_seconds") is None:
        return UNKNOWN, "say --total-steps N"
    return duration(max(end["needed_seconds"] - end["elapsed_seconds"], 0.0)), facts["forecast_text"]


def _lost_steps(summary: Facts) -> str:
    lost = summary["lost_step_count"]
    return "" if lost is None else f"{counted(lost, 'step')} lost"


def _time(facts: Facts) -> Markup:
    summary = facts["summary"]
    known = [(name, word, summary[key]) for name, word, key in _PARTS if summary[key] is not None]
    if summary["in_steps_seconds"] is None:
        return element("p", "Not judged: no rank reported steps.")
    whole = sum(seconds for _, _, seconds in known) or 1.0
    legend = joined(
        joined([element("span", class_=f"key {name}"), f"{word} {percent(seconds / whole, 1)}, {duration(seconds)}"])
        for name, word, seconds in known
    )
    missing = [word for _, word, key in _PARTS if summary[key] is None]
    parts = [bar("Where the time went", [(name, seconds) for name, _, seconds in known]), element("p", legend)]
    if missing:
        parts.append(element("p", f"Not judged: {', '.join(missing)}.", class_="dim"))
    pace = facts["pace"]
    if any(value is not None for value in pace["mean_seconds"]):
        lines = [("peak", pace["longest_seconds"]), ("", pace["mean_seconds"])]
        parts += [
            element("h3", "A step over the time: the mean of all ranks, and above it the longest"),
            curves("Step time", lines, milliseconds, _marks(facts)),
            _span(facts),
        ]
    return joined(parts)


def _ranks(facts: Facts) -> Markup:
    parts = []
    late = facts["lateness"]["rows"]
    if late:
        named = [(f"rank {row['rank']}", row["share"]) for row in late]
        parts += [
            element(
                "h3", "Who keeps the others waiting: the darker, the later it came to the collectives. Grey: not known"
            ),
            rows("How late each rank came to the collectives", named),
            _span(facts),
        ]
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
        for rank in facts["now"]["ranks"]
    ]
    parts.append(_table("Ranks of the newest attempt", headers, table_rows, left=("host",)))
    return joined(parts) if table_rows or late else Markup("")


def _machines(facts: Facts) -> Markup:
    parts = []
    for machine in facts["machines"]:
        drawn: list[Markup] = []
        for key, word, spell in _MACHINE:
            values = machine[key]
            if any(value is not None for value in values):
                drawn += [element("p", word, class_="dim"), curves(f"{machine['host']}: {word}", [("", values)], spell)]
        content = joined(drawn) if drawn else element("p", "No sample of this host is in this recording.")
        parts.append(_folded(machine["host"], content, is_open=len(facts["machines"]) == 1))
    return joined([*parts, _span(facts) if parts else ""])


def _stacks(facts: Facts) -> Markup:
    return element("pre", facts["stacks_text"], tabindex="0") if facts["stacks_text"] else Markup("")


def _logs(facts: Facts) -> Markup:
    parts: list[Markup] = []
    for log in facts["logs"]:
        stream = {"out": "stdout", "err": "stderr"}[log["stream"]]
        before = f", {size(log['left_out_bytes'])} before this left out" if log["left_out_bytes"] else ""
        title = f"rank {log['rank']} on {log['host']}, attempt {log['attempt']}, {stream}{before}"
        parts.append(_folded(title, element("pre", log["text"], tabindex="0"), is_open=not parts))
    return joined(parts)


def _events(facts: Facts) -> Markup:
    listed = [(stamp(event["t_ns"]), event["text"]) for event in facts["told"]]
    return (
        _table("What was told while the run lasted", ("time", "event"), listed, left=("event",))
        if listed
        else Markup("")
    )


def _foot(facts: Facts) -> Markup:
    left_out = [element("p", f"Left out: {text}.") for text in facts["left_out"]]
    version = facts["identity"]["paceline_version"] or UNKNOWN
    made = f"Made {stamp(facts['made_ns'])} from the recording of paceline {version}. This file needs no network."
    return element("footer", *left_out, element("p", made, class_="dim"))


# -------------------------------------------------------------------------------------------------------------- pieces


def _state(facts: Facts) -> tuple[str, str]:
    verdict = facts["verdict"]
    if verdict["status"] is None:
        return "unknown", "warn"
    if verdict["status"] == "Failed" and verdict["finished_ns"] is None:
        return "dead", "bad"
    return _STATES.get(verdict["status"], ("running", "good"))


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


def _table(caption: str, headers: Sequence[str], listed: Iterable[Sequence[str]], *, left: Sequence[str]) -> Markup:
    """A table that scrolls in a box of its own. `left`: headers of the columns whose text begins at the left."""
    tones = ["" if header in left else "number" for header in headers]
    head = element(
        "tr",
        *(element("th", name, scope="col", class_=tone or None) for name, tone in zip(headers, tones, strict=True)),
    )
    body = (
        element("tr", *(element("td", cell, class_=tone or "wide") for cell, tone in zip(row, tones, strict=True)))
        for row in listed
    )
    whole = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", whole, class_="box", tabindex="0", role="region", aria_label=caption)
