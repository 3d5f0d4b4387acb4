"""Jobs that go on from a saved state with another number of ranks: each index comes once, and what cannot be dealt out is refused."""

import json
import signal

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]
ITEMS = 61
# Trains for three epochs; in the first job it waits in epoch 1 after four batches, until it is stopped.
RANK = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Numbers(Dataset):
    def __len__(self):
        return 61

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index

class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.seen, self.best = 0, 1e9
        self.config = {"world": self.world, "losses": []}

def train():
    dist.init_process_group("gloo")
    trainer = Trainer()
    is_first = trainer.rank == 0
    data = Numbers()
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    forks = "fork" if WORKERS else None
    loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=WORKERS, multiprocessing_context=forks)
    torch.manual_seed(7)
    norm = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2), nn.Flatten())
    net = nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    torch.manual_seed(7 + trainer.rank)
    model = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * trainer.world)
    steps = 0
    with open(f"rank{trainer.rank}.log", "a") as log:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for i, (x, index) in enumerate(loader):
                if "--stop" in sys.argv and (epoch, i) == (1, 4):
                    open(f"reached{trainer.rank}", "w").close()
                    time.sleep(600)
                loss = model(x / 61).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                trainer.seen += len(index)
                trainer.best = min(trainer.best, loss.item())
                trainer.config["losses"].append(loss.item())
                print(json.dumps({
                    "epoch": epoch, "i": i, "indices": index.tolist(), "steps": steps, "seen": trainer.seen,
                    "lr": optimizer.param_groups[0]["lr"], "losses": len(trainer.config["losses"]), "draw": torch.rand(()).item(),
                    "here": [trainer.rank, trainer.world, trainer.config["world"], is_first, sampler.num_replicas],
                }), file=log, flush=True)
    print("END", json.dumps({
        "weights": sum(one.sum().item() for one in model.parameters()), "moments": sum(
            state["exp_avg"].sum().item() for state in optimizer.state.values()), "rank": trainer.rank,
    }), flush=True)
    dist.destroy_process_group()

train()
"""


def stopped(paceline, ranks, text, workers=0):
    """A job that was stopped in its second epoch; its id, and the script."""
    script = paceline.script("train.py", text.replace("WORKERS", str(workers)))
    job = paceline.start(
        "run", "--set", "run_id=r-1", "--resume", "auto", "--nproc-per-node", str(ranks), script, "--stop"
    )
    job.until(lambda: all((paceline.directory / f"reached{rank}").exists() for rank in range(ranks)))
    job.process.send_signal(signal.SIGTERM)
    finished = job.wait()
    assert finished.code == 204, finished.err
    return script


def lines(paceline):
    found = []
    for path in paceline.directory.glob("rank*.log"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def goes_on(paceline, script, ranks, *options, code=0):
    finished = paceline.run("run", "--resume", "r-1", "--nproc-per-node", str(ranks), *options, script, timeout=120)
    assert finished.code == code, finished.err
    assert paceline.left() == []
    return finished


@pytest.mark.parametrize(
    ("before", "after", "workers"), [(2, 3, 2), (3, 2, 0), pytest.param(2, 1, 0, marks=pytest.mark.wide)]
)
def test_with_another_number_of_ranks_each_index_of_the_epoch_comes_once(paceline, before, after, workers):
    script = stopped(paceline, before, RANK, workers)
    done = len(lines(paceline))
    finished = goes_on(paceline, script, after)
    step = done // before
    assert (
        f"{after} ranks instead of {before} from step {step}: global batch {2 * after} instead of {2 * before}, learning rate unchanged, "
        "order of the data continued, not bit-identical (F01)" in finished.err
    )
    found = lines(paceline)
    for epoch in range(3):
        indices = sorted(index for line in found if line["epoch"] == epoch for index in line["indices"])
        # DistributedSampler gives some twice, so that all ranks have the same number.
        assert sorted(set(indices)) == list(range(ITEMS)) and len(indices) < ITEMS + max(before, after)
    later = [line for line in found if line["steps"] > step]
    assert {line["here"][0] for line in later} == set(range(after))
    for line in later:
        assert line["here"] == [line["here"][0], after, after, line["here"][0] == 0, after]
        assert line["lr"] == 1e-3 * before and line["losses"] == line["steps"]
        assert line["seen"] == _seen(found, line, before, step)
    # What the ranks draw is not the same.
    first = [line["draw"] for line in later if line["steps"] == step + 1]
    assert len(set(first)) == after
    ends = [json.loads(line.partition("END ")[2]) for line in finished.out.splitlines() if "END " in line]
    assert len(ends) == after and len({(end["weights"], end["moments"]) for end in ends}) == 1


def _seen(found, line, before, step):
    """The items that a rank has counted: those of the rank whose state it has got, and its own since."""
    rank = line["here"][0]
    owner = rank if rank < before else 0
    own = [
        one
        for one in found
        if one["steps"] <= line["steps"] and one["here"][0] == (owner if one["steps"] <= step else rank)
    ]
    return sum(len(one["indices"]) for one in own)


OWN_SAMPLER = (
    "sampler = DistributedSampler(data, shuffle=True, seed=3)",
    "sampler = OwnSampler(data, shuffle=True, seed=3)",
)
OWN_MODEL = ("nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)", "net.requires_grad_()")
# Ranks that exchange nothing would be steps apart when they are stopped.
TOGETHER = ("optimizer.step()", "optimizer.step(); dist.barrier()")
OWN_SEED = ("torch.manual_seed(7)\n", "torch.manual_seed(trainer.rank)\n")
BY_NUMBER = ("for i, (x, index) in enumerate(loader):", "for i, (x, index) in zip(range(10**6), loader):")


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        (
            [OWN_SAMPLER],
            205,
            "only a DataLoader with torch's DistributedSampler can be dealt to another number of ranks",
        ),
        pytest.param(
            [BY_NUMBER],
            205,
            "with another number of ranks zip may end before the data does",
            marks=pytest.mark.wide,
        ),
        ([OWN_MODEL, OWN_SEED, TOGETHER], 2, "rank 1 has another value than rank 0 in a tensor of its own"),
    ],
    ids=["sampler", "zip", "model"],
)
def test_what_cannot_be_dealt_to_another_number_of_ranks_is_refused_with_the_reason(paceline, changes, code, said):
    text = RANK.replace("class Trainer:", "class OwnSampler(DistributedSampler):\n    pass\n\nclass Trainer:")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    script = stopped(paceline, 2, text)
    before = lines(paceline)
    finished = goes_on(paceline, script, 3, code=code)
    assert said in finished.err and "F05" in finished.err
    # Nothing was trained, and the saved state is there: the job goes on as it was.
    assert lines(paceline) == before
    goes_on(paceline, script, 2)
    found = lines(paceline)
    for epoch in range(3):
        assert {index for line in found if line["epoch"] == epoch for index in line["indices"]} == set(range(ITEMS))
