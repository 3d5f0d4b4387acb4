"""What is marked of a loader's sampler when an epoch begins."""

import weakref

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from paceline.worker.sampling import Samplers

DATA = list(range(40))


@pytest.fixture
def samplers():
    return Samplers()


def loader(**fields):
    return DataLoader(DATA, sampler=DistributedSampler(DATA, num_replicas=4, rank=3, **fields))


def test_the_first_epoch_says_how_the_data_are_cut(samplers):
    numbers = {"replicas": 4, "rank": 3, "seed": 7, "shuffle": True, "samples": 40, "epoch": 0}
    assert samplers.begins(loader(seed=7), 0) == [{"loader": 1, "turn": 1, **numbers}]


def test_a_sampler_says_where_it_was_made_and_is_not_kept_alive(samplers):
    """Of many that were made the newest are known; a sampler that compares equal to all others is no other one."""
    first, other = loader(), loader()
    samplers.made(first.sampler, "train.py:3")
    samplers.made(other.sampler, "data.py:8")
    assert [samplers.begins(one, 0)[0].get("made_at") for one in (other, first, loader())] == [
        "data.py:8",
        "train.py:3",
        None,
    ]
    gone = weakref.ref(first.sampler)
    del first
    assert gone() is None
    for _ in range(100):
        samplers.made(other.sampler, "")
    assert "made_at" not in samplers.begins(other, 0)[0]


def test_a_sampler_may_be_made_while_a_loader_begins(samplers):
    """In another thread; here, when the loader is asked for its own."""
    first, other = loader(), loader()

    class Looked:
        @property
        def sampler(self):
            samplers.made(other.sampler, "data.py:8")
            return first.sampler

    samplers.made(other.sampler, "data.py:8")
    samplers.made(first.sampler, "train.py:3")
    assert samplers.begins(Looked(), 0)[0]["made_at"] == "train.py:3"


def test_the_next_one_says_what_the_epoch_was_and_how_many_steps_were_made_in_it(samplers):
    training, evaluation = loader(), loader(shuffle=False)
    samplers.begins(training, 0)
    assert samplers.begins(evaluation, 10)[0]["loader"] == 2
    training.sampler.set_epoch(1)
    (second,) = samplers.begins(training, 10)
    assert (second["turn"], second["epoch"], second["epoch_before"], second["steps_before"]) == (2, 1, 0, 10)
    (evaluated,) = samplers.begins(evaluation, 20)
    assert evaluated["turn"] == 2 and "steps_before" not in evaluated


def test_an_epoch_that_comes_again_is_marked_once_steps_are_made_in_it(samplers):
    training = loader()
    samplers.begins(training, 0)
    assert samplers.begins(training, 10) == [] and samplers.holds_a_mark()
    assert samplers.stepped(10) == []
    (again,) = samplers.stepped(11)
    assert (again["turn"], again["epoch"], again["epoch_before"], again["steps_before"]) == (2, 0, 0, 10)
    assert samplers.stepped(12) == [] and not samplers.holds_a_mark()
    # Nobody asked before the next one began.
    assert samplers.begins(training, 20) == []
    assert [mark["turn"] for mark in samplers.begins(training, 30)] == [3]


def test_a_look_at_a_first_batch_before_the_sampler_is_told_its_epoch_is_no_epoch(samplers):
    training, marks = loader(), []
    for epoch in range(3):
        marks += samplers.begins(training, 10 * epoch)  # len(next(iter(loader))[0])
        training.sampler.set_epoch(epoch)
        marks += samplers.begins(training, 10 * epoch)
        marks += samplers.stepped(10 * epoch + 9)
    assert all(mark["epoch"] != mark.get("epoch_before") for mark in marks)


def test_who_looks_at_a_first_batch_and_never_tells_the_epoch_is_marked_all_the_same(samplers):
    training, marks = loader(), []
    for epoch in range(2):
        marks += samplers.begins(training, 10 * epoch)
        marks += samplers.begins(training, 10 * epoch)
        marks += samplers.stepped(10 * epoch + 9)
    assert [mark["turn"] for mark in marks if mark["epoch"] == mark.get("epoch_before")] == [4]


def test_other_samplers_are_none_of_it_and_marks_come_to_an_end(samplers):
    assert samplers.begins(DataLoader(DATA, shuffle=True), 0) == []
    training, turns = loader(), []
    for step in range(6):
        training.sampler.set_epoch(step)
        turns.append(samplers.begins(training, step))
    assert [bool(marks) for marks in turns] == [True, True, True, True, False, False]
    kept = [loader() for _ in range(30)]
    assert sum(bool(samplers.begins(each, 9)) for each in kept) < 30
