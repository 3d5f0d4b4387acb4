"""The page of kept recordings: it says what `why`, `top` and the summary say, whatever is in the recording."""

import json
import shutil
from pathlib import Path

import pytest
from html_tree import HOSTILE, Tree

from paceline.cli import main
from paceline.views.report.page import page_html

RUNS = Path(__file__).parents[2] / "recording" / "data" / "before"


def answer(capsys, *words):
    assert main([*map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def run(request, tmp_path):
    """A copy of a kept recording."""
    return shutil.copytree(RUNS / request.param, tmp_path / request.param)


BOTH = pytest.mark.parametrize("run", ["asleep", "crash"], indirect=True)
ASLEEP = pytest.mark.parametrize("run", ["asleep"], indirect=True)


@BOTH
def test_its_figures_are_those_of_the_other_verbs(run, capsys):
    facts = answer(capsys, "report", run, "--json")
    assert facts["verdict"] == answer(capsys, "why", run, "--json")
    top = answer(capsys, "top", run, "--json")
    assert {**facts["now"], "t_ns": 0} == {**top, "t_ns": 0}
    assert facts["summary"]["in_steps_seconds"] > 0
    columns = facts["axis"]["columns"]
    assert len(facts["pace"]["mean_seconds"]) == columns
    assert all(
        len(values) == columns for machine in facts["machines"] for name, values in machine.items() if name != "host"
    )
    assert any(value is not None for value in facts["machines"][0]["cpu_fraction"])


@ASLEEP
def test_the_page_says_who_and_why_and_what_next_first(run, capsys):
    facts = answer(capsys, "report", run, "--json")
    texts = " ".join(" ".join(Tree(page_html(facts)).texts).split())
    finding = facts["verdict"]["findings"][0]
    assert f"stall[N01] {finding['title']}: rank 1 on localhost, since step 12 (confidence: high)" in texts
    for said in (*finding["saw"], *finding["ruled_out"], *finding["next"], "paceline help N01"):
        assert " ".join(said.split()) in texts
    order = ["What happened stall", "How fast?", "Where the time went compute", "Machines localhost"]
    places = [texts.index(words) for words in order]
    assert places == sorted(places)


@ASLEEP
def test_of_a_finding_that_was_told_otherwise_both_are_said(run, capsys):
    facts = answer(capsys, "report", run, "--json")
    finding = facts["verdict"]["findings"][0]
    assert facts["told_live"] == []
    told = {"code": finding["code"], "ranks": finding["ranks"], "live": "likely, since step 11", "now": "high"}
    texts = " ".join(Tree(page_html({**facts, "told_live": [told]})).texts)
    assert "likely, since step 11, it said while the run lasted. This is judged again from the recording." in texts


@BOTH
def test_a_page_loads_nothing_and_every_link_leads_somewhere(run, tmp_path, capsys):
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    tree = Tree(page)
    assert [dict(attributes).get("type") for tag, attributes in tree.attributes if tag == "script"] == [
        "application/octet-stream",
        None,
    ]
    assert not {name for _, names in tree.elements for name in names} & {"src", "style", "onload", "onclick"}
    links = {part.split('"')[0] for part in page.split('href="#')[1:]}
    assert links and all(f'id="{name}"' in page for name in links)
    assert page.count("<h1") == 1


@ASLEEP
def test_what_the_ranks_wrote_is_there_unless_it_is_left_out(run, tmp_path, capsys):
    (run / "hosts/localhost/attempt_0/rank_1.err").write_text("a\r 50%\r100%\nHF_TOKEN=abc\n")
    texts = {}
    for option in ("", "--no-logs", "--redact"):
        assert main(["report", str(run), "-o", "-", *filter(None, [option])]) == 0
        texts[option] = capsys.readouterr().out.split('id="logs"')[1].split("<script")[0]
    assert "100%\nHF_TOKEN=abc" in texts[""] and " 50%" not in texts[""]
    assert "100%" not in texts["--no-logs"] and "HF_TOKEN" not in texts["--no-logs"]
    assert "HF_TOKEN=[left out]" in texts["--redact"] and "abc\n" not in texts["--redact"]


@ASLEEP
def test_hostile_words_of_a_recording_change_no_element(run, capsys):
    facts = answer(capsys, "report", run, "--json")
    wanted = Tree(page_html(facts)).elements
    for text in HOSTILE:
        assert Tree(page_html(replaced(facts, text))).elements == wanted


def replaced(facts, text):
    """The facts with this text behind each of their texts, which are names of hosts, commands, logs, findings."""
    if isinstance(facts, str):
        return facts if facts in {"Failed", "Completed", "out", "err", "stall"} else facts + text
    if isinstance(facts, dict):
        return {name: value if name == "planes" else replaced(value, text) for name, value in facts.items()}
    return [replaced(one, text) for one in facts] if isinstance(facts, list) else facts


@ASLEEP
@pytest.mark.parametrize(
    "lost", ["events.jsonl", "hosts/localhost/telemetry.jsonl", "hosts/localhost/attempt_0", "run.json"]
)
def test_a_recording_that_lacks_a_part_still_has_a_page(run, lost, capsys):
    path = run / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(["report", str(run), "-o", "-"]) == 0
    page = capsys.readouterr().out
    assert "Not judged" in page and "What happened" in page


def test_a_run_that_does_not_exist_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "r-zzzzzz"]) == 2
    assert "error[U09]" in capsys.readouterr().err


@ASLEEP
def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(run, tmp_path, capsys):
    assert main(["report", str(run), "-o", str(tmp_path / "nowhere" / "page.html")]) == 2
    assert "error[U22]" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
