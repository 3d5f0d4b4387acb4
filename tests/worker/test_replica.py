"""What a rank marks of its optimizer and its DDP models: counts and settings, of real modules of torch in one process."""

import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from paceline.worker.instruments import replica
from paceline.worker.rank_recorder import RankRecorder


@pytest.fixture
def alone():
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def marks():
    marks = replica.ReplicaMarks(RankRecorder())
    marks.begin()
    return marks


def wrapped(marks, model):
    model = DistributedDataParallel(model)
    marks.model_wrapped(model)
    return model


def trained(marks, model, optimizer):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    marks.rank.step_count += 1
    return replica.facts(marks.rank, marks.models, optimizer)


def layers():
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


@pytest.mark.usefixtures("alone")
def test_a_model_that_trains_as_it_should(marks):
    model = wrapped(marks, layers())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.95))
    facts = trained(marks, model, optimizer)
    (settings,) = facts["settings"]
    assert (settings["lr"], list(settings["betas"])) == (0.5, [0.9, 0.95]) and "params" not in settings
    counts = [
        facts[name] for name in ("step", "optimizers", "held", "with_gradient", "models", "foreign", "unexchanged")
    ]
    assert counts == [1, 1, 4, 4, 1, 0, 0] and facts["groups"] == 1
    before = facts["exchanges"]
    assert trained(marks, model, optimizer)["exchanges"] > before
    json.dumps(facts)


@pytest.mark.usefixtures("alone")
def test_only_buffers_that_ddp_broadcasts_are_counted(marks):
    model = wrapped(marks, nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert trained(marks, model, optimizer)["buffers"] == 4 + 4 + 1
    model.broadcast_buffers = False
    marks.models = [replica.WrappedModel(model)]
    assert trained(marks, model, optimizer)["buffers"] == 0


@pytest.mark.usefixtures("alone")
def test_a_layer_that_was_replaced_or_unfrozen_later_is_not_exchanged(marks):
    bare = layers()
    bare[0].requires_grad_(False)
    model = wrapped(marks, bare)
    model.module[1] = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts = trained(marks, model.module, optimizer)
    assert (facts["unexchanged"], facts["unexchanged_names"], facts["with_gradient"]) == (2, ["1.weight", "1.bias"], 2)
    model.module[0].requires_grad_(True)
    assert trained(marks, model.module, optimizer)["unexchanged"] == 4


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_never_called_and_an_optimizer_of_another(marks):
    model = wrapped(marks, layers())
    optimizer = torch.optim.SGD(layers().parameters(), lr=0.1)
    facts = trained(marks, model.module, optimizer)
    assert (facts["forwards"], facts["foreign"], facts["held"], facts["with_gradient"]) == (0, 4, 4, 0)


def test_without_a_process_group_there_is_nothing_to_count(marks):
    model = layers()
    facts = trained(marks, model, torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1)))
    assert (facts["models"], facts["groups"], facts["exchanges"]) == (0, 0, 0) and "foreign" not in facts
    # To read a tensor may mean to wait for a device.
    assert "lr" not in facts["settings"][0]


@pytest.mark.usefixtures("alone")
def test_the_users_line_that_made_the_model_is_marked_and_none_where_there_is_none(marks):
    model = wrapped(marks, layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    line = wrapped.__code__.co_firstlineno + 2
    assert trained(marks, model, optimizer)["made_at"] == f"{__file__}:{line}"
    marks.models = [replica.WrappedModel(model, "")]
    assert "made_at" not in trained(marks, model, optimizer)


def test_where_a_sampler_was_made_is_known_in_a_forked_child_too(marks):
    class Sampler(DistributedSampler):
        pass

    marks._watch(SimpleNamespace(DistributedSampler=Sampler))
    # As in a child of a fork, which starts over.
    marks.begin()
    data = list(range(8))
    loader = DataLoader(data, sampler=Sampler(data, num_replicas=1, rank=0))
    (mark,) = marks._samplers.begins(loader, 0)
    assert mark["made_at"].startswith(f"{__file__}:")


def test_a_model_that_is_gone_is_not_kept_alive(marks):
    model = layers()
    model._module_parameters, model.broadcast_buffers = list(model.parameters()), False
    kept = replica.WrappedModel(model)
    del model
    assert kept.wrapper() is None


def test_a_sampler_that_repeats_its_epoch_is_marked_at_the_next_step(marks, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_RING_DIR", str(tmp_path))
    rank, data = marks.rank, list(range(8))
    rank.registry.add(marks.name, marks.methods())
    rank.join(0, 1, 0)
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    marks._samplers.made(sampler, "train.py:26")
    loader = DataLoader(data, sampler=sampler)
    optimizer = torch.optim.SGD(layers().parameters(), lr=0.1)
    marked = []
    for steps in (2, 3):
        rank.registry.tell("loader_began", loader)
        for _ in range(steps):
            rank.after_step(optimizer, (), {})
            lines = list(map(json.loads, rank.ring.path.with_suffix(".texts").read_text().splitlines()))
            marked.append([facts["turn"] for kind, _, facts in lines if kind == "sampler"])
    assert marked == [[1], [1], [1, 2], [1, 2], [1, 2]] and rank.failures == []
    assert [facts["made_at"] for kind, _, facts in lines if kind == "sampler"] == ["train.py:26"] * 2
    # From here on the next mark of the replica is due.
    assert rank.next_due == replica.SECOND_STEP
    rank.forget()


def test_marks_are_due_at_the_same_steps_on_every_rank():
    due = [replica.next_mark(0)]
    while due[-1] < 1000:
        due.append(replica.next_mark(due[-1]))
    assert due == [1, 16, 64, 256, 1024]
