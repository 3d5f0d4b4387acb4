"""What a rank marks of its optimizer and its DDP models: counts and settings, of real modules of torch in one process."""

import json

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.recording.ring import Instrument
from paceline.worker import replica
from paceline.worker.rank_recorder import RankRecorder


@pytest.fixture
def alone():
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def rank():
    return RankRecorder()


def wrapped(rank, model):
    model = DistributedDataParallel(model)
    rank.models.append(replica.WrappedModel(model))
    return model


def trained(rank, model, optimizer):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    rank.step_count += 1
    return replica.facts(rank, optimizer)


def layers():
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


@pytest.mark.usefixtures("alone")
def test_a_model_that_trains_as_it_should(rank):
    model = wrapped(rank, layers())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.95))
    facts = trained(rank, model, optimizer)
    (settings,) = facts["settings"]
    assert (settings["lr"], list(settings["betas"])) == (0.5, [0.9, 0.95]) and "params" not in settings
    counts = [
        facts[name] for name in ("step", "optimizers", "held", "with_gradient", "models", "foreign", "unexchanged")
    ]
    assert counts == [1, 1, 4, 4, 1, 0, 0] and facts["groups"] == 1
    before = facts["exchanges"]
    assert trained(rank, model, optimizer)["exchanges"] > before
    json.dumps(facts)


@pytest.mark.usefixtures("alone")
def test_only_buffers_that_ddp_broadcasts_are_counted(rank):
    model = wrapped(rank, nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert trained(rank, model, optimizer)["buffers"] == 4 + 4 + 1
    model.broadcast_buffers = False
    rank.models = [replica.WrappedModel(model)]
    assert trained(rank, model, optimizer)["buffers"] == 0


@pytest.mark.usefixtures("alone")
def test_a_layer_that_was_replaced_or_unfrozen_later_is_not_exchanged(rank):
    bare = layers()
    bare[0].requires_grad_(False)
    model = wrapped(rank, bare)
    model.module[1] = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts = trained(rank, model.module, optimizer)
    assert (facts["unexchanged"], facts["unexchanged_names"], facts["with_gradient"]) == (2, ["1.weight", "1.bias"], 2)
    model.module[0].requires_grad_(True)
    assert trained(rank, model.module, optimizer)["unexchanged"] == 4


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_never_called_and_an_optimizer_of_another(rank):
    model = wrapped(rank, layers())
    optimizer = torch.optim.SGD(layers().parameters(), lr=0.1)
    facts = trained(rank, model.module, optimizer)
    assert (facts["forwards"], facts["foreign"], facts["held"], facts["with_gradient"]) == (0, 4, 4, 0)


def test_without_a_process_group_there_is_nothing_to_count(rank):
    model = layers()
    facts = trained(rank, model, torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1)))
    assert (facts["models"], facts["groups"], facts["exchanges"]) == (0, 0, 0) and "foreign" not in facts
    # To read a tensor may mean to wait for a device.
    assert "lr" not in facts["settings"][0]


def test_a_model_that_is_gone_is_not_kept_alive(rank):
    model = layers()
    model._module_parameters, model.broadcast_buffers = list(model.parameters()), False
    kept = replica.WrappedModel(model)
    del model
    assert kept.wrapper() is None


def test_an_instrument_that_is_off_marks_nothing(rank):
    rank.silent.add(int(Instrument.REPLICA))
    # Nothing is asked of an optimizer that would not even have groups.
    replica.mark(rank, object(), None)
    assert rank.failures == []


def test_marks_are_due_at_the_same_steps_on_every_rank():
    due = [replica.next_mark(0)]
    while due[-1] < 1000:
        due.append(replica.next_mark(due[-1]))
    assert due == [1, 16, 64, 256, 1024]
