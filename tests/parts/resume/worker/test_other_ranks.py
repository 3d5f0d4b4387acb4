"""A saved state of another number of ranks: what stays as the script makes it, and who gets which item of the rest of an epoch."""

import marshal
import random

import pytest

torch = pytest.importorskip("torch")

from paceline.parts.resume.recording.state_buffer import packed  # noqa: E402
from paceline.parts.resume.worker import other_ranks, random_state  # noqa: E402
from paceline.parts.resume.worker.kinds import Context  # noqa: E402
from paceline.parts.resume.worker.object_graph import CannotPutBack, Capture, Restore  # noqa: E402

DistributedSampler = torch.utils.data.distributed.DistributedSampler


class Trainer:
    def __init__(self, rank, world):
        self.rank, self.world, self.best, self.config = rank, world, 0.0, {"world": world, "seen": 0}


def variables(rank, world):
    trainer = Trainer(rank, world)

    def average(value):
        return value / world

    return {"trainer": trainer, "average": average, "shape": (world, [world]), "steps": 0, "name": f"rank{rank}"}


def kept(space, first=b""):
    capture = Capture(Context(None))
    found = [(("train.py", "main"), capture.variables(space))]
    document = {"frames": found, "modules": {}, "nodes": capture.nodes}
    return document | {"first": first or packed((found, {}, capture.nodes))}


def put_back(document, space):
    # As it comes from a slot.
    plan = marshal.loads(marshal.dumps(document))
    other_ranks.leave_unchanged(plan)
    return Restore(plan["nodes"], Context(None)).variables(plan["frames"][0][1], space)


def test_what_the_training_has_changed_is_put_back_and_the_rest_is_as_the_script_makes_it():
    before = variables(0, 2)
    first = kept(before)["first"]
    before["trainer"].best, before["steps"], before["made"] = 0.75, 9, "in the loop"
    before["trainer"].config["seen"] = 72
    found = put_back(kept(before, first), variables(2, 3))
    trainer = found["trainer"]
    assert (trainer.rank, trainer.world, trainer.best, trainer.config) == (2, 3, 0.75, {"world": 3, "seen": 72})
    assert (found["steps"], found["name"], found["shape"], found["average"](6)) == (9, "rank2", (3, [3]), 2)
    assert found["made"] == "in the loop"


def test_a_loop_in_another_function_than_the_first_one_is_refused():
    document = kept(variables(0, 2))
    document["frames"] = [(("train.py", "second"), document["frames"][0][1])]
    with pytest.raises(CannotPutBack, match="another function"):
        other_ranks.leave_unchanged(document)


def loader(items, batch_size, rank, ranks, *, drop_last=False, epoch=1):
    sampler = DistributedSampler(range(items), num_replicas=ranks, rank=rank, seed=5, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return torch.utils.data.DataLoader(list(range(items)), batch_size=batch_size, sampler=sampler)


def flat(batches):
    return [index for batch in batches for index in batch]


def test_over_any_chain_of_numbers_of_ranks_each_item_of_the_epoch_comes_once():
    chance = random.Random(9)
    for _ in range(200):
        items, batch_size, drop_last = chance.randint(1, 80), chance.randint(1, 6), chance.random() < 0.3
        deal, taken, ranks, seen, most_ranks = None, 0, chance.randint(1, 5), [], 0
        for is_last in (False, chance.random() < 0.5, True):
            loaders = [loader(items, batch_size, rank, ranks, drop_last=drop_last) for rank in range(ranks)]
            if deal is None:
                deal, left = other_ranks.deal_of(loaders[0]), [list(one.batch_sampler) for one in loaders]
            else:
                left = [
                    list(other_ranks.batches(one, deal)) if deal.passed else list(one.batch_sampler) for one in loaders
                ]
            assert len({len(batches) for batches in left}) == 1
            most_ranks = max(most_ranks, ranks)
            now = len(left[0]) if is_last else chance.randint(0, len(left[0]))
            seen += [index for batches in left for index in flat(batches[:now])]
            if is_last:
                break
            taken += now
            before, ranks = ranks, chance.randint(1, 5)
            deal = other_ranks.dealt_again(
                loader(items, batch_size, 0, ranks, drop_last=drop_last), deal, taken, before, ""
            )
        if drop_last:
            assert len(set(seen)) == len(seen) > items - most_ranks
        else:
            assert set(seen) == set(range(items)) and len(seen) < items + most_ranks


def test_another_dataset_and_another_sampler_are_refused():
    deal = other_ranks.deal_of(loader(20, 2, 0, 2))
    with pytest.raises(CannotPutBack, match="the dataset has 21 items, and had 20"):
        other_ranks.dealt_again(loader(21, 2, 0, 3), deal, 3, 2, "loader")
    shuffled = torch.utils.data.DataLoader(list(range(20)), batch_size=2, shuffle=True)
    assert other_ranks.deal_of(shuffled) is None
    with pytest.raises(CannotPutBack, match="DistributedSampler"):
        other_ranks.dealt_again(shuffled, deal, 3, 2, "loader")


def test_a_new_rank_has_random_numbers_of_its_own_that_come_again():
    states = random_state.kept()

    def draws(rank):
        random_state.begin_for_rank(states, rank)
        return torch.rand(()).item(), random.random()

    try:
        assert draws(2) == draws(2) and draws(2)[0] != draws(3)[0] and draws(2)[1] != draws(3)[1]
    finally:
        random_state.put_back(states)
