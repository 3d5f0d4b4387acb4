"""The list of runs as HTML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from paceline.recording.runs import KnownRun
from paceline.views.pace import Pace, pace
from paceline.views.ps import HERE, ListedRun, note_text, where_text
from paceline.views.report.markup import Markup, element, joined
from paceline.views.run_state import state_words
from paceline.views.status import ranks_text, run_lasts
from paceline.views.units import UNKNOWN, bare_milliseconds, count, counted, duration, stamp


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the list."""

    known: KnownRun
    """What its run.json says."""
    listed: ListedRun | None
    """Its state; None: it was not read yet."""

    @property
    def pace(self) -> Pace | None:
        """Its newest pace."""
        return None if self.listed is None else pace(self.listed.ranks, ended=not run_lasts(self.listed.run))


def _of_listed(value: Callable[[ListedRun], Any]) -> Callable[[RunRow], Any]:
    return lambda row: None if row.listed is None else value(row.listed)


def _of_pace(value: Callable[[Pace], Any]) -> Callable[[RunRow], Any]:
    return lambda row: None if (now := row.pace) is None else value(now)


SORTED_BY: dict[str, Callable[[RunRow], Any]] = {
    "run": lambda row: row.known.id,
    "name": lambda row: str(row.known.document.get("name") or "") or None,
    "status": _of_listed(lambda listed: str(listed.run.status)),
    "ranks": _of_pace(lambda now: now.ranks_wanted),
    "step": _of_pace(lambda now: now.step),
    "ms a step": _of_pace(lambda now: now.step_seconds),
    "started": lambda row: row.known.started_ns or None,
}
"""The columns, and by what each is sorted; None comes last."""
_NUMBERS = frozenset({"ranks", "step", "ms a step"})


def runs_html(
    rows: Sequence[RunRow],
    found_count: int,
    left_out: Sequence[str],
    notes: Sequence[str],
    folders: Sequence[str],
    now_ns: int,
    here: str = "",
) -> Markup:
    """The table. `found_count`: runs that can be found; `notes`: what engines did not say; `folders`: where was looked.

    `here`: the folder of this directory's runs; others get a column that says where they are.
    """
    told = [element("p", f"Not shown: {text}.", class_="dim") for text in left_out]
    told += [element("p", text, class_="warn") for text in notes]
    if not rows:
        nothing = "No such run." if found_count else "No runs: start one with paceline run train.py"
        looked = element("p", f"Looked in {', '.join(folders)}.", class_="dim")
        return element("div", element("p", nothing), looked, *told, id="runs")
    places = [where_text(str(row.known.path), here) for row in rows]
    if all(place == HERE for place in places):
        places = [""] * len(rows)
    head = element(
        "tr",
        *(
            element("th", element("button", name, type="button", data_sort=name), scope="col", class_=_tone(name))
            for name in SORTED_BY
        ),
        element("th", "where", scope="col") if places[0] else "",
        element("th", "note", scope="col"),
    )
    whole = element(
        "table",
        element("caption", f"{counted(len(rows), 'run')} of {count(found_count)}"),
        element("thead", head),
        element("tbody", *(_row(row, now_ns, place) for row, place in zip(rows, places, strict=True))),
    )
    box = element("div", whole, class_="box", tabindex="0", role="region", aria_label="Runs")
    return element("div", box, *told, id="runs")


def _row(row: RunRow, now_ns: int, place: str) -> Markup:
    known, listed, now = row.known, row.listed, row.pace
    age = duration((now_ns - known.started_ns) / 1e9) if known.started_ns else UNKNOWN
    cells = {
        "run": element("a", known.id, href=f"run/{quote(known.id, safe='')}"),
        "name": str(known.document.get("name") or UNKNOWN),
        "status": _state(listed, now_ns),
        "ranks": UNKNOWN if listed is None or now is None or not listed.ranks else ranks_text(now),
        "step": UNKNOWN if now is None else count(now.step),
        "ms a step": UNKNOWN if now is None or _stands(listed) else bare_milliseconds(now.step_seconds),
        "started": element("span", f"{age} ago", title=stamp(known.started_ns or None)),
    }
    note = UNKNOWN if listed is None else "  ".join(filter(None, (listed.engine, note_text(listed, now_ns))))
    return element(
        "tr",
        *(element("td", cell, class_=_tone(name)) for name, cell in cells.items()),
        element("td", place, class_="wide dim") if place else "",
        element("td", note, class_="wide"),
    )


def _stands(listed: ListedRun | None) -> bool:
    return listed is not None and listed.state.lasting_stall is not None


def _state(listed: ListedRun | None, now_ns: int) -> Markup:
    """The status; of a run that lasts with a dot, and with its state where it makes no steps."""
    if listed is None:
        return element("span", "not read yet", class_="dim")
    state, status = listed.state, str(listed.run.status)
    if not run_lasts(listed.run):
        return element("span", status, class_=state.tone)
    dot = element("span", class_=f"live {state.tone}", aria_hidden="true")
    return joined([dot, element("span", state_words(state, now_ns) if _stands(listed) else status, class_=state.tone)])


def _tone(name: str) -> str | None:
    return "number" if name in _NUMBERS else None
