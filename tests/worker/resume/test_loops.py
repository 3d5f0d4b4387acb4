"""Which loop of a script is the head of the training, whatever the loops are and whatever way they end."""

import builtins
import sys
import types

import pytest
import torch  # noqa: F401 - random numbers of torch are noted where a loop begins

from paceline.loops_in_source import AGAIN, CALL, WHILE
from paceline.worker.resume.insert import transform
from paceline.worker.resume.loops import RunningLoops


class WatchedLoops:
    """Stands for the session of a rank: it notes the line of the head of the training, for each step of the script."""

    def __init__(self):
        self.loops = RunningLoops(self)
        self.stepped = self.batch_is_due = self.head_is_loop = False
        self.heads = []

    def before_item(self, loop, frame):
        if self.loops.is_head(loop, frame):
            self.stepped = False
            self.heads.append(loop.place[2])

    def step(self):
        if not self.stepped or not self.loops.is_noted:
            self.stepped = True
            self.loops.step_made(sys._getframe(1))


@pytest.fixture
def heads_of(monkeypatch):
    """Runs a script, and gives the lines of its heads in the order in which they came."""

    def run(text):
        watched = WatchedLoops()
        calls = {
            CALL: lambda line, source: watched.loops.follow(line, source, sys._getframe(1)),
            WHILE: lambda line, last_line: watched.loops.come_to_while(line, last_line, sys._getframe(1)),
            AGAIN: lambda line: watched.loops.go_on_in_while(line, sys._getframe(1)) or True,
        }
        for name, call in calls.items():
            monkeypatch.setattr(builtins, name, call, raising=False)
        exec(transform(text, "train.py"), {"step": watched.step})
        return watched.heads

    return run


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("for x in range(3):\n    step()", [1, 1, 1]),
        ("n = 0\nwhile n < 3:\n    step()\n    n += 1", [2, 2, 2]),
        ("n = 0\nwhile True:\n    step()\n    n += 1\n    if n == 3: break", [2, 2]),
        # The epochs of a `while` around batches, and the other way round.
        ("n = 0\nwhile n < 2:\n    n += 1\n    for x in 1, 2:\n        step()", [4] * 4),
        ("for e in 1, 2:\n    n = 0\n    while n < 2:\n        step()\n        n += 1", [3] * 4),
        # Two optimizers: the steps of the inner loop are parts of a step of the outer one.
        ("for x in 1, 2:\n    step()\n    for y in 1, 2:\n        step()", [1, 1]),
        # A loop was left by a break, a return or an exception, and another one trains.
        ("for x in 1, 2:\n    step()\n    break\nfor y in 1, 2:\n    step()", [4, 4]),
        ("while True:\n    step()\n    break\nwhile step() or len('a') == 2:\n    pass\nfor y in 1, 2:\n    step()", [6, 6]),
        ("def f():\n    while True:\n        step()\n        return\nf()\nn = 0\nwhile n < 2:\n    step()\n    n += 1", [7, 7]),
        # This function steps behind its loop as well: from then on, the loop around it is the head.
        (
            "def f():\n    n = 0\n    while n < 2:\n        step()\n        n += 1\n    else:\n        raise KeyError(step())\n"
            "for x in 1, 2:\n    try:\n        f()\n    except KeyError:\n        str()",
            [3, 3, 8, 8],
        ),
        # Evaluation between the steps has loops without one.
        ("n = 0\nwhile n < 4:\n    step()\n    n += 1\n    m = 0\n    while m < 2:\n        m += len('a')", [2] * 4),
        ("def items():\n    n = 0\n    while n < 3:\n        yield str(n)\n        n += 1\nfor x in items():\n    step()", [6, 6, 6]),
    ],
)  # fmt: skip
def test_the_head_is_the_outermost_loop_that_makes_steps_itself(heads_of, text, heads):
    assert heads_of(text) == heads


class ResumedLoops(WatchedLoops):
    """A session that has a state to put back."""

    loaders = types.SimpleNamespace(passing=False)

    def __init__(self):
        super().__init__()
        self.head_is_loop = True

    def has_other_ranks(self):
        return False

    def put_back(self, frame):
        self.stepped = False


@pytest.mark.parametrize(("start", "taken", "numbers"), [(7, 2, [9, 10]), (0, 1, [1, 2, 3])])
def test_an_enumerate_goes_on_with_the_numbers_that_it_had(start, taken, numbers):
    def run(watched, first, most):
        met = []
        for number, _ in watched.loops.follow(1, enumerate("abcd", first), sys._getframe()):
            met.append(number)
            watched.step()
            if len(met) == most:
                return met, [loop.cursor() for loop in watched.loops.running]
        return met, []

    _, cursors = run(WatchedLoops(), start, taken)
    resumed = ResumedLoops()
    resumed.loops.ahead = cursors
    # What it begins with is a variable that is put back later.
    assert run(resumed, 100, 9)[0] == numbers
