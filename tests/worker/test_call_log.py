"""What a rank records of each collective, on real gloo, also where the call ends the process."""

import sys

import pytest

from paceline.diagnosis.desync.call_records import CallReader
from paceline.diagnosis.desync.calls import CallComparison, RankCalls
from paceline.recording.ring import RingReader
from paceline.recording.string_table import StringTable

pytestmark = pytest.mark.process


def calls_of(workplace) -> dict[int, list[RankCalls]]:
    """Rank -> its calls by group, as an agent reads them."""
    found = {}
    for path in sorted((workplace.directory / "rings").glob("*.ring")):
        reader, texts = RingReader(path), StringTable(path.with_suffix(".texts"))
        records, _, lost = reader.read_from(0)
        texts.update()
        rank = reader.header().rank
        assert reader.header().failure == ""
        found[rank] = CallReader(texts).take(rank, records, lost)
        reader.close()
    return found


def diverged(calls: dict[int, list[RankCalls]]):
    comparison = CallComparison()
    for of_rank in calls.values():
        for of_group in of_rank:
            comparison.add(of_group)
    return comparison.divergences(1, final=True)


def test_every_part_of_a_call_is_recorded(workplace, written):
    script = written(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "def mean(value):\n"
        "    dist.all_reduce(value, dist.ReduceOp.MAX)\n"
        "mean(torch.ones(3, 2))\n"
        "dist.broadcast(torch.ones(5, dtype=torch.int64), src=1)\n"
        "dist.send(torch.ones(1), dst=1) if dist.get_rank() == 0 else dist.recv(torch.ones(1), src=0)\n"
        "dist.barrier()\n"
    )
    left = workplace.run(sys.executable, script, world_size=2)
    assert [rank.code for rank in left] == [0, 0], left[0].err
    (group,) = calls_of(workplace)[0]
    assert (group.group, group.group_ranks, group.backend, group.lost) == ("0", (0, 1), "gloo", 0)
    reduced, sent, received, barrier = group.calls
    assert (reduced.index, reduced.operation, reduced.reduce_op, reduced.dtype, reduced.shape, reduced.size_bytes) == (
        *(1, "all_reduce", "MAX"),
        *("float32", (3, 2), 24),
    )
    assert (str(reduced.site), reduced.site.callers) == (f"{script}:4 in mean", (f"{script}:5",))
    assert (sent.index, sent.operation, sent.root, sent.dtype, sent.site.line) == (2, "broadcast", 1, "int64", 6)
    assert (received.index, received.operation, received.root) == (0, "send", 1)
    assert (barrier.index, barrier.operation, barrier.dtype, barrier.site.line) == (3, "barrier", None, 8)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.wide), 3])
def test_right_programs_have_no_divergence(workplace, world_size):
    left = workplace.run("idioms.py", world_size=world_size)
    assert [rank.code for rank in left] == [0] * world_size, left[0].err
    calls = calls_of(workplace)
    assert {len(of_rank) >= 2 for of_rank in calls.values()} == {True}
    assert diverged(calls) == ()


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("how", "differs", "runs_through"),
    [
        ("swapped", {}, True),
        pytest.param("operation", {"reduce_op": {"SUM", "MAX"}}, True, marks=pytest.mark.wide),
        pytest.param("dtype", {"dtype": {"float32", "int32"}}, True, marks=pytest.mark.wide),
        pytest.param("shape", {"shape": {(4,), (8,)}}, False, marks=pytest.mark.wide),
        ("extra", {"shape": {(4,), (1,)}}, False),
    ],
)
def test_the_rings_hold_what_differs_also_where_it_ends_the_process(workplace, how, differs, runs_through):
    left = workplace.run("differ.py", how, world_size=2)
    assert (left[0].code == left[1].code == 0) == runs_through, left[0].err
    (divergence,) = diverged(calls_of(workplace))
    assert (divergence.index, divergence.ranks) == (11, (0, 1))
    for name, values in differs.items():
        assert {getattr(call, name) for call in divergence.calls.values()} == values
    if how == "swapped":
        assert {call.site.callers[0].rpartition(":")[2] for call in divergence.calls.values()} == {"23", "27"}


@pytest.mark.slow
def test_an_instrument_that_fails_is_dropped_and_the_call_goes_through(workplace, written):
    script = written(
        "import torch, torch.distributed as dist\n"
        "from paceline.worker.call_log import CallLog\n"
        "def broken(*args):\n"
        "    raise ValueError('no')\n"
        "CallLog.note = broken\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    assert "COLLECTIVES: ValueError: no" in header.failure


@pytest.mark.slow
def test_the_loader_of_the_steps_says_how_long_it_is(workplace, written):
    script = written(
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "training = DataLoader(TensorDataset(torch.ones(40, 2)), batch_size=2)\n"
        "other = DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=3)\n"
        "for (batch,) in training:\n"
        "    model(batch).sum().backward()\n"
        "    optimizer.step()\n"
        "    list(other)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    assert (header.loader_batches, header.batch_size) == (20, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept", [pytest.param("num_workers=0", marks=pytest.mark.wide), "num_workers=1, persistent_workers=True"]
)
def test_a_rank_says_when_the_loader_of_its_steps_had_no_more(workplace, written, kept):
    script = written(
        "import torch\n"
        "from torch.utils.data import DataLoader, IterableDataset\n"
        "class Stream(IterableDataset):\n"
        "    def __iter__(self):\n"
        "        return iter(torch.ones(6, 2))\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        f"training = DataLoader(Stream(), batch_size=2, {kept})\n"
        "evaluation = DataLoader(torch.ones(8, 2), batch_size=2)\n"
        "for _ in range(2):\n"
        "    for batch in training:\n"
        "        model(batch).sum().backward()\n"
        "        optimizer.step()\n"
        "    list(evaluation)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    # The evaluation's loader runs out as well, and no step was made with it. One process alone is a rank from its first step on.
    assert (header.ran_out_steps, header.ran_out_batches, header.batches_taken) == (6, 2 + 4 + 3, 2 + 4 + 3 + 4)
