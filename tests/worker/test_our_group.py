"""What a rank records of a process group that is written in Python: the same as of torch's own, and what C++ issues to it as well."""

import sys
from pathlib import Path

import pytest

from paceline.diagnosis.desync.call_records import CallReader, exchange_counters, exchange_entries
from paceline.recording.ring import RingReader
from paceline.recording.string_table import StringTable

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
SCRIPT = Path(__file__).parent / "scripts" / "our_group.py"
LINES = SCRIPT.read_text().splitlines()


@pytest.fixture(scope="module")
def ranks(shared_workplace):
    """Of each rank: its header, its calls by group, its table by group, its exchanges."""
    left = shared_workplace.run(sys.executable, str(SCRIPT), world_size=2)
    assert [rank.code for rank in left] == [0, 0], left[0].err
    found = {}
    for path in (shared_workplace.directory / "rings").glob("*.ring"):
        reader, texts = RingReader(path), StringTable(path.with_suffix(".texts"))
        records, _, lost = reader.read_from(0)
        texts.update()
        header = reader.header()
        calls = {of.group: of for of in CallReader(texts).take(header.rank, records, lost)}
        table = {c.name: c for c in exchange_counters(header.exchanges, texts, header.world_size)}
        found[header.rank] = (header, calls, table, exchange_entries(records, texts))
        reader.close()
    return found


def test_the_instruments_hold(ranks):
    assert [header.failure for header, *_ in ranks.values()] == ["", ""]
    assert [header.step_count for header, *_ in ranks.values()] == [3, 3]


def test_the_scripts_calls_are_compared_by_their_lines(ranks):
    for _, calls, *_ in ranks.values():
        mine = [call for call in calls["0"].calls if call.index]
        assert [(call.index, call.operation) for call in mine] == [
            *((1, "all_reduce"), (2, "all_reduce"), (3, "all_reduce")),
            (4, "barrier"),
        ]
        assert (mine[0].dtype, mine[0].shape, mine[0].reduce_op) == ("float32", (5,), "SUM")
        assert "all_reduce(metric)" in LINES[mine[0].site.line - 1]
        assert (calls["0"].backend, calls["0"].group_ranks) == ("paceline", (0, 1))


def test_what_ddp_issues_from_c_is_no_call_of_the_script(ranks):
    for _, calls, *_ in ranks.values():
        # But for the one by which the group became known. What the two ranks send each other is another matter.
        others = [call.operation for call in calls["0"].calls if not call.index]
        assert others in (["all_gather", "send"], ["all_gather", "recv"])


def test_the_table_and_the_exchanges_have_all_in_one_order(ranks):
    for _, _, table, entries in ranks.values():
        world = [entry for entry in entries if entry.group == "0"]
        assert [entry.index for entry in world] == list(range(1, len(world) + 1))
        assert table["0"].enqueued == len(world)
        # That the last one is over is noticed a moment later, and the process has ended by then.
        assert table["0"].completed >= len(world) - 1
        assert table["0"].everybody
        assert [(e.operation, e.shape) for e in world].count(("all_reduce", (72,))) == 3
    one, other = ([(e.group, e.index, e.operation, e.dtype, e.shape) for e in found[3]] for found in ranks.values())
    assert one == other


def test_a_second_group_and_what_two_ranks_send_each_other_have_rows_of_their_own(ranks):
    for _, calls, table, _ in ranks.values():
        others = {name: counters for name, counters in table.items() if name != "0"}
        assert len(others) == 2
        assert all(c.enqueued == 1 for c in others.values())
        assert [call.shape for name in others for call in calls.get(name, ()) and calls[name].calls] == [(3,)]


def test_each_exchange_is_counted_once(ranks):
    for header, _, _, entries in ranks.values():
        # The send or receive is no entry.
        assert header.collective_count == len(entries) + 1


def test_waits_for_our_works_are_timed(ranks):
    for header, *_ in ranks.values():
        assert header.communication_total_ns > 0
