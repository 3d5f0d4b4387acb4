"""`paceline compare`: the answer, what differs, and runs that are not there."""

import json
import shutil
from pathlib import Path

import pytest
from html_tree import Tree

from paceline.cli import main

RUNS = Path(__file__).parents[1] / "recording" / "data" / "before"
ASLEEP, CRASH = str(RUNS / "asleep"), str(RUNS / "crash")


def test_two_short_runs_cannot_be_told_and_what_differs_is(capsys):
    assert main(["compare", ASLEEP, CRASH]) == 0
    out = capsys.readouterr().out
    assert out.startswith("cannot tell whether r-") and ("too few steps" in out or "no steps after" in out)
    assert "command: paceline run" in out and "step " in out


def test_a_run_beside_itself_differs_in_nothing(capsys):
    assert main(["compare", ASLEEP, ASLEEP, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "paceline.compare/1" and found["differences"] == []
    assert found["answer"] == "cannot tell" and found["first_run_id"] == found["second_run_id"]


def test_a_secret_of_a_command_is_in_no_answer(tmp_path, capsys):
    run = shutil.copytree(ASLEEP, tmp_path / "asleep")
    document = json.loads((run / "run.json").read_text())
    document["command"] += ["--hf-token", "abc123"]
    (run / "run.json").write_text(json.dumps(document))
    for option in ([], ["--json"], ["-o", "-"]):
        assert main(["compare", str(run), CRASH, *option]) == 0
        shown = capsys.readouterr().out
        assert "--hf-token" in shown and "abc123" not in shown


def test_the_page_has_the_answer_of_the_text(tmp_path, capsys):
    assert main(["compare", ASLEEP, CRASH, "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    capsys.readouterr()
    assert main(["compare", ASLEEP, CRASH]) == 0
    assert capsys.readouterr().out.splitlines()[0] in " ".join(Tree(page).texts)
    assert "<script" not in page and " style=" not in page


@pytest.mark.parametrize(
    ("words", "code"),
    [(("r-zzzzzz",), "U09"), ((ASLEEP, "r-zzzzzz"), "U09"), ((ASLEEP, CRASH, "-o", "/nowhere/page.html"), "U22")],
)
def test_what_cannot_be_is_refused(words, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    assert f"error[{code}]" in capsys.readouterr().err
