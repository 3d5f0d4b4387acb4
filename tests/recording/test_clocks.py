"""Stamps of hosts whose clocks are off are put right."""

import pytest

from paceline.recording.clocks import HostClocks
from paceline.recording.evidence import evidence
from paceline.recording.layout import RunDirectory
from paceline.recording.rank_spans import rank_spans
from paceline.recording.step_columns import TimeAxis, step_columns

SECOND = 1_000_000_000
EVENTS = [
    {"t_ns": 100, "event": "clock", "host": "b", "offset_ns": 30, "error_ns": 1},
    {"t_ns": 200, "event": "clock", "host": "b", "offset_ns": 50, "error_ns": 2},
]


def test_the_newest_measurement_before_a_time_counts_and_before_the_first_that_one():
    clocks = HostClocks(reversed(EVENTS))
    assert [clocks.offset_ns("b", at) for at in (0, 100, 150, 200, 999)] == [30, 30, 30, 50, 50]
    assert (clocks.offset_ns("b"), clocks.offset_ns("a"), HostClocks().offset_ns("b", 5)) == (50, 0, 0)


@pytest.mark.parametrize("bad", [None, "x", [], {}, 1.5, 2**70])
@pytest.mark.parametrize("name", ["t_ns", "host", "offset_ns", "error_ns"])
def test_an_event_of_anything_is_passed_over(name, bad):
    known = HostClocks([{**EVENTS[0], name: bad}]).texts()
    assert len(known) == (name == "host" and bad == "x")


def test_steps_and_telemetry_of_a_host_an_hour_ahead_stand_beside_the_others(recording):
    made = recording()
    made.identity()
    for host in ("algo-1", "algo-2"):
        made.segment(host, int(host[-1]) - 1)
    made.telemetry("algo-2", {"t_ns": 3600 * SECOND + 5})
    before = {record.host: record for record in evidence(made.path).ranks}
    made.event("clock", host="algo-2", offset_ns=3600 * SECOND, error_ns=1000)
    found = evidence(made.path)
    after = {record.host: record for record in found.ranks}
    assert after["algo-1"] == before["algo-1"]
    assert before["algo-2"].last_step_ns - after["algo-2"].last_step_ns == 3600 * SECOND
    assert before["algo-2"].steps[0].end_ns - after["algo-2"].steps[0].end_ns == 3600 * SECOND
    assert found.telemetry["algo-2"][0]["t_ns"] == 5
    clocks, end = HostClocks(found.events), before["algo-1"].last_step_ns
    assert clocks.texts() == ["algo-2: its stamps are put right by -3600.000 s (up to 0.0000 s off)"]
    axis = TimeAxis(end - 3600 * SECOND, end + 1, 2)
    columns, _ = step_columns([RunDirectory(made.path)], axis, clocks=clocks)
    assert [(one.host, one.counts) for one in columns] == [("algo-1", [0, 10]), ("algo-2", [10, 0])]
    spans, _ = rank_spans(
        [RunDirectory(made.path)], from_ns=0, to_ns=end - 3000 * SECOND, most_records=1000, clocks=clocks
    )
    assert [(one.host, bool(one.spans)) for one in spans] == [("algo-1", False), ("algo-2", True)]
