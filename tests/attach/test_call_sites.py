"""Whether a recorded call is outside of the training loop, by the source."""

import pytest

from paceline.attach.call_sites import loops_in, with_loops
from paceline.diagnosis.case import Site
from paceline.diagnosis.flight_recorder import TraceEntry

SOURCE = b"""\
def step(batch):
    exchange(batch)

for epoch in range(3):
    for batch in epoch:
        step(batch)
    while more():
        evaluate()
barrier()
"""


def loops_of(file):
    return loops_in(file, SOURCE) if file == "/t.py" else None


def entries(*places):
    """Entries of calls at these lines of t.py, innermost first."""
    sites = [
        Site(file="/t.py", line=lines[0], callers=tuple(f"/t.py:{line}" for line in lines[1:])) for lines in places
    ]
    return [
        TraceEntry(group="0", index=number + 1, operation="allreduce", site=site) for number, site in enumerate(sites)
    ]


def outside(found):
    return [entry.site.outside_loop for entry in found]


def test_a_loop_reaches_from_its_header_to_its_last_line():
    assert loops_of("/t.py") == (("/t.py", 4, 8), ("/t.py", 5, 6), ("/t.py", 7, 8))


@pytest.mark.parametrize("source", [b"for x in", b"\0", b"\xff\xfe", b"(" * 100_000])
def test_what_is_no_python_has_no_loops_that_are_known(source):
    assert loops_in("t.py", source) is None


def test_a_call_behind_the_loop_of_most_calls_is_outside_and_one_in_it_is_not():
    assert outside(with_loops(entries(*[(2, 6)] * 5, (9,)), loops_of)) == [False] * 5 + [True]


def test_a_call_in_another_loop_of_the_same_epoch_is_not_outside():
    assert outside(with_loops(entries(*[(2, 6)] * 5, (8,)), loops_of))[-1] is False


def test_without_calls_from_one_place_no_loop_is_that_of_the_training():
    assert outside(with_loops(entries((2, 6), (2, 6), (9,)), loops_of)) == [None] * 3


def test_a_source_that_is_not_there_says_nothing():
    calls = entries(*[(2, 6)] * 5, (9,))
    unread = [TraceEntry(group="0", index=7, operation="barrier", site=Site(file="/gone.py", line=1))]
    assert outside(with_loops([*calls, *unread], loops_of))[-1] is None
    assert outside(with_loops(calls, lambda file: None)) == [None] * 6


def test_calls_without_a_line_stay_as_they_are():
    bare = [TraceEntry(group="0", index=1, operation="allreduce")]
    assert with_loops(bare, loops_of) == tuple(bare)
