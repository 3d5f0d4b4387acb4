"""Objects as plain data, and back into the objects of a process that has made them again."""

import argparse
import collections
import copy
import datetime
import decimal
import enum
import functools
import itertools
import marshal
import pathlib
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from paceline.parts.resume.worker.frames import _is_fixed
from paceline.parts.resume.worker.kinds import Context
from paceline.parts.resume.worker.object_graph import CannotKeep, CannotPutBack, Capture, Restore
from paceline.parts.resume.worker.shared_memory import fill, put_in_place


class Meter:
    seen = 0

    def __init__(self, name="m"):
        self.name, self.total, self.parts = name, 0.0, []


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Totals:
    def __init__(self):
        self.total, self.empty = torch.zeros(()), torch.zeros(0)


class History(list):
    def __init__(self, *items):
        super().__init__(items)
        self.best = None

    def append(self, item):
        raise AssertionError("the user's method does more than add")


class Colour(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


def counter():
    count = 0

    def increment():
        nonlocal count
        count += 1
        return count

    return increment


def kept(space):
    """Variables as they are written and read."""
    capture = Capture(Context(None))
    variables = capture.variables(space)
    copies = [tensor.detach().clone() for tensor in capture.tensors]
    variables, nodes = marshal.loads(marshal.dumps((variables, capture.nodes)))
    return variables, nodes, copies


def put_back(saved, space):
    """The variables in a process that has `space`."""
    variables, nodes, copies = saved
    restore = Restore(nodes, Context(None))
    found = restore.variables(variables, space)
    put_in_place(restore.placed)
    with torch.no_grad():
        for tensor, number in restore.copies:
            fill(tensor, copies[number])
    restore.load_states()
    return found


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2.5, 1j, "text", b"bytes", 10**40, float("inf"), (1, (2, "x")), [1, [2.5]], {"a": {1: None}}, {1, 2}, frozenset({3}),
        bytearray(b"xy"), range(3, 9, 2), slice(1, 2), collections.deque([1, 2], maxlen=2), collections.Counter("aab"),
        collections.OrderedDict([("b", 1), ("a", 2)]), Point(1, [2]), Colour.RED, datetime.datetime(2026, 1, 2), datetime.timedelta(3),
        pathlib.Path("a/b"), decimal.Decimal("1.10"), argparse.Namespace(lr=0.1), types.SimpleNamespace(a=[1]), torch.float16,
        torch.device("cpu"), torch.Size((2, 3)), np.float32(0.25), np.int64(3), functools.partial(int, base=2).keywords,
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_where_there_is_none(value):
    found = put_back(kept({"value": value}), {})["value"]
    assert found == value and type(found) is type(value)
    if isinstance(value, dict):
        assert list(found) == list(value)


@pytest.mark.parametrize(
    "make", [list, dict, set, collections.deque, collections.OrderedDict, bytearray, Meter], ids=lambda m: m.__name__
)
def test_a_mutable_object_is_filled_in_place(make):
    before, now = make(), make()
    assert put_back(kept({"value": before}), {"value": now})["value"] is now


def test_two_names_for_one_dict_stay_two_names_for_one_dict():
    shared = {"step": 7}
    found = put_back(kept({"state": shared, "holder": [shared]}), {"state": {"step": 0}, "holder": [{"step": 0}]})
    assert found["holder"][0] is found["state"] and found["state"] == {"step": 7}


@pytest.mark.parametrize(
    "make", [lambda i: torch.full((2,), float(i)), lambda i: [i], Meter], ids=["tensor", "list", "own"]
)
def test_what_was_one_object_at_the_beginning_becomes_two(make):
    first, second = make(1), make(2)
    beginning = make(0)
    found = put_back(kept({"state": second, "visited": [first, second]}), {"state": beginning, "visited": [beginning]})
    assert found["state"] is found["visited"][1] and found["state"] is not found["visited"][0]
    contents = [vars(one)["name"] if isinstance(one, Meter) else next(iter(one)) for one in found["visited"]]
    assert contents == [1, 2]


def test_an_object_goes_to_the_name_that_had_it_at_the_beginning():
    warm, full = Meter("warm"), Meter("full")
    there = Meter("warm"), Meter("full")
    found = put_back(
        kept({"now": full, "whole": full, "first": warm}), {"now": there[0], "whole": there[1], "first": there[0]}
    )
    assert found["first"] is there[0] and found["whole"] is found["now"] is there[1]
    assert [found["first"].name, found["whole"].name] == ["warm", "full"]


def shared(model):
    return {name: value.cpu() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("then", [shared, lambda model: copy.deepcopy(model.state_dict())], ids=["shared", "own"])
@pytest.mark.parametrize("now", [shared, lambda model: copy.deepcopy(model.state_dict()), None])
@pytest.mark.parametrize("names", [("model", "best"), ("best", "model")])
def test_tensors_share_memory_exactly_where_they_did(then, now, names):
    model, live = nn.Linear(3, 2), nn.Linear(3, 2)
    before = {"model": model, "best": then(model)}
    if then is not shared:
        before["best"]["weight"].fill_(7.0)
    space = {"model": live, "best": now(live) if now else None}
    weight = live.weight
    found = put_back(kept({name: before[name] for name in names}), space)
    assert found["model"] is live and live.weight is weight and torch.equal(weight, model.weight)
    assert torch.equal(found["best"]["weight"], before["best"]["weight"])
    assert (found["best"]["weight"].data_ptr() == weight.data_ptr()) is (then is shared)


def test_two_rows_and_their_table_share_memory_that_has_room_for_the_table():
    table = torch.arange(6.0).reshape(3, 2)
    found = put_back(kept({"row": table[1], "column": table[:, 1], "table": table}), {"row": torch.zeros(2)})
    found["table"][1, 1] = 9.0
    assert found["row"].tolist() == [2.0, 9.0] and found["column"].tolist() == [1.0, 9.0, 5.0]


def test_parts_of_one_memory_that_do_not_overlap_stay_where_they_are():
    table = torch.arange(6.0).reshape(3, 2)
    now = [torch.zeros(2), torch.zeros(2)]
    addresses = [one.data_ptr() for one in now]
    found = put_back(kept({"rows": [table[0], table[2]]}), {"rows": now})["rows"]
    assert [one.tolist() for one in found] == [[0.0, 1.0], [4.0, 5.0]]
    assert [one.data_ptr() for one in found] == addresses


@pytest.mark.parametrize("there", [True, False])
def test_an_expanded_tensor_is_filled_once(there):
    space = {"weights": torch.zeros(1, 2).expand(3, 2)} if there else {}
    found = put_back(kept({"weights": torch.tensor([[1.0, 2.0]]).expand(3, 2)}), space)["weights"]
    assert found.tolist() == [[1.0, 2.0]] * 3


def test_what_refers_to_itself_comes_back():
    loop = [1]
    loop.append(loop)
    found = put_back(kept({"loop": loop}), {})["loop"]
    assert found[1] is found


def test_a_list_that_has_grown_and_one_that_has_shrunk():
    found = put_back(kept({"a": [1, [2], 3], "b": [[5]]}), {"a": [0, [9]], "b": [[1], [2], [3]]})
    assert found == {"a": [1, [2], 3], "b": [[5]]}


def test_attributes_that_are_gone_are_removed_and_new_ones_set():
    was, now = Meter(), Meter()
    was.total, was.extra = 3.0, [1]
    del was.name
    now.leftover = 1
    found = put_back(kept({"m": was}), {"m": now})["m"]
    assert found is now and vars(now) == {"total": 3.0, "parts": [], "extra": [1]}


def test_an_object_that_the_loop_made_is_made_without_its_constructor():
    meter = Meter("made in the loop")
    meter.parts.append(2)
    found = put_back(kept({"meters": {"x": meter, "y": meter}}), {"meters": {}})["meters"]
    assert found["x"] is found["y"] and vars(found["x"]) == {"name": "made in the loop", "total": 0.0, "parts": [2]}


def test_slots_and_subclasses_of_containers():
    history = History()
    list.append(history, 4)
    history.best = 4
    found = put_back(kept({"s": Slotted(1, [2]), "h": history}), {"s": Slotted(0, 0), "h": History(1, 2)})
    assert (found["s"].left, found["s"].right, list(found["h"]), found["h"].best) == (1, [2], [4], 4)


class Lazy(dict):
    def items(self):
        raise ValueError("it would import everything")


class LazyInOrder(collections.OrderedDict):
    items = __iter__ = Lazy.items


class LazyList(list):
    __iter__ = Lazy.items


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (Lazy(a=1), Lazy(b=2)),
        (LazyInOrder([("b", 1), ("a", 2)]), LazyInOrder([("a", 2)])),
        (LazyList([1, 2]), LazyList([3])),
    ],
    ids=["dict", "ordered", "list"],
)
def test_a_container_whose_own_methods_do_more_is_read_by_those_of_python(then, now):
    assert put_back(kept({"x": then}), {"x": now})["x"] == then


def test_a_class_keeps_its_counters():
    saved = kept({"Meter": Meter})
    Meter.seen = 5
    late = kept({"Meter": Meter})
    put_back(saved, {"Meter": Meter})
    assert Meter.seen == 0
    put_back(late, {"Meter": Meter})
    assert Meter.seen == 5
    Meter.seen = 0


@pytest.mark.parametrize("library", [datetime.timedelta, decimal.Decimal, torch.Size, collections.deque])
def test_a_class_in_c_stays_as_it_is(library):
    assert put_back(kept({"name": library, "held": [library]}), {"name": library}) == {
        "name": library,
        "held": [library],
    }


def test_a_function_keeps_the_variables_it_shares():
    was, now = counter(), counter()
    was(), was()
    found = put_back(kept({"f": was}), {"f": now})["f"]
    assert found is now and found() == 3


def test_a_bound_method_belongs_to_the_object_that_came_back():
    was, now = Meter(), Meter()
    was.parts.append(1)
    found = put_back(
        kept({"m": was, "add": was.parts.append, "get": was.__init__}), {"m": now, "add": now.parts.append}
    )
    assert found["m"] is now and found["get"].__self__ is now


def test_iterators_of_python_go_on_where_they_were():
    letters = iter("abc")
    next(letters)
    found = put_back(kept({"l": letters, "e": enumerate("xy", 3)}), {})
    assert (next(found["l"]), list(found["e"])) == ("b", [(3, "x"), (4, "y")])


# Python 3.12 and 3.13 say that 3.14 will refuse.
@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning")
def test_an_iterator_of_itertools_goes_on_where_it_was_unless_this_python_does_not_tell_where():
    numbers = itertools.count(5)
    next(numbers)
    if sys.version_info < (3, 14):
        assert next(put_back(kept({"n": numbers}), {})["n"]) == 6
        return
    with pytest.raises(CannotKeep, match=r"^`n` is a count: "):
        kept({"n": numbers})


def test_generators_of_random_numbers():
    made = {
        "python": random.Random(3),
        "torch": torch.Generator().manual_seed(4),
        "new": np.random.default_rng(5),
        "old": np.random.RandomState(6),
    }  # fmt: skip
    saved = kept(made)

    def drawn(one):
        return (
            one["python"].random(), float(torch.rand((), generator=one["torch"])), float(one["new"].random()), float(one["old"].rand()),
        )  # fmt: skip

    wanted = drawn(made)
    assert drawn(put_back(saved, made)) == wanted and drawn(put_back(saved, {})) == wanted


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_a_tensor_comes_back_in_place_and_anew(dtype, shape):
    was = torch.ones(shape, dtype=dtype)
    now = torch.zeros(shape, dtype=dtype)
    found = put_back(kept({"t": was}), {"t": now})["t"]
    assert found is now and torch.equal(found, was)
    made = put_back(kept({"t": was}), {})["t"]
    assert torch.equal(made, was) and made.dtype == dtype


def test_a_tensor_with_a_graph_comes_back_without_it():
    weight = torch.ones(2, requires_grad=True)
    saved = kept({"hidden": weight * 3})
    now = weight * 5
    found = put_back(saved, {"hidden": now})["hidden"]
    assert found is not now and found.grad_fn is None and found.tolist() == [3.0, 3.0]


def test_a_transposed_tensor_and_one_array_of_a_megabyte():
    image = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)
    large = np.arange(400_000, dtype=np.float32)
    found = put_back(kept({"image": image, "large": large}), {})
    assert torch.equal(found["image"], image) and found["image"].stride() == image.stride()
    assert np.array_equal(found["large"], large)


def test_a_large_tensor_that_nothing_wrote_to_is_not_copied():
    large = torch.randn(500_000)
    saved = kept({"data": large})
    assert saved[2] == []
    assert put_back(saved, {"data": large.clone()})["data"].equal(large)
    with pytest.raises(CannotPutBack, match="data"):
        put_back(saved, {"data": large + 1})
    large.add_(1)
    assert len(kept({"data": large})[2]) == 1


def following(context, space):
    """Variables as a later step of the same loop writes them."""
    context.is_beginning = False
    capture = Capture(context)
    variables = capture.variables(space)
    return variables, capture.nodes, capture.tensors


@pytest.mark.parametrize("make", [lambda: torch.randn(500_000), lambda: list(range(1000))], ids=["tensor", "list"])
def test_something_large_that_the_loop_has_made_is_kept_whole(make):
    context, data, best = Context(None), make(), make()
    Capture(context).variables({"data": data})
    following(context, {"data": data, "best": best})
    variables, nodes, tensors = following(context, {"data": data, "best": best})
    assert [tensor is best for tensor in tensors] == [True] * isinstance(best, torch.Tensor)
    # In the next process only what was there before the loop is as the script has made it, also after one more kill.
    new = Context(None)
    restore = Restore(nodes, new)
    found = restore.variables(variables, {"data": copy.copy(data)})
    for tensor, number in restore.copies:
        fill(tensor, tensors[number])
    again = following(new, found)
    restore = Restore(again[1], Context(None))
    with pytest.raises(CannotPutBack, match=r"`data` again in front of its training loop"):
        restore.variables(again[0], {"best": best})
    kept_best = Restore(again[1], Context(None)).variables({"best": again[0]["best"]}, {})["best"]
    assert len(kept_best) == len(best)


def trained(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=9)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def train(one, steps):
    for _ in range(steps):
        one["optimizer"].zero_grad()
        one["model"](torch.randn(8, 3)).square().sum().backward()
        one["optimizer"].step()
        one["scheduler"].step()
    return [parameter.tolist() for parameter in one["model"].state_dict().values()], one["scheduler"].get_last_lr()


def test_training_goes_on_as_if_nothing_had_happened():
    was, now = trained(), trained(seed=1)
    train(was, 3)
    saved, state = kept(was), torch.get_rng_state()
    wanted = train(was, 3)
    parameters = list(now["model"].parameters())
    found = put_back(saved, now)
    assert all(found[name] is now[name] for name in now)
    assert all(a is b for a, b in zip(parameters, now["model"].parameters(), strict=True))
    torch.set_rng_state(state)
    assert train(now, 3) == wanted


def test_a_copy_of_the_model_that_the_loop_made_comes_back():
    was = trained()
    train(was, 1)
    was["best"] = copy.deepcopy(was["model"])
    train(was, 1)
    found = put_back(kept(was), trained(seed=1))
    assert torch.equal(found["best"][0].weight, was["best"][0].weight)
    assert not torch.equal(found["best"][0].weight, found["model"][0].weight)


def test_an_optimizer_that_the_loop_made_comes_back():
    was, now = trained(), trained(seed=1)
    train(was, 2)
    del now["optimizer"], now["scheduler"]
    found = put_back(kept({"model": was["model"], "optimizer": was["optimizer"]}), now)
    state = found["optimizer"].state_dict()["state"]
    assert torch.equal(state[0]["exp_avg"], was["optimizer"].state_dict()["state"][0]["exp_avg"])


def test_a_generator_that_has_begun_cannot_be_kept():
    def batches():
        yield from range(3)

    fresh = batches()
    kept({"it": fresh})
    next(fresh)
    with pytest.raises(CannotKeep, match=r"`it` is a generator .*batches"):
        kept({"it": fresh})


def test_an_object_of_a_library_that_changes_cannot_be_kept():
    class Parser(argparse.ArgumentParser):
        __module__ = "argparse"

    context, parser = Context(None), Parser()
    Capture(context).variables({"p": parser})
    Capture(context).variables({"p": parser})
    parser.prog = "another"
    with pytest.raises(CannotKeep, match=r"`p` .*`prog`"):
        Capture(context).variables({"p": parser})


def test_an_object_of_a_library_whose_tensor_changes_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(Totals, "__module__", "of_a_library")
    context, meter = Context(None), Totals()
    for _ in range(2):
        Capture(context).variables({"meter": meter})
    meter.total = meter.total + 1
    with pytest.raises(CannotKeep, match=r"`meter` .*`total`"):
        Capture(context).variables({"meter": meter})


@pytest.mark.parametrize("make", [list, tuple, set, dict.fromkeys], ids=["list", "tuple", "set", "dict"])
def test_a_long_container_that_does_not_change_is_written_once(make):
    context, long = Context(None), make((i, "x") for i in range(1000))
    first, second = Capture(context), Capture(context)
    first.variables({"samples": long})
    value = second.variables({"samples": long})
    assert len(first.nodes) == 1001 and len(second.nodes) == 1
    again = make((i, "x") for i in range(1000))
    assert Restore(second.nodes, context).variables(value, {"samples": again})["samples"] is again
    with pytest.raises(CannotPutBack, match="other items"):
        Restore(second.nodes, context).variables(value, {"samples": make((i, "y") for i in range(1000))})


def test_a_long_list_that_grows_is_written_each_time():
    context, losses = Context(None), [0.5] * 1000
    Capture(context).variables({"losses": losses})
    losses.append(0.25)
    capture = Capture(context)
    value = capture.variables({"losses": losses})
    assert Restore(capture.nodes, context).variables(value, {"losses": []})["losses"] == losses


def remembers(value, seen=[], *, counts={}):  # noqa: B006
    seen.append(value)
    counts["calls"] = len(seen)
    return sum(seen), counts["calls"]


class Remembering:
    def method(self, value, seen=[]):  # noqa: B006
        seen.append(value)
        return list(seen)


@pytest.mark.parametrize("name", ["remembers", "method"])
def test_what_a_function_keeps_in_its_defaults_comes_back(name):
    def call(value):
        return remembers(value) if name == "remembers" else Remembering().method(value)

    thing = remembers if name == "remembers" else Remembering
    call(1)
    saved, expected = kept({"thing": thing}), call(2)
    call(7)
    put_back(saved, {"thing": thing})
    assert call(2) == expected


def test_a_function_is_kept_only_where_it_may_have_changed():
    assert [_is_fixed(one.__name__, one) for one in (kept, remembers)] == [True, False]


def test_a_module_that_gets_a_hook_while_it_trains_cannot_be_kept_and_one_without_it_cannot_be_put_back():
    model, context = torch.nn.Linear(2, 2), Context(None)
    Capture(context).value(model)
    saved = kept({"model": model})
    handle = model.register_forward_hook(lambda *_: None)
    with pytest.raises(CannotKeep, match="gets or loses a hook"):
        Capture(context).value(model)
    with pytest.raises(CannotPutBack, match="had 0 hooks, and has 1"):
        put_back(saved, {"model": model})
    handle.remove()
    Capture(context).value(model)


def test_an_iterator_of_python_around_a_loader_that_has_begun_cannot_be_kept():
    loader = torch.utils.data.DataLoader([torch.ones(1)] * 3)
    both = zip(range(3), iter(loader), strict=False)
    deep = itertools.islice(enumerate(iter(loader)), 2), itertools.chain(iter(()), zip(itertools.count(), iter(loader)))
    for around in (both, enumerate(iter(loader)), itertools.cycle(iter(loader)), *deep):
        with pytest.raises(CannotKeep, match="around a data loader"):
            Capture(Context(None)).value(around)


class Shadow:
    """As a library's average of a model: what it has loaded is its own copy."""

    def __init__(self, weight):
        self.weight = weight

    def state_dict(self):
        return {"weight": self.weight.clone()}

    def load_state_dict(self, state):
        self.weight = copy.deepcopy(state["weight"])


@pytest.mark.parametrize("size", [3, 500_000])
def test_an_object_of_a_library_that_clones_its_state_has_the_values(monkeypatch, size):
    monkeypatch.setattr(Shadow, "__module__", "of_a_library")
    saved = kept({"shadow": Shadow(torch.full((size,), 2.0))})
    now = Shadow(torch.zeros(size))
    assert put_back(saved, {"shadow": now})["shadow"] is now
    assert now.weight.eq(2.0).all()


class Collecting(nn.Module):
    """As a library's metric that keeps every value."""

    def __init__(self):
        super().__init__()
        self.values, self.by_class, self.parts = [], {}, [nn.Parameter(torch.ones(1))]


def test_a_module_of_a_library_has_what_it_has_collected(monkeypatch):
    monkeypatch.setattr(Context, "is_users_class", lambda self, own_type: own_type is not Collecting)
    metric, now = Collecting(), Collecting()
    metric.values.append(torch.ones(2))
    metric.by_class["a"] = torch.ones(())
    parts = now.parts
    put_back(kept({"metric": metric}), {"metric": now})
    assert now.values[0].equal(torch.ones(2)) and now.by_class["a"] == 1 and now.parts is parts


def large_tensors(context, space):
    """How many tensors a walk copies."""
    capture = Capture(context)
    capture.variables(space)
    return len(capture.tensors)


def test_a_large_tensor_that_the_training_has_made_is_copied():
    context, shadow = Context(None), torch.randn(500_000)
    assert large_tensors(context, {"shadow": shadow}) == 0
    context.is_beginning = False
    assert large_tensors(context, {"shadow": shadow}) == 0
    averaged = shadow * 0.9
    assert [large_tensors(context, {"shadow": averaged}) for _ in range(2)] == [1, 1]


def test_a_large_tensor_that_is_written_to_through_data_is_copied():
    context, shadow = Context(None), torch.randn(500_000)
    assert large_tensors(context, {"shadow": shadow}) == 0
    shadow.data.mul_(0.9)
    assert large_tensors(context, {"shadow": shadow}) == 1


def test_a_large_tensor_that_was_copied_back_is_copied_again():
    first, now = torch.randn(500_000), torch.zeros(500_000)
    first.add_(1)
    saved, context = kept({"shadow": first}), Context(None)
    found = put_back(saved, {"shadow": now})
    context.is_beginning = False
    assert [large_tensors(context, found) for _ in range(2)] == [1, 1]
