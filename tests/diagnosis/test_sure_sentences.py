"""No sure sentence that is false: of each recording and log it is written what is true of it, and nothing else is said surely.

Stretches of healthy training have lists of their own (test_stretches.py), and so have the forms in which NCCL's recorder was recorded.
"""

import json
import shlex
from pathlib import Path

import pytest

from paceline.cli import main
from paceline.cli.why import judge_run
from paceline.findings import Confidence

TESTS = Path(__file__).parents[1]
# What may be said surely: the codes that are true of the recording, with the ranks.
OF_RECORDINGS = {
    "data/runs/hang": {("N01", (1,))},
    "data/runs/healthy": set(),
    "data/runs/lost_host": {("C14", (2, 3))},
    "data/runs/restart": {("C04", (1,))},
    "data/runs/straggler": {("S01", (1,))},
    "data/runs/two_hosts/first": set(),
    "data/runs/two_hosts/second": set(),
    "recording/data/before/asleep": {("N01", (1,))},
    "recording/data/before/crash": {("C01", (1,))},
}
OF_LOGS = json.loads((Path(__file__).parent / "data" / "true_of_logs.json").read_text(encoding="utf-8"))
LOGS = sorted((TESTS / "field" / "log").glob("*/case.json"))


@pytest.mark.parametrize("name", sorted(OF_RECORDINGS))
def test_of_a_recording_only_what_is_true_is_said_surely(name):
    found = TESTS / name
    case, diagnosis, _ = judge_run([found], now_ns=max(path.stat().st_mtime_ns for path in found.rglob("*")))
    said = {(finding.code, finding.ranks) for finding in diagnosis.findings if finding.confidence is Confidence.HIGH}
    assert said <= OF_RECORDINGS[name], case.run.id


def test_each_recording_has_its_list():
    kept = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("events.jsonl")}
    assert kept <= set(OF_RECORDINGS)


@pytest.mark.parametrize("case", LOGS, ids=lambda path: path.parent.name)
def test_of_a_log_only_what_is_true_is_said_surely(case, monkeypatch, capsys):
    monkeypatch.chdir(case.parent)
    said = set()
    for command in json.loads(case.read_text(encoding="utf-8"))["run"]:
        assert main([*shlex.split(command)[1:], "--json"]) in (0, 3)
        findings = json.loads(capsys.readouterr().out)["findings"]
        said |= {finding["code"] for finding in findings if finding["confidence"] == "high"}
    assert said <= set(OF_LOGS.get(case.parent.name, ()))
