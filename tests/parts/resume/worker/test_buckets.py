"""When the state of a DDP model may be kept: not between its first backward pass and its second division into buckets."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import parallel

from paceline.parts.resume.worker.buckets import Buckets
from paceline.parts.resume.worker.object_graph import CannotKeep


@pytest.fixture
def buckets(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel.DistributedDataParallel, "__init__", parallel.DistributedDataParallel.__init__)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    made = Buckets()
    made.patch(parallel.distributed)
    yield made
    dist.destroy_process_group()


def step(model):
    model(torch.ones(2, 4)).sum().backward()


def test_a_model_is_settled_before_its_first_step_and_from_its_second_on(buckets):
    model = parallel.DistributedDataParallel(nn.Linear(4, 4))
    assert buckets.are_settled() and buckets.kept() == [None]
    step(model)
    assert not buckets.are_settled()
    assert not buckets.are_settled(), "a second look at the same step changes nothing"
    step(model)
    assert (buckets.are_settled() and buckets.kept() == [[[0, 1]]]) or buckets.kept() == [[[1, 0]]]


def test_a_model_that_never_divides_again_is_settled_from_its_second_step_on(buckets):
    model = parallel.DistributedDataParallel(nn.Linear(4, 4), find_unused_parameters=True)
    step(model)
    assert buckets.are_settled()


def test_a_model_that_is_not_used_keeps_nobody_waiting(buckets):
    unused, model = (parallel.DistributedDataParallel(nn.Linear(4, 4)) for _ in range(2))
    for _ in range(2):
        step(model)
    assert buckets.are_settled() and len(buckets.models()) == 2
    del unused


def test_a_model_whose_exchange_the_script_ends_is_not_kept(buckets):
    model = parallel.DistributedDataParallel(nn.Linear(4, 4))
    assert buckets.kept() == [None]
    # As the setter of torch 2.15 leaves it.
    model._require_manual_backward_finalization = True
    with pytest.raises(CannotKeep, match="require_manual_backward_finalization"):
        buckets.kept()
