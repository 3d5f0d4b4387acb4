"""The first failing rank comes first, in at most three lines."""

from paceline.facts import RankError, RankExit
from paceline.views.headline import headline

OUT_OF_MEMORY = RankError(
    type="RuntimeError",
    message="CUDA out of memory. Tried to allocate 2.50 GiB\nSee documentation",
    time_ns=1,
    file="train.py",
    line=88,
    function="step",
    source="    loss = model(x).loss\n",
)


def exit_of(rank, code=1, *, host="algo-1", **fields):
    return RankExit(host=host, rank=rank, attempt=0, code=code, time_ns=1, **fields)


def test_an_exception_is_named_with_the_users_own_line():
    assert headline([exit_of(1, error=OUT_OF_MEMORY)]) == (
        "rank 1 on algo-1 raised RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB\n"
        "  train.py:88 in step\n"
        "    loss = model(x).loss"
    )


def test_ranks_that_fell_because_of_it_are_listed_as_such():
    closed = RankError(type="RuntimeError", message="Connection closed by peer", time_ns=2)
    exits = [
        exit_of(1, error=OUT_OF_MEMORY),
        exit_of(0, -15, signalled_by_us=True),
        exit_of(2, -15, signalled_by_us=True),
        exit_of(3, error=closed),
    ]
    assert headline(exits).splitlines()[3:] == [
        "  others  not causes: 2 ranks (0,2) stopped by paceline with SIGTERM; 1 rank (3) raised RuntimeError after it"
    ]


def test_a_signal_is_named_with_what_is_known_of_its_sender():
    assert headline([exit_of(0, -9, note="the kernel's out-of-memory killer of cgroup /job")]) == (
        "rank 0 on algo-1 was ended by SIGKILL\n  the kernel's out-of-memory killer of cgroup /job"
    )


def test_a_bare_exit_code_is_all_there_may_be():
    assert headline([exit_of(4, 3, host="algo-2")]) == "rank 4 on algo-2 ended with code 3"


def test_code_at_module_level_has_no_function_to_name():
    error = RankError(type="SyntaxError", message="", time_ns=1, file="train.py", line=3, function="<module>")
    assert headline([exit_of(0, error=error)]) == "rank 0 on algo-1 raised SyntaxError\n  train.py:3"


def test_a_python_without_torch_is_told_how_to_install_it_in_place_of_the_import():
    error = RankError(
        type="ModuleNotFoundError",
        message="No module named 'torch'",
        time_ns=1,
        file="train.py",
        line=3,
        source="import torch",
        python="/srv/my envs/bin/python",
    )
    assert headline([exit_of(0, error=error)]).splitlines()[1:] == [
        "  train.py:3",
        "  this Python has no torch: '/srv/my envs/bin/python' -m pip install torch",
    ]


def test_a_run_without_a_failure_has_no_headline():
    assert headline([exit_of(0, 0)]) == ""


def test_the_first_rank_never_takes_more_than_three_lines_of_the_width():
    error = RankError(
        type="ValueError", message="x" * 500 + "\ny", time_ns=1, file="a" * 300, line=1, function="f", source="z" * 300
    )
    lines = headline([exit_of(0, error=error)], width=80).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
