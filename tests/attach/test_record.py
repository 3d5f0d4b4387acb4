"""What was seen, kept as a run."""

import json
import os
import stat
from dataclasses import replace

import pytest
from attached_evidence import evidence

from paceline.attach import record as attached_record
from paceline.attach.record import record, recorded, recordings_root
from paceline.cli import main
from paceline.cli.why import judge_run
from paceline.recording.layout import RunDirectory
from paceline.rules import all_causes

TYPED = ("paceline", "why", "900", "--record")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def kept(tmp_path, *hosts):
    judged = record(hosts, TYPED, all_causes(), tmp_path / "runs")
    return judged, tmp_path / "runs" / judged.case.run.id


def codes(diagnosis):
    return [(finding.code, finding.ranks, str(finding.confidence)) for finding in diagnosis.findings]


def test_it_is_judged_the_same_each_time_it_is_read(tmp_path):
    judged, path = kept(tmp_path, evidence())
    case, again, _ = judge_run([path], now_ns=judged.case.now_ns + 10**18)
    assert codes(again) == codes(judged.diagnosis) == [("N01", (1,), "high")]
    assert again.findings == judged.diagnosis.findings
    assert case.lasts


def test_what_a_host_has_seen_comes_back_whole(tmp_path):
    one = evidence(notes=("rank 0: no",), addresses=("10.0.0.8",), missing=(3,), size=4)
    _, path = kept(tmp_path, one)
    assert recorded([RunDirectory(path)]) == (one,)


def test_two_hosts_that_were_recorded_apart_are_judged_together(tmp_path):
    _, first = kept(tmp_path, evidence(size=4, late=()))
    _, second = kept(tmp_path, evidence("node-b", (2, 3), 4, late=(3,)))
    assert codes(judge_run([first], now_ns=0)[1]) == [("N15", (), "likely")]
    assert codes(judge_run([first, second], now_ns=0)[1]) == [("N01", (3,), "high")]


@pytest.mark.parametrize(
    "verb", [("why",), ("stack",), ("ps", "--all"), ("top", "--once"), ("report", "--save", "r.html")], ids=str
)
def test_every_verb_reads_it(tmp_path, capsys, verb):
    _, path = kept(tmp_path, evidence())
    words = [verb[0], *(() if verb[0] == "ps" else (str(path),)), *verb[1:]]
    assert main(words) == 0
    assert capsys.readouterr().out or (tmp_path / "r.html").exists()


def test_a_recording_stops_nobody(tmp_path, capsys):
    _, path = kept(tmp_path, evidence())
    assert main(["stop", str(path)]) == 0
    assert "has already ended" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 3}', '{"host": "a", "rounds": []}'])
def test_a_damaged_file_is_left_out_and_the_rest_is_read(tmp_path, text):
    judged, path = kept(tmp_path, evidence())
    RunDirectory(path).attached_file("node-a").write_text(text)
    assert recorded([RunDirectory(path)]) == ()
    _, again, _ = judge_run([path], now_ns=judged.case.now_ns)
    assert [finding.code for finding in again.findings] == ["N01"]


def test_roots_recordings_lie_in_roots_own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(attached_record.os, "geteuid", lambda: 0)
    root = recordings_root()
    assert root == tmp_path / "state" / "paceline" / "attached"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_those_of_others_lie_with_the_runs_of_this_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(attached_record.os, "geteuid", lambda: 1000)
    assert recordings_root() == tmp_path / ".paceline" / "runs"


def test_a_recording_is_its_users_alone(tmp_path):
    _, path = kept(tmp_path, evidence())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_full_disk_is_an_error_and_no_half_of_a_recording_is_told(tmp_path, monkeypatch):
    class Full(attached_record.EventLog):
        def _write(self, line):
            return False

    monkeypatch.setattr(attached_record, "EventLog", Full)
    with pytest.raises(OSError, match="No space left"):
        kept(tmp_path, evidence())
    assert not list((tmp_path / "state").glob("paceline/runs/*.json"))


def test_the_events_are_those_of_a_run_that_was_looked_at(tmp_path):
    _, path = kept(tmp_path, replace(evidence(), notes=()))
    names = [json.loads(line)["event"] for line in (path / "events.jsonl").read_text().splitlines()]
    assert names[0] == "run_started" and names[-1] == "run_finished"
    assert {"attached", "look", "host_look", "standstill", "hang_confirmed", "cause"} <= set(names)
    assert os.path.exists(path / "run.json")
