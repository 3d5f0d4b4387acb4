"""Logs are found and read on from where they were left."""

import pytest

from paceline.recording.clocks import HostClocks
from paceline.recording.logs import LogChoice, LogFile, LogName, chosen_lines, log_files, streamed_logs

SECOND = 1_000_000_000


@pytest.fixture
def made(recording):
    return recording()


def test_logs_come_in_the_order_of_a_run(made):
    for host, rank, stream, attempt in (
        ("algo-10", 9, "out", 0),
        ("algo-2", 10, "out", 0),
        ("algo-2", 1, "err", 1),
        ("algo-2", 1, "err", 0),
        ("algo-2", 1, "out", 0),
    ):
        made.log(host, rank, b"x\n", stream=stream, attempt=attempt)
    names = [
        (file.name.attempt, file.name.rank, file.name.host, file.name.stream)
        for file in log_files((made.directory,), LogChoice())
    ]
    assert names == [
        (0, 1, "algo-2", "out"),
        (0, 1, "algo-2", "err"),
        (0, 9, "algo-10", "out"),
        (0, 10, "algo-2", "out"),
        (1, 1, "algo-2", "err"),
    ]


def test_only_what_was_chosen_is_found(made):
    for rank in range(4):
        made.log("algo-1", rank, b"x\n")
    made.log("algo-2", 1, b"x\n", stream="err")
    chosen = log_files((made.directory,), LogChoice(ranks=frozenset({1, 3}), host="algo-1"))
    assert [file.name.rank for file in chosen] == [1, 3]


def test_files_beside_the_logs_are_not_logs(made):
    path = made.log("algo-1", 0, b"x\n")
    path.with_name("rank_0.out.idx").write_text("1 0\n")
    path.with_name("rank_0.seg").write_text("")
    assert len(log_files((made.directory,), LogChoice())) == 1


def test_a_log_is_read_on_in_whole_lines(made):
    path = made.log("algo-1", 0, b"one\ntw")
    file = LogFile(LogName(0, 0, "algo-1", "out"), path)
    assert list(file.lines()) == [b"one"]
    with path.open("ab") as more:
        more.write(b"o\nthree")
    assert list(file.lines()) == [b"two"]
    assert file.rest() == b"three"
    assert file.rest() == b""


def test_a_line_longer_than_one_read_is_one_line(made):
    long = b"0123456789\r" * 200_000
    path = made.log("algo-1", 0, long + b"\nb\n")
    assert list(LogFile(LogName(0, 0, "algo-1", "out"), path).lines()) == [long, b"b"]


@pytest.mark.parametrize(
    ("since_seconds", "first"),
    [(0, b"a1"), (10.5, b"a1"), (11, b"b1"), (20.9, b"b1"), (21, None)],
)
def test_since_starts_at_the_first_line_that_may_have_come_then(made, since_seconds, first):
    path = made.log("algo-1", 0, b"a1\na2\nb1\nb2\n")
    path.with_name("rank_0.out.idx").write_text(f"{10 * SECOND} 0\n{20 * SECOND} 7\n")
    file = LogFile(LogName(0, 0, "algo-1", "out"), path)
    assert file.skip_to(int(since_seconds * SECOND))
    assert next(file.lines(), None) == first


def test_without_an_index_since_is_not_judged(made):
    path = made.log("algo-1", 0, b"a\n")
    assert not LogFile(LogName(0, 0, "algo-1", "out"), path).skip_to(1)


def test_with_an_index_that_cannot_be_read_all_lines_are_shown(made):
    path = made.log("algo-1", 0, b"a\n")
    path.with_name("rank_0.out.idx").mkdir()
    file = LogFile(LogName(0, 0, "algo-1", "out"), path)
    assert not file.skip_to(1)
    assert list(file.stamped_lines()) == [(None, b"a")]


def test_stamps_are_read_on_with_the_log(made):
    path = made.log("algo-1", 0, b"a1\n")
    index = path.with_name("rank_0.out.idx")
    index.write_text(f"{10 * SECOND} 0\n2")
    file = LogFile(LogName(0, 0, "algo-1", "out"), path)
    assert list(file.stamped_lines()) == [(10 * SECOND, b"a1")]
    with path.open("ab") as more, index.open("a") as more_stamps:
        more.write(b"b1\nb2")
        more_stamps.write(f"{20 * SECOND} 3\n"[1:])
    assert list(file.stamped_lines()) == [(20 * SECOND, b"b1")]
    assert file.stamped_rest() == (20 * SECOND, b"b2")


def test_the_last_lines_are_those_of_each_log_also_where_they_were_streamed(made):
    made.log("algo-1", 0, b"1\n2\n3")
    records = [{"t_ns": 5, "attempt": 0, "rank": rank, "stream": "out", "text": "x\ny\n"} for rank in (2, 3)]
    made.streamed("algo-1", "algo-2", "logs", *records)
    found = [(name.rank, text) for name, _, text in chosen_lines((made.directory,), LogChoice(), tail=1)]
    assert found == [(0, b"3"), (2, b"y"), (3, b"y")]


def test_a_log_that_cannot_be_read_says_why(made):
    path = made.log("algo-1", 0, b"x\n")
    path.unlink()
    path.mkdir()
    file = LogFile(LogName(0, 0, "algo-1", "out"), path)
    assert (list(file.lines()), file.unread) == ([], "not an ordinary file")


def test_times_of_a_host_whose_clock_is_ahead_are_put_right(made):
    made.log("algo-1", 0, b"a\nb\n")
    made.log("algo-2", 1, b"a\nb\n")
    for host, rank, ahead in (("algo-1", 0, 0), ("algo-2", 1, 90 * SECOND)):
        index = made.path / f"hosts/{host}/attempt_0/rank_{rank}.out.idx"
        index.write_text(f"{ahead + 100 * SECOND} 0\n{ahead + 200 * SECOND} 2\n")
    made.streamed(
        "algo-1", "algo-3", "logs", {"t_ns": 7 * SECOND, "attempt": 0, "rank": 2, "stream": "out", "text": "c"}
    )
    clocks = HostClocks(
        {"event": "clock", "host": host, "t_ns": 1, "offset_ns": offset * SECOND, "error_ns": 5}
        for host, offset in (("algo-2", 90), ("algo-3", -3))
    )
    times = [
        [time_ns for time_ns, _ in file.stamped_lines()] for file in log_files((made.directory,), LogChoice(), clocks)
    ]
    assert times == [[100 * SECOND, 200 * SECOND]] * 2
    (stream,) = streamed_logs((made.directory,), LogChoice(), clocks)
    assert [time_ns for _, time_ns, _ in stream.lines()] == [10 * SECOND]
    late = log_files((made.directory,), LogChoice(host="algo-2"), clocks)[0]
    assert late.skip_to(150 * SECOND) and [text for _, text in late.stamped_lines()] == [b"b"]


def test_what_another_host_streamed_is_read_unless_its_own_logs_are_here(made):
    record = {"t_ns": 5, "attempt": 0, "rank": 2, "stream": "out", "text": "hello\nworld\n"}
    made.streamed("algo-1", "algo-2", "logs", record, {"t_ns": 6})
    (stream,) = streamed_logs((made.directory,), LogChoice())
    name = LogName(0, 2, "algo-2", "out")
    assert list(stream.lines()) == [(name, 5, b"hello"), (name, 5, b"world")]
    assert stream.unread_lines == 1
    assert list(stream.lines()) == []
    made.log("algo-2", 2, b"hello\n")
    assert streamed_logs((made.directory,), LogChoice()) == []
