"""Which loop of a script is the head of the training, whatever the loops are and whatever way they end."""

import builtins
import sys
from types import SimpleNamespace

import pytest
import torch  # noqa: F401 - random numbers of torch are noted where a loop begins

from paceline.parts.resume.loops_in_source import AGAIN, CALL, WHILE
from paceline.parts.resume.worker.insert import transform
from paceline.parts.resume.worker.loops import RunningLoops


class WatchedLoops:
    """Stands for the session of a rank: it notes the line of the head of the training and where its loops are, for each step of the script.

    `ahead`: where the loops are that must be reached again.
    """

    def __init__(self, ahead=()):
        self.loops = RunningLoops(self)
        self.loops.ahead = list(ahead)
        self.loaders = SimpleNamespace(passing=False)
        self.stepped = self.batch_is_due = False
        self.head_is_loop = True
        self.heads, self.places, self.put_back_at = [], [], None

    def before_item(self, loop, frame):
        if self.loops.is_head(loop, frame):
            self.stepped = False
            self.heads.append(loop.place[2])
            self.places.append([one.cursor() for one in self.loops.around(frame)])

    def has_other_ranks(self):
        return False

    def put_back(self, frame):
        self.put_back_at = frame.f_code.co_name

    def step(self):
        if not self.stepped or not self.loops.is_noted:
            self.stepped = True
            self.loops.step_made(sys._getframe(1))


@pytest.fixture
def run(monkeypatch):
    """Runs a script with followed loops. Returns what was noted of them, and the script's variables."""

    def run(text, ahead=()):
        watched = WatchedLoops(ahead)
        calls = {
            CALL: lambda line, source: watched.loops.follow(line, source, sys._getframe(1)),
            WHILE: lambda line, last_line: watched.loops.come_to_while(line, last_line, sys._getframe(1)),
            AGAIN: lambda line: watched.loops.go_on_in_while(line, sys._getframe(1)) or True,
        }
        for name, call in calls.items():
            monkeypatch.setattr(builtins, name, call, raising=False)
        variables = {"step": watched.step}
        exec(transform(text, "train.py"), variables)
        return watched, variables

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
        ("def items():\n    for x in 1, 2, 3:\n        yield str(x)\nfor x in items():\n    step()", [4, 4, 4]),
        # A generator trains, and what it gives is only looked at.
        ("def train():\n    for x in 1, 2:\n        step()\n        yield x\nfor x in train():\n    str(x)", [2, 2]),
        ("def items():\n    n = 0\n    while n < 3:\n        yield str(n)\n        n += 1\nfor x in items():\n    step()", [6, 6, 6]),
    ],
)  # fmt: skip
def test_the_head_is_the_outermost_loop_that_makes_steps_itself(run, text, heads):
    assert run(text)[0].heads == heads


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("source", ["train()", "enumerate(train(), 5)", "(str(x) for x in train())"])
def test_a_generator_that_trains_goes_on_behind_the_items_that_were_taken(run, source, steps):
    text = f"""
seen = []
def train():
    for x in range(4):
        step()
        yield 10 * x
for item in {source}:
    seen.append(item)
"""
    whole, variables = run(text)
    assert (len(variables["seen"]), len(whole.places)) == (4, 4)
    rest, again = run(text, whole.places[steps - 1])
    assert rest.put_back_at == "train"
    assert again["seen"] == variables["seen"][steps:]


@pytest.mark.parametrize(("start", "taken", "numbers"), [(7, 2, [9, 10]), (0, 1, [1, 2, 3])])
def test_an_enumerate_goes_on_with_the_numbers_that_it_had(start, taken, numbers):
    def followed(watched, first, most):
        met = []
        for number, _ in watched.loops.follow(1, enumerate("abcd", first), sys._getframe()):
            met.append(number)
            watched.step()
            if len(met) == most:
                return met, [loop.cursor() for loop in watched.loops.running]
        return met, []

    _, cursors = followed(WatchedLoops(), start, taken)
    # What it begins with is a variable that is put back later.
    assert followed(WatchedLoops(cursors), 100, 9)[0] == numbers
