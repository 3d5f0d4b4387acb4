"""Who called sys.exit, as the wrapper notes it: the script leaves with its own code, whatever its frames hold."""

import inspect
import os
import signal
import sys
from dataclasses import dataclass

import pytest

from paceline.recording.ring import TEXTS
from paceline.worker import exit_code


@pytest.fixture
def leave(monkeypatch):
    """sys.exit as it is in a rank."""

    def exit(status=None, /):
        raise SystemExit(status)

    monkeypatch.setattr(sys, "exit", exit)
    for name in ("cut_short", "left_at", "_meant", "_step_then"):
        monkeypatch.setattr(exit_code, name, getattr(exit_code, name))
    exit_code.watch(lambda: 0)
    return sys.exit


def left_by(call):
    """How the call leaves: its code, and what is noted of it behind the place."""
    with pytest.raises(SystemExit) as left:
        call()
    return left.value.code, exit_code.left_at.partition(" in ")[2]


def on_signal(number, handler):
    """Leave by a handler of this signal."""
    before = signal.signal(number, handler)
    try:
        return left_by(lambda: os.kill(os.getpid(), number))
    finally:
        signal.signal(number, before)


@dataclass
class Trainer:
    """It is equal to another one with the same steps, so it has no hash."""

    steps: int = 1

    def stop(self, number, frame):
        signal.signal(number, signal.SIG_DFL)
        sys.exit(0)


class Proxy:
    """What it stands for is not there yet."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name} of nothing")

    def __call__(self, number, frame):
        sys.exit(0)


@pytest.mark.usefixtures("leave")
@pytest.mark.parametrize(
    "handler",
    [Trainer().stop, Proxy(), lambda *given, steps=2: Trainer(steps).stop(*given)],
    ids=["method", "proxy", "lambda"],
)
def test_a_handler_of_any_kind_leaves_as_without_us(handler):
    code, noted = on_signal(signal.SIGUSR1, handler)
    assert code == 0 and noted.endswith(", the handler of SIGUSR1, by sys.exit(0)")


@pytest.mark.usefixtures("leave")
def test_a_signal_without_a_name_is_called_by_its_number():
    code, noted = on_signal(signal.SIGRTMIN + 1, Trainer().stop)
    assert (code, noted) == (0, f"stop, the handler of signal {signal.SIGRTMIN + 1}, by sys.exit(0)")


def test_of_one_handler_of_several_signals_the_signal_that_came_is_named(leave):
    def stop(number, frame):
        leave(0)

    others = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        assert on_signal(signal.SIGUSR1, stop) == (0, "stop, the handler of SIGUSR1, by sys.exit(0)")
        # The script calls it at its end, too.
        assert left_by(lambda: stop(None, None)) == (0, "stop, by sys.exit(0)")
    finally:
        for number, before in others.items():
            signal.signal(number, before)


def test_a_function_that_looks_at_its_caller_is_no_handler(leave):
    def die(code):
        caller = inspect.currentframe().f_back
        leave(code if caller else 0)

    assert left_by(lambda: die(1)) == (1, "die, by sys.exit(1)")


def test_a_long_path_in_any_script_leaves_room_for_the_call(leave):
    names = {"leave": leave}
    exec(compile("def go(): leave(0)", f"/home/{'实验' * 60}/train.py", "exec"), names)
    left_by(names["go"])
    assert exit_code.left_at.endswith("实验/train.py:1 in go, by sys.exit(0)")
    assert len(exit_code.left_at.encode()) < TEXTS["left_at"][1]
