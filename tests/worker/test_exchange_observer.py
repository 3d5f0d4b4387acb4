"""What comm tells of its exchanges, in the ring: the table, the records, the names. No torch, no second process."""

import os
import threading

import pytest

from paceline.diagnosis.desync.call_records import exchange_counters, exchange_entries
from paceline.parts.comm.instruments.exchanges import ExchangeObserver
from paceline.recording.exchanges import ROWS
from paceline.recording.ring import Cell, Instrument, RecordKind, RingReader, RingWriter, parse_records
from paceline.recording.string_table import StringTable
from paceline.worker.rank_recorder import RankRecorder


class Seen:
    """An observer with a rank of its own, and what an agent reads of it."""

    def __init__(self, directory):
        self.rank = RankRecorder()
        self.rank.ring = RingWriter(directory / "0-1.ring")
        self.rank.ring.cells[Cell.GROUP_COUNT] = 1
        self.observer = ExchangeObserver(self.rank)
        self.reader = RingReader(self.rank.ring.path)
        self.texts = StringTable(self.rank.ring.path.with_suffix(".texts"))

    def counters(self, world_size=2):
        self.texts.update()
        return {c.name: c for c in exchange_counters(self.reader.header().exchanges, self.texts, world_size)}

    def entries(self):
        records, _ = self.reader.drain()
        self.texts.update()
        return exchange_entries(records, self.texts)


@pytest.fixture
def seen(tmp_path):
    seen = Seen(tmp_path)
    yield seen
    seen.reader.close()
    seen.rank.forget()


def test_the_table_says_what_was_entered_and_whether_it_is_over(seen):
    seen.observer.formed("gradients/0", (0, 1), "gloo")
    seen.observer.enqueued("gradients/0", 1, "allreduce", "float32", 7240)
    found = seen.counters()["gradients/0"]
    assert (found.enqueued, found.completed, found.everybody, found.ranks) == (1, 0, True, None)
    assert (found.operation, found.dtype, found.numel) == ("all_reduce", "float32", 7240)
    seen.observer.completed("gradients/0", 1)
    assert seen.counters()["gradients/0"].completed == 1


def test_of_several_under_way_the_oldest_is_shown(seen):
    for seq, numel in enumerate((100, 200, 300), start=1):
        seen.observer.enqueued("0", seq, "allreduce", "float32", numel)
    for ended, shown in ((None, 100), (2, 100), (1, 300), (3, 300)):
        seen.observer.completed("0", ended)
        assert seen.counters()["0"].numel == shown


def test_a_group_of_some_ranks_is_shown_with_them(seen):
    seen.observer.formed("3/lane", (1, 3))
    seen.observer.enqueued("3/lane", 1, "broadcast", "int64", 1)
    assert seen.counters(world_size=4)["3/lane"].ranks == (1, 3)


def test_who_is_in_a_group_may_be_told_late(seen):
    seen.observer.enqueued("lane", 1, "allreduce", "float32", 1)
    found = seen.counters()["lane"]
    assert (found.ranks, found.everybody) == (None, False)
    seen.observer.formed("lane", (0, 1))
    assert seen.counters()["lane"].everybody


def test_of_exchanges_that_end_in_another_order_the_oldest_counts(seen):
    for seq in (1, 2, 3):
        seen.observer.enqueued("0", seq, "allreduce", "float32", 4)
    for ended, over in ((3, 0), (1, 1), (1, 1), (2, 3)):
        seen.observer.completed("0", ended)
        assert seen.counters()["0"].completed == over


def test_each_exchange_is_a_record_with_its_moment(seen):
    seen.observer.enqueued("0", 1, "allreduce", "bfloat16", 2**40)
    seen.observer.enqueued("0", 2, "_allgather_base", "float32", 8)
    first, second = seen.entries()
    assert (first.group, first.index, first.operation, first.dtype, first.shape) == (
        *("0", 1, "all_reduce"),
        *("bfloat16", (2**40,)),
    )
    assert (second.index, second.operation) == (2, "all_gather_into_tensor")
    assert 0 < first.created_ns <= second.created_ns


def test_what_is_not_known_is_said_to_be_unknown(seen):
    seen.observer.enqueued("0", 1, "shuffle", "float7", 3)
    found = seen.counters()["0"]
    assert (found.operation, found.dtype, found.numel) == (None, None, 3)
    assert seen.entries()[0].operation == "unknown"


def test_more_groups_than_rows_keep_the_newest(seen):
    for number in range(ROWS + 5):
        seen.observer.enqueued(f"lane{number}", 1, "allreduce", "float32", 1)
    assert set(seen.counters()) == {f"lane{number}" for number in range(5, ROWS + 5)}
    # One that lost its row gets another one, at the count it has by then.
    seen.observer.completed("lane0", 1)
    seen.observer.enqueued("lane0", 700, "allreduce", "float32", 1)
    found = seen.counters()["lane0"]
    assert (found.enqueued, found.completed) == (700, 699)


def test_a_group_that_is_formed_anew_begins_anew(seen):
    seen.observer.enqueued("0", 1, "allreduce", "float32", 1)
    seen.observer.enqueued("0", 2, "allreduce", "float32", 1)
    seen.rank.ring.cells[Cell.GROUP_COUNT] = 2
    seen.observer.enqueued("0", 1, "allreduce", "float32", 1)
    found = seen.counters()
    assert set(found) == {"0 of initialisation 2"}
    assert (found["0 of initialisation 2"].enqueued, found["0 of initialisation 2"].completed) == (1, 0)


def test_many_threads_leave_no_exchange_under_way(seen):
    def exchange(group):
        for seq in range(1, 400):
            seen.observer.enqueued(group, seq, "allreduce", "float32", 1)
            ended.append((group, seq))

    def end():
        while not (done.is_set() and not ended):
            if ended:
                seen.observer.completed(*ended.pop())

    ended, done = [], threading.Event()
    threads = [threading.Thread(target=exchange, args=(f"lane{n}",)) for n in range(3)]
    enders = [threading.Thread(target=end) for _ in range(2)]
    for thread in (*threads, *enders):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    for thread in enders:
        thread.join()
    assert [(c.enqueued, c.completed) for c in seen.counters().values()] == [(399, 399)] * 3
    kinds = {record.kind for record in parse_records(seen.reader.drain()[0])}
    assert kinds == {RecordKind.EXCHANGE}


def test_exchanges_are_counted_here_and_sends_where_they_are_issued(seen):
    seen.observer.enqueued("lane", 1, "allreduce", "float32", 10)
    seen.observer.enqueued("0/0-1", 1, "send", "float32", 10)
    assert (seen.rank.collective_count, seen.rank.collective_bytes) == (1, 40)


def test_without_a_ring_nothing_is_kept_and_nothing_fails():
    observer = ExchangeObserver(RankRecorder())
    observer.formed("0", (0, 1))
    observer.enqueued("0", 1, "allreduce", "float32", 1)
    observer.completed("0", 1)


def test_what_goes_wrong_drops_the_observer_and_is_said_once(seen):
    seen.observer.enqueued("0", 1, "allreduce", "float32", "many")
    seen.observer.enqueued("0", 2, "allreduce", "float32", "many")
    header = seen.reader.header()
    assert header.dropped_instruments == Instrument.EXCHANGES
    assert header.failure.startswith("EXCHANGES: TypeError") and header.failure.count("EXCHANGES") == 1


def test_a_forked_child_says_nothing_of_its_parents_exchanges(seen):
    seen.observer.enqueued("0", 1, "allreduce", "float32", 1)
    child = os.fork()
    if child == 0:
        seen.rank.forget()
        seen.observer.completed("0", 1)
        seen.observer.enqueued("0", 2, "allreduce", "float32", 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert seen.counters()["0"].enqueued == 1
