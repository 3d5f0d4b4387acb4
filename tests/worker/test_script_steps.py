"""`paceline.step()`: the steps of a loop that a script counts itself."""

import builtins
import sys

import pytest

import paceline
from paceline.recording.ring import Basis, Instrument

PLAIN = """
import sys
import paceline
assert not {"torch", "numpy", "msgspec"} & set(sys.modules)
for _ in range(7):
    paceline.step()
assert "torch" not in sys.modules
"""
BOTH = """
import torch, paceline
first = sys.argv[1] == "first"
m = torch.nn.Linear(1, 1)
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(9):
    first and paceline.step()
    m(torch.ones(1)).sum().backward(); o.step()
    first or paceline.step()
for _ in range(4):
    paceline.step()
"""


def test_outside_of_a_job_a_step_does_nothing():
    assert not hasattr(builtins, "__paceline_step__")
    assert paceline.step() is None


@pytest.mark.process
def test_calls_are_counted_exactly(workplace, written):
    (left,) = workplace.run(sys.executable, written(PLAIN))
    assert (left.code, left.err) == (0, "")
    ((header, steps),) = workplace.rings
    assert header.step_count == 7 and steps[-1].values[0] == header.step_count
    assert header.communication_basis == Basis.STEPS_BY_SCRIPT and Instrument.DATA in header.missing
    assert (header.exiting, header.failure) == (True, "")


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize("place", ["first", "last"])
def test_calls_beside_an_optimizer_make_no_step_twice(workplace, written, place):
    (left,) = workplace.run(sys.executable, written("import sys" + BOTH), place)
    assert (left.code, left.err) == (0, "")
    ((header, _),) = workplace.rings
    assert (header.step_count, header.dropped_instruments, header.failure) == (13, Instrument(0), "")
    # Where the optimizer came first, the call hides nothing of what is seen of torch.
    assert (Instrument.DATA in header.missing) == (place == "first")


@pytest.mark.process
def test_a_strategy_of_gradients_that_has_nothing_to_do_is_said(workplace, written):
    (left,) = workplace.run(sys.executable, written("import paceline\npaceline.step()\n"), PACELINE_GRADIENTS="ring")
    assert (left.code, left.err) == (0, "")
    (texts,) = (workplace.directory / "rings").glob("*.texts")
    assert "--gradients ring has nothing to do: strategies exchange gradients of torch" in texts.read_text()


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize("off", ["steps", "script_steps", "all"])
def test_turned_off_nothing_is_counted(workplace, written, off):
    (left,) = workplace.run(
        sys.executable, written("import paceline\npaceline.step()\npaceline.step()\n"), PACELINE_OFF=off
    )
    assert (left.code, left.out, left.err) == (0, "", "")
    assert workplace.rings == []
