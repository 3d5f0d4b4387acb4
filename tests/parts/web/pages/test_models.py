"""What the page says of kept recordings: its figures are those of the other verbs, and they stay.

python tests/parts/web/pages/test_models.py        writes the golden models
"""

import base64
import contextlib
import io
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

# As a program, without pytest's own path.
sys.path.append(str(Path(__file__).parent))

from kept import NAMES, RUNS, kept

from paceline.cli import main
from paceline.views.report.page import page_html

GOLDEN = Path(__file__).parent / "data"
# A list of columns is longer than any other list.
_LONG = 60


def answer(*words):
    """The JSON of a verb."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, words)]) == 0
    return json.loads(out.getvalue())


def report(directories, *options):
    further = [word for path in directories[1:] for word in ("--dir", path)]
    return answer("report", directories[0], *further, *options, "--json")


def brief(value, folder):
    """A model that a person can read: columns as their count, sum and largest, planes as what is in each row, no time of now."""
    if isinstance(value, dict):
        if "cells64" in value:
            return {"encoding": value["encoding"], "cells": len(base64.b64decode(value["cells64"]))}
        return {name: 0 if name in ("made_ns", "at_ns") else brief(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        numbers = [one for one in value if isinstance(one, int | float)]
        if len(value) > _LONG and all(one is None or isinstance(one, int | float) for one in value):
            return {
                "known": len(numbers),
                "of": len(value),
                "sum": _short(sum(numbers)),
                "most": _short(max(numbers, default=0)),
            }
        return [brief(one, folder) for one in value]
    return value.replace(str(folder), "TMP") if isinstance(value, str) else _short(value)


def _short(value):
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rows_of(facts):
    """What is in each row of the map's first plane: how many cells stood, are known, are not judged."""
    columns, cells = facts["axis"]["columns"], base64.b64decode(facts["grid"]["planes"]["late"]["cells64"])
    names = {0: "nothing", 254: "not judged", 255: "stood"}
    return [
        dict(sorted(Counter(names.get(cell, "known") for cell in cells[at : at + columns]).items()))
        for at in range(0, len(cells), columns)
    ]


def golden(name, folder):
    facts = report(kept(name, folder))
    for left_out in ("logs", "stacks_text", "told"):
        facts[left_out] = len(facts[left_out] or ())
    facts["now"]["t_ns"] = 0
    text = json.dumps({**brief(facts, folder), "map": rows_of(facts)}, indent=1)
    return text + "\n"


# Of these the page says the time of now or of this machine.
STAYS = [name for name in NAMES if name not in ("running", "agent_gone")]


@pytest.mark.parametrize("name", STAYS)
def test_the_model_of_a_kept_recording_stays(name, tmp_path):
    assert golden(name, tmp_path) == (GOLDEN / f"{name}.json").read_text(), (
        f"run `python {Path(__file__).name}` if it should be so"
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_figures_are_those_of_why_and_top(name, tmp_path):
    directories = kept(name, tmp_path)
    facts = report(directories)
    why, top = (
        answer("why", *directories, "--json"),
        answer("top", *directories[:1], *further(directories), "--json", *ONCE),
    )
    assert without_now(facts["verdict"]) == without_now(why)
    # Of a run that lasts these change with the clock.
    moves = {"t_ns": 0} | ({"wall_seconds": 0} if name == "running" else {})
    assert {**facts["now"], **moves} == {**top, **moves}
    assert facts["summary"]["step_seconds"] == facts["now"]["step_seconds"] or facts["summary"]["step_seconds"] is None
    assert facts["summary"]["status"] == top["status"] == (why["status"] or top["status"])
    assert facts["summary"]["wall_seconds"] == pytest.approx(top["wall_seconds"], abs=60 if name == "running" else 0)


ONCE = ("--once",)


def further(directories):
    return [word for path in directories[1:] for word in ("--dir", path)]


def without_now(verdict):
    """What a finding says about the time of now is left out."""
    return {name: value for name, value in verdict.items() if name not in ("earlier",)}


SAYS = {
    "hang": "stall[N01] rank asleep in its own code: rank 1 on localhost, since step 150 (high)",
    "straggler": "slow[S01] straggler: rank 1 on localhost",
}
NOTES = {
    "healthy": [],
    "hang": [],
    "later": ["later_version"],
    "agent_gone": ["agent_gone"],
    "one_of_two_hosts": ["host_missing"],
    "two_hosts": [],
    "running": ["running"],
}


@pytest.mark.parametrize("name", NOTES)
def test_each_state_has_words_of_its_own(name, tmp_path):
    assert [note["kind"] for note in report(kept(name, tmp_path))["notes"]] == NOTES[name]


def test_a_torn_recording_says_which_part_is_torn(tmp_path):
    facts = report(kept("torn", tmp_path))
    said = " ".join([*facts["not_judged"], *facts["left_out"]])
    assert "events.jsonl" in said and "rank_3.seg" in said


def test_a_run_that_hangs_says_so_in_title_badge_and_bar(tmp_path):
    page = page_html(report(kept("hanging", tmp_path)))
    assert "<title>N01 hangs: r-e3c4d8 n01_asleep</title>" in page
    assert re.search(r'<span class="state bad">hangs, \d+', page)
    time = page.partition('id="time"')[2].partition("</section>")[0]
    widths = {name: float(width) for name, width in re.findall(r'<rect class="(\w+)" .*? width="([\d.]+)"', time)}
    assert widths["stood"] > 900 and "lost" not in widths
    assert re.search(r"stood still 100\.0%, \d+", time) and re.search(r"outside of steps 0\.0%, 6\.8 s", time)


def test_what_is_not_known_of_end_and_cost_names_the_verb_and_the_option_that_say_it(tmp_path, capsys):
    text = re.sub("<[^>]*>", "", page_html(report(kept("running", tmp_path))))
    tiles = {
        "When done?": "-paceline run --set total_steps=N",
        "Cost?": "not knownpaceline report --price USD_PER_HOUR",
    }
    for question, words in tiles.items():
        assert f"{question}{words}" in text
        verb, option = words.split("paceline ")[1].split()[:2]
        assert main([verb, "--help"]) == 0 and option in capsys.readouterr().out


def test_a_cause_among_the_events_is_its_title_alone(tmp_path):
    facts = report(kept("hang", tmp_path))
    told = [event["text"] for event in facts["told"] if event["event"] == "cause"]
    assert told[-1] == "stall[N01]: rank asleep in its own code: rank 1 on localhost, since step 150 (high)"
    events = page_html(facts).partition('id="events"')[2].partition("</section>")[0]
    assert all(f'<td class="wide">{text}</td>' in events for text in told)


def test_a_sensor_that_is_missing_says_why_beside_the_machines(tmp_path):
    (run,) = kept("hang", tmp_path)
    event = {"t_ns": 1, "event": "sensor_missing", "host": "localhost", "sensor": "gpu", "reason": "no permission"}
    with open(run / "events.jsonl", "a") as file:
        file.write(json.dumps(event) + "\n")
    text = page_html(report([run])).partition('id="machines"')[2]
    assert "localhost: gpu could not be measured: no permission" in text


def test_a_run_without_a_step_says_so(tmp_path):
    (run,) = kept("hang", tmp_path)
    for path in [*run.glob("hosts/*/attempt_0/*.seg"), *run.glob("hosts/*/attempt_0/*.roll")]:
        path.unlink()
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(lines[:7]))
    facts = report([run])
    assert "no_step" in [note["kind"] for note in facts["notes"]]
    assert facts["grid"]["rows"] and facts["pace"]["mean_seconds"] == [None] * facts["axis"]["columns"]


def test_the_straggler_is_the_darkest_row_and_the_hang_stands(tmp_path):
    columns = 300
    cells = base64.b64decode(report(kept("straggler", tmp_path))["grid"]["planes"]["late"]["cells64"])
    means = []
    for at in range(0, len(cells), columns):
        known = [cell for cell in cells[at : at + columns] if 0 < cell < 254]
        means.append(sum(known) / len(known))
    assert means[1] > 2 * max(mean for rank, mean in enumerate(means) if rank != 1)
    hang = report(kept("hang", tmp_path))
    (mark,) = [mark for mark in hang["marks"] if mark["kind"] == "standstill"]
    width = (hang["axis"]["to_ns"] - hang["axis"]["from_ns"]) / columns
    wanted = (mark["until_ns"] - mark["t_ns"]) / width
    assert mark["ranks"] == [1]
    assert all(abs(row["stood"] - wanted) <= 2 for row in rows_of(hang)), (rows_of(hang), wanted)


@pytest.mark.parametrize(("name", "late_ranks", "darkest"), [("healthy", [], "100%"), ("straggler", [1], "42%")])
def test_the_key_of_the_map_says_how_late_the_darkest_is(name, late_ranks, darkest, tmp_path):
    facts = report(kept(name, tmp_path))
    assert facts["grid"]["late_ranks"] == late_ranks
    assert f"the darkest is {darkest} of a step" in page_html(facts)


def test_a_price_says_what_the_hosts_cost(tmp_path):
    directories = kept("straggler", tmp_path)
    assert report(directories)["cost"] is None
    facts = report(directories, "--price", "3600")
    assert facts["cost"]["usd_so_far"] == pytest.approx(facts["summary"]["wall_seconds"])
    both = report(kept("two_hosts", tmp_path), "--price", "3600")
    assert both["cost"]["usd_so_far"] == pytest.approx(2 * both["summary"]["wall_seconds"])


def test_a_price_that_the_hosts_noted_counts_if_all_noted_one(tmp_path):
    directories = kept("two_hosts", tmp_path)
    for path, host, price in zip(directories, ("algo-1", "algo-2"), (1800, None), strict=True):
        noted = {"usd_per_hour": price, "price_from": "catalogue, g4dn.xlarge"}
        (path / "hosts" / host / "environment.json").write_text(json.dumps(noted))
    assert report(directories)["cost"] is None
    (directories[1] / "hosts/algo-2/environment.json").write_text(json.dumps({**noted, "usd_per_hour": 5400}))
    facts = report(directories)
    assert facts["cost"]["usd_so_far"] == pytest.approx(2 * facts["summary"]["wall_seconds"])
    assert facts["cost"]["price_from"] == "catalogue, g4dn.xlarge"
    assert report(directories, "--price", "1")["cost"]["price_from"] == "--price"


@pytest.mark.parametrize("price", ["0", "-1", "nan", "cheap"])
def test_a_price_that_is_none_is_refused(price, tmp_path, capsys):
    assert main(["report", str(RUNS / "hang"), "--price", price, "--json"]) == 2
    assert "--price" in capsys.readouterr().out


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for one in STAYS:
        with tempfile.TemporaryDirectory() as made:
            (GOLDEN / f"{one}.json").write_text(golden(one, Path(made)))
