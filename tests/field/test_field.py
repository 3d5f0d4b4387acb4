"""What paceline says of the trouble of others: each case is answered rightly, or listed here with what is not seen in it."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from field import SCORES, cases, score

from paceline.cli import main

HERE = Path(__file__).parent
# Case -> its score, where that is not `right`, and why.
NOT_RIGHT: dict[str, tuple[str, str]] = {
    "two_servers_on_one_node": (
        "partly",
        "the port and that it is taken are named, the nodes on which two tasks want it are not",
    ),
}


@pytest.mark.parametrize("case", cases([HERE / "log"]), ids=lambda case: case.name)
def test_a_log_of_others_is_answered(case, tmp_path, monkeypatch, capsys):
    says = json.loads((case / "case.json").read_text(encoding="utf-8"))
    assert says["source"] and says["seen"] and says["cause"]
    shutil.copytree(case, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    for command in says["run"]:
        name, *argv = shlex.split(command)
        assert name == "paceline"
        main(argv)
    text = "".join(capsys.readouterr())
    assert score(says, text) == NOT_RIGHT.get(case.name, ("right", ""))[0], text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a good answer", "right"),
        ("a good answer with a lie", "harmful"),
        ("a good answer, beside it", "wrong"),
        ("an answer", "partly"),
        ("nothing", "silent"),
    ],
)
def test_the_worst_that_an_answer_says_is_its_score(text, found):
    says = {"right": ["good", "answer"], "partly": ["answer"], "wrong": ["beside"], "harmful": ["lie"]}
    assert score(says, text) == found and found in SCORES
