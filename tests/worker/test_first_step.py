"""The mark where the first step begins: torch's functions are replaced until their first call and are torch's own again."""

import sys
import types

import pytest

from paceline.recording.ring import RecordKind
from paceline.worker.instruments.steps import at_first_call


class Rank:
    def __init__(self):
        self.dropped = []

    def drop(self, instrument, error):
        self.dropped.append(error)


def passes(value):
    """Goes backward."""
    return value + 1


def test_a_watched_function_is_itself_again_after_its_first_call():
    owner, marks = types.SimpleNamespace(passes=passes), []
    at_first_call(owner, "passes", Rank(), lambda: marks.append(1))
    assert owner.passes is not passes and owner.passes.__doc__ == passes.__doc__
    assert owner.passes(1) == 2 and owner.passes is passes
    assert owner.passes(2) == 3 and marks == [1]


def test_a_function_that_the_script_replaced_meanwhile_stays_the_scripts():
    owner, marks = types.SimpleNamespace(passes=passes), []
    at_first_call(owner, "passes", Rank(), lambda: marks.append(1))
    ours = owner.passes
    theirs = owner.passes = lambda value: ours(value) * 10
    assert owner.passes(1) == 20 and owner.passes is theirs and marks


def test_a_mark_that_fails_is_noted_and_the_pass_goes_on():
    owner, rank = types.SimpleNamespace(passes=passes), Rank()
    at_first_call(owner, "passes", rank, lambda: 1 / 0)
    assert owner.passes(1) == 2 and isinstance(rank.dropped[0], ZeroDivisionError)


def test_a_torch_without_the_function_is_left_as_it_is():
    owner = types.SimpleNamespace()
    at_first_call(owner, "passes", Rank(), lambda: None)
    assert vars(owner) == {}


BUILDS_LONG = """
import sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
backward = torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad
time.sleep(1.5)
model = torch.nn.Linear(4, 4)
wrap = sys.argv[1]
if wrap == "ddp":
    model = DistributedDataParallel(model)
elif wrap == "fsdp2":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
elif wrap == "compiled":
    model = torch.compile(model, backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
time.sleep(1.5)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
assert backward == (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward
dist.destroy_process_group()
"""


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize("wrap", [pytest.param("plain", marks=pytest.mark.wide), "ddp", "fsdp2", "compiled"])
def test_what_a_script_does_before_its_first_pass_counts_as_no_step(workplace, written, wrap):
    (left,) = workplace.run(sys.executable, written(BUILDS_LONG), wrap)
    assert left.code == 0, left.err
    ((header, records),) = workplace.rings
    durations = [record.values[2] for record in records if record.kind == RecordKind.STEP]
    assert header.step_count == 3 and header.failure == ""
    assert sum(durations) == header.step_total_ns < header.last_step_ns - header.start_ns - 2.9e9
