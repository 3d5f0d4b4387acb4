"""The agent's files survive crashes and full disks."""

import json
import os
from pathlib import Path

import pytest

from paceline.facts import RankExit
from paceline.recording.fact_json import from_plain
from paceline.recording.jsonl import read_json_lines
from paceline.recording.writer import EventLog, JsonLines, write_json


def test_an_event_is_one_line_with_its_time(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", clock_ns=lambda: 7)
    said = log.record("host_joined", host="algo-1")
    log.close()
    assert said == {"t_ns": 7, "event": "host_joined", "host": "algo-1"}
    assert (tmp_path / "events.jsonl").read_text() == '{"t_ns":7,"event":"host_joined","host":"algo-1"}\n'


def test_a_fact_in_an_event_is_encoded_in_the_file_alone(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", clock_ns=lambda: 7)
    end = RankExit(host="algo-1", rank=0, attempt=0, code=1, time_ns=5)
    assert log.record("ended", exits=[end])["exits"][0] is end
    log.close()
    (exit,) = json.loads((tmp_path / "events.jsonl").read_text())["exits"]
    assert exit == {"host": "algo-1", "rank": 0, "attempt": 0, "code": 1, "time_ns": 5}
    assert from_plain(RankExit, exit) == end and from_plain(RankExit, end) is end


def test_an_event_from_another_host_keeps_its_own_time(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", clock_ns=lambda: 7)
    assert log.record("rank_started", t_ns=3)["t_ns"] == 3
    log.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_counted_and_never_raises():
    log = JsonLines("/dev/full")
    assert not log.append({"a": 1})
    assert not log.append({"a": 2})
    assert log.lost == 2
    log.close()


def test_what_was_lost_is_said_when_the_disk_takes_lines_again(tmp_path):
    # A directory stands where the file belongs: nothing can be written until it is gone.
    path = tmp_path / "telemetry.jsonl"
    path.mkdir()
    file = JsonLines(path, clock_ns=lambda: 9)
    assert not file.append({"n": 1})
    path.rmdir()
    assert file.append({"n": 2})
    file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"t_ns": 9, "event": "lines_lost", "count": 1},
        {"n": 2},
    ]
    assert file.lost == 1


def test_a_line_that_an_earlier_agent_left_torn_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"n":1}\n{"n":')
    file = JsonLines(path)
    file.append({"n": 3})
    file.close()
    records, complaints = read_json_lines(path)
    assert records == [{"n": 1}, {"n": 3}]
    assert complaints == ["events.jsonl: 1 of 3 lines cannot be read"]


def test_a_torn_last_line_is_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"n":1}\n{"n":2}\n{"n"')
    assert read_json_lines(path) == ([{"n": 1}, {"n": 2}], ["events.jsonl: the last line is cut off"])


def test_the_end_of_a_long_file_is_read_from_a_whole_line(tmp_path):
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(f'{{"n":{n}}}\n' for n in range(10, 100)))
    records, complaints = read_json_lines(path, tail_bytes=20)
    assert records == [{"n": 98}, {"n": 99}]
    assert complaints == []


def test_a_whole_file_replaces_the_old_one_or_leaves_it(tmp_path):
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert os.listdir(tmp_path) == ["run.json"]
