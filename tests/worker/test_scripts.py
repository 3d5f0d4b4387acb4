"""Unmodified scripts, started as an agent starts them: each becomes the ranks it means to be, and runs as without paceline."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from variants import all_but

from paceline.recording.ring import OPERATIONS, Basis, Instrument, RankPhase, RecordKind

pytestmark = pytest.mark.process


def steps(records):
    return [record.values for record in records if record.kind == RecordKind.STEP]


def test_the_ddp_tutorial_is_counted_and_timed(workplace):
    left = workplace.run("ddp_tutorial.py", world_size=2)
    assert [(rank.code, rank.out) for rank in left] == [(0, f"rank {rank} done, backend gloo\n") for rank in (0, 1)], (
        left
    )
    # Gloo's own lines on stderr are torch's; the worker server's are not there.
    assert "WorkerServer" not in left[0].err + left[1].err and "paceline" not in left[0].err
    assert len(workplace.rings) == 2
    for rank, (header, records) in enumerate(workplace.rings):
        assert (header.rank, header.world_size, header.local_rank, header.host) == (rank, 2, rank, "algo-1")
        assert (header.step_count, header.failure, header.dropped_instruments) == (20, "", Instrument(0))
        assert (header.exiting, header.exit_code, header.phase) == (True, 0, RankPhase.EXITING)
        assert header.communication_basis == Basis.WAITS_TIMED | Basis.DDP_SAMPLED
        assert header.worker_server and header.group_count == 1
        spent = header.data_total_ns + header.communication_total_ns + header.checkpoint_total_ns
        assert 0 < header.data_total_ns < spent <= header.step_total_ns
        assert header.collective_count > 0 and header.collective_bytes > 0
        assert [step[0] for step in steps(records)] == list(range(1, 21))
        assert sum(step[2] for step in steps(records)) == header.step_total_ns


@pytest.mark.slow
def test_ranks_of_mp_spawn_are_ranks_and_the_script_is_none(workplace):
    (left,) = workplace.run("spawn_inside.py")
    assert left.code == 0, left.err
    assert [(header.rank, header.world_size, header.step_count) for header, _ in workplace.rings] == [
        (0, 2, 5),
        (1, 2, 5),
    ]


@pytest.mark.wide
def test_an_error_in_a_spawned_rank_is_reported_with_the_childs_own_frame(workplace):
    (left,) = workplace.run("spawn_inside.py", "fail")
    assert left.code == 1
    (error,) = workplace.errors
    assert (error["type"], error["message"]) == ("ValueError", "the child's own reason")
    assert error["function"] == "train" and error["source"].startswith("raise ValueError")


@pytest.mark.wide
def test_an_error_before_a_spawned_ranks_own_code_is_at_the_line_that_spawned_it(workplace):
    (left,) = workplace.run("spawn_inside.py", "no-tuple")
    assert left.code == 1
    (error,) = workplace.errors
    assert error["type"] == "TypeError" and "positional argument" in error["message"]
    assert error["source"].startswith("mp.spawn(train, args=")


@pytest.mark.slow
def test_a_script_that_initialises_gloo_itself_may_do_so_twice(workplace):
    left = workplace.run("gloo_itself.py", world_size=2)
    for rank, process in enumerate(left):
        assert process.out.splitlines() == [f"{attempt} gloo gloo {rank} 2" for attempt in (0, 1)], process.err
    for header, _ in workplace.rings:
        assert (header.group_count, header.step_count, header.world_size) == (2, 0, 2)
        # all_reduce, broadcast and monitored_barrier, twice.
        assert header.collective_count >= 6 and header.failure == ""


@pytest.mark.slow
def test_a_shell_script_starts_ranks_too(workplace, written):
    shell = written(f'"$PYTHON" {Path(__file__).parent}/scripts/loops.py gan\necho done\n', "train.sh")
    (left,) = workplace.run("bash", shell, PYTHON=sys.executable)
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    assert (header.rank, header.step_count) == (0, 6)


@pytest.mark.slow
def test_fsdp2_is_counted_and_its_waits_are_timed(workplace):
    left = workplace.run("fsdp2.py", world_size=2)
    assert [rank.out for rank in left] == ["trained 0\n", "trained 1\n"], left[0].err
    for header, _ in workplace.rings:
        assert (header.step_count, header.failure) == (6, "")
        assert header.collective_count >= 6 * 4 and header.communication_total_ns > 0


def test_a_collective_that_holds_the_training_up_is_recorded_with_its_size(workplace, written):
    script = written(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(5): dist.all_reduce(torch.ones(4_000_000))\n"
        "dist.destroy_process_group()\n"
    )
    workplace.run(sys.executable, script, world_size=2)
    for _, records in workplace.rings:
        longest = max(
            (record for record in records if record.kind == RecordKind.COLLECTIVE), key=lambda record: record.values[2]
        )
        assert OPERATIONS[longest.code] == "allreduce" and longest.values[3] == 16_000_000


@pytest.mark.slow
def test_collectives_of_every_form_are_counted_once_and_called_by_their_name(workplace, written):
    script = written(
        "import torch, torch.distributed as dist\n"
        "from datetime import timedelta\n"
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook\n"
        "dist.init_process_group('gloo')\n"
        "with torch.sparse.check_sparse_tensor_invariants():\n"
        "    dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)))\n"
        "if dist.get_rank() == 0:\n"
        "    dist.recv(torch.ones(1), 1)\n"
        "else:\n"
        "    dist.send(torch.ones(1), 0)\n"
        "dist.monitored_barrier()\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
        "model.register_comm_hook(None, allreduce_hook)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(5): model(torch.ones(1, 1)).sum().backward(); optimizer.step()\n"
        "dist.destroy_process_group()\n"
    )
    workplace.run(sys.executable, script, world_size=2)
    for header, records in workplace.rings:
        # all_reduce, send or recv, monitored_barrier, and one bucket in each of five steps.
        assert (header.failure, header.collective_count) == ("", 3 + 5)
        waited = {OPERATIONS[record.code] for record in records if record.kind == RecordKind.COLLECTIVE}
        assert waited <= {"allreduce", "send", "recv", "monitored_barrier"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    ["aot_eager", *([pytest.param("inductor", marks=pytest.mark.wide)] if shutil.which("g++") else [])],
)
def test_torch_compile_makes_the_same_graphs_and_counts_compiled_optimizers(workplace, backend):
    (with_us,) = workplace.run("compiled.py", backend)
    ((header, _),) = workplace.rings
    (without_us,) = workplace.run("compiled.py", backend, PYTHONPATH="")
    (ddp, optimizer), (ddp_alone, optimizer_alone) = json.loads(with_us.out), json.loads(without_us.out)
    assert ddp == ddp_alone
    for kind in ("stats", "aot_autograd"):
        assert optimizer[kind] == optimizer_alone[kind]
    # The compiled optimizer is a second one, which takes over from the first.
    assert (header.step_count, header.failure) == (6 + 3, "")


@pytest.mark.wide
def test_torch_compile_makes_the_same_graphs_where_the_state_is_kept(workplace):
    workplace.keeps_state = True
    (with_us,) = workplace.run("compiled.py", "aot_eager")
    (kept,) = workplace.headers
    assert kept.steps() == (9, 8), with_us.err
    workplace.keeps_state = False
    (without_us,) = workplace.run("compiled.py", "aot_eager", PYTHONPATH="")
    (ddp, optimizer), (ddp_alone, optimizer_alone) = json.loads(with_us.out), json.loads(without_us.out)
    assert ddp == ddp_alone
    for kind in ("stats", "aot_autograd"):
        assert optimizer[kind] == optimizer_alone[kind]


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [pytest.param("fsdp1", marks=pytest.mark.wide), "fsdp2"])
def test_torch_compile_breaks_the_graph_of_a_sharded_model_nowhere_else(workplace, wrap):
    with_us, _ = workplace.run("compiled_sharded.py", wrap, world_size=2)
    assert with_us.code == 0 and [header.failure for header, _ in workplace.rings] == ["", ""], with_us.err
    without_us, _ = workplace.run("compiled_sharded.py", wrap, world_size=2, PYTHONPATH="")
    assert json.loads(with_us.out) == json.loads(without_us.out)


LOOPS = ("accumulation", "gan", "scaler", "folds", "pairs_of_folds", "joined_late")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("loop", all_but(["accumulation", "gan", "pairs_of_folds"], LOOPS))
def test_a_step_counts_once_however_often_optimizers_step(workplace, loop):
    (left,) = workplace.run("loops.py", loop)
    assert left.code == 0, left.err
    ((header, records),) = workplace.rings
    assert (header.rank, header.world_size, header.step_count, header.failure) == (0, 1, 6, "")
    counted = steps(records)
    assert [step[0] for step in counted] == [1, 2, 3, 4, 5, 6]
    assert [step[1] for step in counted] == sorted(step[1] for step in counted)
    assert sum(step[2] for step in counted) == header.step_total_ns


def test_a_checkpoint_is_timed_in_the_step_that_it_held_up(workplace, tmp_path):
    workplace.run("loops.py", "saving", str(tmp_path / "model.pt"))
    ((header, records),) = workplace.rings
    assert [step[0] for step in steps(records) if step[5]] == [4]
    assert header.checkpoint_total_ns == steps(records)[3][5] > 0
    assert [record.code for record in records if record.kind == RecordKind.PHASE] == [RankPhase.CHECKPOINT]


def test_a_script_without_torch_opens_no_ring_and_loads_nothing_of_paceline(workplace, written):
    script = written("import sys\nprint([name for name in sys.modules if 'paceline' in name], sys.path[1:2])\n")
    (left,) = workplace.run(sys.executable, script)
    assert left.out.startswith("[] ") and "worker/site" not in left.out and left.err == ""
    assert workplace.rings == []


@pytest.mark.slow
def test_forked_children_and_loader_workers_open_no_ring(workplace):
    (left,) = workplace.run("forks.py")
    assert (left.code, left.out) == (0, "child left with 7\n"), left.err
    ((header, _),) = workplace.rings
    # The child's own step is not the parent's, and its exit code neither.
    assert (header.step_count, header.exit_code) == (4, 0)


def test_a_rank_loads_only_paceline_the_standard_library_and_what_torch_loads(workplace):
    (with_us,) = workplace.run("modules.py")
    (without_us,) = workplace.run("modules.py", PYTHONPATH="")
    added = set(json.loads(with_us.out)) - set(json.loads(without_us.out))
    foreign = {
        name for name in added if name.partition(".")[0] not in sys.stdlib_module_names | {"paceline", "sitecustomize"}
    }
    assert foreign == set()
    assert {name for name in added if name.startswith("paceline")} >= {
        "paceline.worker.rank_recorder",
        "paceline.recording.ring",
    }
    assert not {name for name in added if name.startswith("paceline")} & {
        "paceline.cli",
        "paceline.launch",
        "paceline.facts",
    }


@pytest.mark.slow
def test_a_killed_ranks_ring_can_still_be_read(workplace):
    rank = workplace.start("killed.py")
    assert rank.stdout is not None and rank.stdout.readline() == "five\n"
    rank.kill()
    rank.communicate()
    ((header, records),) = workplace.rings
    assert (header.step_count, header.exiting, header.exit_code) == (5, False, None)
    assert len(steps(records)) == 5


@pytest.mark.slow
def test_host_names_of_the_run_resolve_without_an_etc_hosts(workplace, written):
    script = written(
        "import os, socket, torch.distributed as dist\n"
        "os.environ['MASTER_ADDR'] = 'algo-1'\n"
        "dist.init_process_group('gloo')\n"
        "print(dist.get_rank(), socket.getaddrinfo('algo-2', 80)[0][4][0], os.environ['MASTER_ADDR'])\n"
        "dist.destroy_process_group()\n"
    )
    addresses = json.dumps({"algo-1": "127.0.0.1", "algo-2": "127.0.0.3"})
    left = workplace.run(sys.executable, script, world_size=2, PACELINE_ADDRESSES=addresses)
    assert [rank.out for rank in left] == [f"{rank} 127.0.0.3 algo-1\n" for rank in (0, 1)], left[0].err


@pytest.mark.slow
def test_without_a_process_group_the_rank_is_watched_from_its_first_step_on(workplace, written):
    script = written(
        "import torch\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for index, batch in enumerate(torch.utils.data.DataLoader(torch.ones(8, 1))):\n"
        "    model(batch).sum().backward()\n"
        "    if index % 4 == 3: optimizer.step()\n"
    )
    workplace.run(sys.executable, script)
    ((header, records),) = workplace.rings
    first, second = steps(records)
    assert header.step_count == 2 and first[3] == 0 and second[3] > 0
