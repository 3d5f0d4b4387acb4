"""What is marked of a loader's sampler when an epoch begins."""

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
    assert samplers.begins(loader(seed=7), 0) == {"loader": 1, "turn": 1, **numbers}


def test_the_next_one_says_what_the_epoch_was_and_whether_steps_were_made_in_it(samplers):
    training, evaluation = loader(), loader(shuffle=False)
    samplers.begins(training, 0)
    assert samplers.begins(evaluation, 10)["loader"] == 2
    training.sampler.set_epoch(1)
    second = samplers.begins(training, 10)
    assert (second["turn"], second["epoch"], second["epoch_before"], second["steps_before"]) == (2, 1, 0, 10)
    evaluated = samplers.begins(evaluation, 20)
    assert (evaluated["turn"], evaluated["steps_before"]) == (2, 0)
    assert samplers.begins(training, 20)["steps_before"] == 10


def test_other_samplers_are_none_of_it_and_marks_come_to_an_end(samplers):
    assert samplers.begins(DataLoader(DATA, shuffle=True), 0) is None
    training = loader()
    turns = [samplers.begins(training, step) for step in range(5)]
    assert [mark is None for mark in turns] == [False, False, False, True, True]
    kept = [loader() for _ in range(30)]
    assert sum(samplers.begins(each, 9) is not None for each in kept) < 30
