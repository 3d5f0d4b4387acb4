"""The last words of each rank, from complete logs and from streamed ones."""

from paceline.recording.log_tails import log_ends, stderr_tails


def test_the_end_of_each_ranks_stderr(recording):
    made = recording()
    made.log("algo-1", 0, b"x" * 100 + b"\nlast words\n", stream="err")
    made.log("algo-1", 1, b"out is not asked for\n")
    made.log("algo-1", 1, b"other attempt\n", stream="err", attempt=1)
    assert stderr_tails([made.directory], 0, tail_bytes=11) == ({0: "last words\n"}, ())


def test_what_another_host_streamed_counts_where_its_logs_lie_elsewhere(recording):
    made = recording()
    made.log("algo-1", 0, b"here\n", stream="err")
    lines = [
        {"t_ns": place, "attempt": 0, "rank": 1, "stream": stream, "text": f"line {place}\n"}
        for place, stream in enumerate(("stderr", "stdout", "stderr"))
    ]
    made.streamed("algo-1", "algo-2", "logs", *lines)
    tails, complaints = stderr_tails([made.directory], 0)
    assert tails == {0: "here\n", 1: "line 0\nline 2"}
    assert complaints == ()


def test_the_end_of_a_log_knows_when_its_lines_came(recording):
    made = recording()
    made.log("algo-1", 0, b"one\ntwo\nthree\nfour")
    path = made.directory.log_file("algo-1", 0, 0, "out")
    path.with_name(f"{path.name}.idx").write_text("1000 0\n2000 8\n")
    (whole,), _ = log_ends([made.directory], 0, (), most_bytes=100, stream_bytes=100)
    assert (whole.text, whole.line_times) == ("one\ntwo\nthree\nfour", ((0, 1000), (2, 2000)))
    (cut,), _ = log_ends([made.directory], 0, (), most_bytes=100, stream_bytes=12)
    assert (cut.text, cut.left_out_bytes, cut.line_times) == ("three\nfour", 6, ((0, 2000),))
