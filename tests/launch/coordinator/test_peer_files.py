"""What the first host keeps of a host without shared storage, and what a reader makes of it."""

from base64 import b64encode

import pytest

from paceline.launch.agent.ring_collector import RingCollector
from paceline.launch.coordinator.coordinator import PROGRESS_EVERY_LINES, PeerFiles
from paceline.recording.evidence import evidence
from paceline.recording.jsonl import read_json_lines
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import Cell, RecordKind, RingWriter
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.recording.step_rollups import ROLLUP

SECOND = 1_000_000_000
BEGIN = 1_000 * SECOND


def progress(rank, steps):
    totals = {"step_seconds": steps / 10, "communication_seconds": steps / 100}
    return {str(rank): {"rank": rank, "attempt": 0, "step_count": steps, "collective_count": 3 * steps, **totals}}


def line(second, steps, **more):
    return {"t_ns": BEGIN + second * SECOND, "progress": progress(1, steps), "final": False, **more}


def streamed(path):
    return read_json_lines(RunDirectory(path).peer_file("algo-1", "algo-2", "telemetry"))[0]


def test_every_line_says_how_far_the_ranks_are_and_every_tenth_says_all(tmp_path):
    files = PeerFiles(RunDirectory(tmp_path), "algo-1")
    files.append("algo-2", "telemetry", [line(second, 10 * second) for second in range(1, 13)])
    lines = streamed(tmp_path)
    whole = lines[PROGRESS_EVERY_LINES - 1]
    assert whole["progress"]["1"]["collective_count"] == 300 and "steps" not in whole
    assert lines[0] == {"t_ns": BEGIN + SECOND, "steps": {"1": [0, 10, 1.0, 0.1]}}
    assert all("progress" not in one for one in lines if one is not whole)


@pytest.fixture
def peer(recording):
    """A recording of the first host, to which another host streams."""
    made = recording()
    made.identity()
    made.event("attempt_started", attempt=0, world_size=2, hosts=[{"host": "algo-2", "first_rank": 1, "ranks": 1}])
    return made, PeerFiles(RunDirectory(made.path), "algo-1")


def test_the_newest_line_counts_for_a_rank_of_that_host(peer):
    made, files = peer
    files.append("algo-2", "telemetry", [line(second, 10 * second) for second in range(1, 18)])
    (rank,) = (record for record in evidence(made.path).ranks if record.host == "algo-2")
    assert (rank.step_count, rank.step_seconds, rank.communication_seconds) == (170, 17.0, 1.7)
    assert rank.collective_count == 300 and rank.last_step_ns == BEGIN + 17 * SECOND


def test_its_sums_and_its_newest_lines_have_each_step_once(peer, tmp_path):
    made, files = peer
    ring = RingWriter(tmp_path / "0-1.ring", capacity=4096)
    ring.cells[Cell.RANK] = 1
    # The host's own recording is elsewhere.
    rings = RingCollector(tmp_path, RunDirectory(tmp_path / "elsewhere"), "algo-2", 0)
    assert rings.take_sums() == {}
    for number in range(1, 351):
        ring.write(RecordKind.STEP, 0, number, BEGIN + number * SECOND // 10, SECOND // 10, 0, 0, 0, 0)
    rings.drain()
    sums = {"attempt": 0, **rings.take_sums()}
    assert rings.take_sums() == {} and {"attempt", "10"} <= set(sums)
    files.append("algo-2", "telemetry", [line(34, 340), line(35, 350, sums=sums), line(36, 355)])
    axis = TimeAxis(BEGIN, BEGIN + 40 * SECOND, 4)
    (columns,), complaints = step_columns([RunDirectory(made.path)], axis)
    assert (columns.host, columns.rank, complaints) == ("algo-2", 1, [])
    assert columns.counts == [99, 100, 100, 56] and sum(columns.totals_ns) == 35.5 * SECOND
    rings.close()
    ring.drop()


def test_sums_that_are_none_are_passed_over(peer):
    made, files = peer
    record = b64encode(bytes(ROLLUP.size)).decode()
    for sums in (
        *({"attempt": attempt, "10": record} for attempt in (-1, 1 << 40, "0", None)),
        *({"attempt": 0, "10": bad} for bad in (record[4:], "%%%%", 7, None, [])),
        {"attempt": 0, "11": record, "../x": record},
        *("x", 7, None, []),
    ):
        files.append("algo-2", "telemetry", [line(1, 10, sums=sums)])
    assert not list(made.path.rglob("*.roll")) and len(streamed(made.path)) == 14


def test_totals_of_anything_in_a_line_raise_nothing(peer):
    made, _ = peer
    bad = [None, 7, "x", [], {}, {"1": None}, {"1": [0, "x", 1, 1]}, {"x": [0, 1, 1.0, 1.0]}, {"1": [0, 2**70, 1, 1]}]
    made.streamed(
        "algo-1",
        "algo-2",
        "telemetry",
        line(0, 5),
        *({"t_ns": BEGIN + at * SECOND, "steps": one} for at, one in enumerate(bad, 1)),
    )
    (rank,) = (record for record in evidence(made.path).ranks if record.host == "algo-2")
    assert rank.step_count == 5
