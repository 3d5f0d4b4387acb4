"""`paceline resume`: what it prints and ends with; nothing of the script is executed."""

import json
import shutil
from pathlib import Path

import pytest

from paceline.cli import main

TRAINS = "open('made', 'w').close()\nimport engine\nfor epoch in range(2):\n    engine.train()\n"
ENGINE = "open('made', 'w').close()\ndef train():\n    for x in loader:\n        optimizer.step()\n"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "trainer.py").write_text("from transformers import Trainer\nTrainer(m).train()\n")
    return tmp_path


@pytest.mark.parametrize("argv", [["train.py", "--lr", "1"], ["-m", "train"]])
def test_the_loops_are_listed_and_nothing_is_executed(argv, project, capsys):
    assert main(["resume", *argv]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "LOOP         LINE",
        "train.py:3   for epoch in range(2):",
        "engine.py:3  for x in loader:        trains",
        "resume: yes, at the head of engine.py:3",
    ]
    assert not (project / "made").exists()


def test_the_change_is_shown_as_a_diff(capsys):
    assert main(["resume", "--show", "train.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "+for epoch in __paceline_loop__(3, range(2)):" in lines
    assert "+    for x in __paceline_loop__(3, loader):" in lines


@pytest.mark.parametrize(("fail_on", "code"), [([], 1), (["never"], 0), (["F13"], 0), (["f11"], 1)])
def test_what_ends_with_1_is_the_users_to_say(fail_on, code, capsys):
    options = [word for what in fail_on for word in ("--fail-on", what)]
    assert main(["resume", "--json", *options, "trainer.py"]) == code
    assert json.loads(capsys.readouterr().out)["can_resume"] is False


@pytest.mark.parametrize(("argv", "code"), [([], "U03"), (["missing.py"], "U02"), (["--no-python", "true"], "U02")])
def test_what_cannot_be_read_is_refused(argv, code, capsys):
    assert main(["resume", *argv]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("--resume auto train.py --lr 1", "paceline run --resume r-7f3a91 train.py --lr 1"),
        # A script may have an option of that name.
        ("train.py --resume", "paceline run --resume auto train.py --resume"),
    ],
)
def test_a_run_is_told_how_it_goes_on(words, again, project, capsys):
    recorded = shutil.copytree(
        Path(__file__).parents[3] / "recording" / "data" / "before" / "asleep", project / "runs" / "r-7f3a91"
    )
    document = json.loads((recorded / "run.json").read_text())
    command = ["paceline", "run", *words.split()]
    (recorded / "run.json").write_text(json.dumps({**document, "id": "r-7f3a91", "command": command}))
    assert main(["resume", "--run-dir", "runs", "r-7f3a91"]) == 2
    said = capsys.readouterr().err
    assert "r-7f3a91 is a run" in said and again in said
