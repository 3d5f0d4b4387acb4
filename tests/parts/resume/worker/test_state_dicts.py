"""Kept nodes as state dicts and plain values: the same as the objects themselves give."""

import collections

import pytest
import torch
from torch import nn

from paceline.parts.resume.worker.kinds import Context
from paceline.parts.resume.worker.object_graph import Capture
from paceline.parts.resume.worker.state_dicts import StateDicts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.tied, self.also = nn.Linear(4, 4), nn.Linear(4, 4)
        self.also.weight = self.tied.weight
        self.absent, self.rounds = None, 3
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("made_again", torch.arange(3.0), persistent=False)

    def forward(self, x):
        return self.also(self.tied(self.first(x)))


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.best, self.history = model, optimizer, 0.5, [1, 2]


class NoLoaders:
    pass


def document(main, frames=(), modules=None, others=(), extra=()):
    """What a session writes of these variables, and the tensors."""
    capture = Capture(Context(NoLoaders()))
    kept = {
        "frames": [(("train.py", name), capture.variables(variables)) for name, variables in frames],
        "modules": {name: capture.variables(one) for name, one in {"__main__": main, **(modules or {})}.items()},
        "others": [[capture.value(one) for one in others], []],
        "extra": [capture.value(one) for one in extra],
        "nodes": capture.nodes,
    }
    return kept, [tensor.detach().clone() for tensor in capture.tensors]


def found(main, *args, **more):
    return StateDicts(*document(main, *args, **more))


def trained(make):
    torch.manual_seed(1)
    model = Net()
    optimizer = make(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step(lambda: model(torch.ones(5, 3)).sum())
    return model, optimizer


def assert_same(one, other):
    if isinstance(other, torch.Tensor):
        assert one.dtype == other.dtype and torch.equal(one, other)
    elif isinstance(other, dict):
        assert list(one) == list(other)
        for key in other:
            assert_same(one[key], other[key])
    elif isinstance(other, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other


@pytest.mark.parametrize(
    "make",
    [
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        lambda model: torch.optim.AdamW(
            [{"params": model.first.parameters(), "lr": 0.5}, {"params": [*model.tied.parameters(), model.also.bias]}]
        ),
        lambda model: torch.optim.LBFGS(model.parameters(), max_iter=2),
    ],
    ids=["SGD", "momentum", "two groups", "LBFGS"],
)
def test_a_model_and_its_optimizer_are_what_their_state_dicts_are(make):
    model, optimizer = trained(make)
    state = found({"model": model, "optimizer": optimizer})
    assert_same(state.models["model"], model.state_dict())
    assert_same(state.optimizers["optimizer"], optimizer.state_dict())
    # Weights that are shared stay so, and are in the file once.
    assert state.models["model"]["also.weight"] is state.models["model"]["tied.weight"]


def test_names_are_those_of_the_variables_that_lead_to_the_objects():
    model, optimizer = trained(lambda model: torch.optim.Adam(model.parameters()))
    whole = nn.ModuleDict({"module": model})
    state = found({"model": model}, frames=[("main.<locals>.train", {"whole": whole, "it": Trainer(model, optimizer)})])
    assert list(state.models) == ["model", "whole"] and list(state.optimizers) == ["it.optimizer"]
    assert list(state.models["whole"]) == [f"module.{name}" for name in model.state_dict()]
    assert state.values["it.best"] == 0.5 and state.values["it.history"] == [1, 2] and state.values["model.rounds"] == 3


def test_two_variables_of_one_name_are_two_values():
    state = found({"lr": 1}, frames=[("main", {"lr": 2}), ("train", {"lr": 3})], modules={"engine": {"lr": 4, "n": 5}})
    assert state.values == {"lr": 1, "train.lr": 3, "main.lr": 2, "engine.lr": 4, "n": 5}


def test_what_no_variable_leads_to_has_the_number_of_its_place():
    _, optimizer = trained(lambda model: torch.optim.Adam(model.parameters()))
    state = found({}, others=[optimizer], extra=[{"best": 3}])
    assert list(state.optimizers) == ["optimizer[0]"] and state.values == {"extra[0]": {"best": 3}}


def test_a_scheduler_is_what_its_state_dict_is():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert found({"scheduler": scheduler}).schedulers == {"scheduler": scheduler.state_dict()}


def test_plain_values_keep_their_shape_and_others_are_named():
    endless = [1]
    endless.append(endless)
    state = found({
        "counts": collections.Counter("aab"), "nested": {"a": [1, (2.5, None)], 3: {"b"}}, "tensor": torch.arange(3),
        "weights": torch.Size([2, 3]), "endless": endless, "generator": torch.Generator(), "function": document,
    })  # fmt: skip
    assert torch.equal(state.values.pop("tensor"), torch.arange(3))
    assert state.values == {
        "counts": {"a": 2, "b": 1}, "nested": {"a": [1, (2.5, None)], 3: {"b"}}, "weights": (2, 3), "endless[0]": 1,
    }  # fmt: skip
    assert state.left_out == ["generator"]
