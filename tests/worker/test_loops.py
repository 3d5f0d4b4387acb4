"""In which loops the steps are made, asked from the frames of a small training."""

import contextlib
import sys
import threading

import pytest

from paceline.worker.loops import Loops


@pytest.fixture
def script():
    """`step` and `call` for a script to use; `call` notes under a name what `is_outside` says of where it is called from."""
    loops, said = Loops(), {}

    def step():
        loops.step_made_at(sys._getframe())

    def call(name):
        said.setdefault(name, loops.is_outside(sys._getframe()))

    return step, call, said


def alone(main):
    """Run it on a stack of its own: pytest's has loops, and a training within these would never leave its loop."""
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()


def train(step, call):
    call("before")
    for _ in range(2):
        for batch in range(3):
            with contextlib.nullcontext():
                if batch == 2:
                    continue
                step()
                call("in the loop")
            try:
                call("in a try")
                raise ValueError
            except ValueError:
                call("in a handler")
                continue
        call("at the end of an epoch")
    call("behind the loop")


def test_a_call_behind_the_loop_of_the_steps_is_told_from_one_within(script):
    step, call, said = script

    def main():
        train(step, call)
        call("behind the function")

    alone(main)
    assert said == {
        "before": None,
        "in the loop": False,
        "in a try": False,
        "in a handler": None,
        "at the end of an epoch": False,
        "behind the loop": True,
        "behind the function": True,
    }


def test_a_while_loop_and_steps_in_a_function_of_their_own(script):
    step, call, said = script

    def one_epoch():
        left = 3
        while left:
            step()
            left -= 1

    def main():
        for _ in range(2):
            one_epoch()
            call("at the end of an epoch")
        call("behind the loop")

    alone(main)
    assert said == {"at the end of an epoch": False, "behind the loop": True}


def test_what_a_generator_calls_behind_the_loop_is_behind_it(script):
    step, call, said = script

    def within(name):
        for _ in range(1):
            call(name)
            yield

    def main():
        for _ in range(2):
            step()
            list(within("in the loop"))
        list(within("behind the loop"))
        any(call("in an expression") for _ in range(1))

    alone(main)
    assert said == {"in the loop": False, "behind the loop": True, "in an expression": True}


def test_where_the_steps_of_another_thread_are_is_not_known(script):
    step, call, said = script

    def main():
        for _ in range(2):
            step()
            saver = threading.Thread(target=call, args=("while it saves",))
            saver.start()
            saver.join()

    alone(main)
    assert said == {"while it saves": None}


def test_steps_outside_of_any_loop_leave_it_unknown(script):
    step, call, said = script

    def main():
        step()
        call("behind it")

    alone(main)
    assert said == {"behind it": None}
