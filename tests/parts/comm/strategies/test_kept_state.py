"""What a strategy keeps between two steps, taken from one process and given to another: the averages go on bitwise as they were."""

import marshal

import pytest
import torch

from paceline.parts.comm.ddp.hook import HookState
from paceline.parts.comm.strategies.flat_buffer import FlatBuffer
from paceline.parts.comm.strategies.strategy import StrategyRunner, parse

SHAPES = (torch.Size([40, 60]), torch.Size([20]), torch.Size([30, 50]))
NUMEL = sum(shape.numel() for shape in SHAPES)
NAMES = ("int8", "powersgd", "powersgd:rank=2")


def gradients(step, bucket):
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(100 * step + bucket))


def averaged(runner, step):
    """The buckets of a step, as one rank sends and reads them: what is lost on the way is kept for the next step."""
    found = []
    for bucket in range(2):
        flat = gradients(step, bucket)
        if runner.powersgd is not None:
            runner.powersgd.average(FlatBuffer(flat, SHAPES, bucket), lambda part: None)
        else:
            error = runner.errors.of((bucket, "direct"), NUMEL)
            flat = runner.codec.read(runner.codec.write(flat, error), NUMEL, flat.dtype)
        found.append(flat)
    return found


def copied(state):
    """As a new process gets it: keys are written and read, tensors have other memory."""
    return {marshal.loads(marshal.dumps(key)): tensor.clone() for key, tensor in state.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_runner_with_the_state_of_another_one_averages_bitwise_as_that_one(name):
    one, other, new = (StrategyRunner(parse(name)) for _ in range(3))
    for step in range(3):
        averaged(one, step)
    assert one.keeps_state and one.state_dict()
    other.load_state_dict(copied(one.state_dict()))
    for step in range(3, 6):
        expected = averaged(one, step)
        assert all(map(torch.equal, averaged(other, step), expected))
        assert not all(map(torch.equal, averaged(new, step), expected))


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_was_loaded_is_still_there_if_it_is_taken_before_the_next_step(name):
    one, other = (StrategyRunner(parse(name)) for _ in range(2))
    averaged(one, 0)
    other.load_state_dict(one.state_dict())
    taken = other.state_dict()
    assert taken.keys() == one.state_dict().keys()
    assert all(taken[key] is tensor for key, tensor in one.state_dict().items())


@pytest.mark.parametrize("name", ["ring", "direct", "direct+bf16", "hierarchical", "parameter_server"])
def test_what_keeps_nothing_has_an_empty_state(name):
    assert StrategyRunner(parse(name)).state_dict() == {}


def test_the_state_of_another_strategy_is_refused():
    state = HookState.__new__(HookState)
    state.strategy = parse("direct")
    with pytest.raises(ValueError, match="exchanged by int8, and are by direct now"):
        state.load_state_dict({"strategy": "int8", "tensors": {}})
