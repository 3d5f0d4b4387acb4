"""`paceline bench` with real ranks: tables, pairs, strategies on a script; a rank that dies."""

import json
import os
import re
import signal

import pytest

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(180)]

TRAINS = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def rows(text):
    """What a program that reads nccl-tests finds: size, count, type, reduction, root, then time, algbw, busbw, wrong twice."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s", line)]


def recordings(paceline):
    folder = paceline.directory / ".paceline" / "bench"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.smoke
def test_a_table_is_printed_and_checked_and_the_next_one_is_compared_with_it(paceline):
    argv = ("bench", "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", "-n", "5", "--size-time", "2s")
    done = paceline.run(*argv, "-g", "2", "-J", "out.json")
    assert done.code == 0, done.err
    found = rows(done.out)
    assert [(row[0], row[3]) for row in found] == [(size, "sum") for size in ("1024", "8192", "65536")]
    assert all(len(row) == 13 and row[8] == row[12] == "0" and float(row[5]) > 0 for row in found)
    assert "# Out of bounds values : 0 OK" in done.out and "# Avg bus bandwidth    : " in done.out
    facts = json.loads((paceline.directory / "out.json").read_text())
    assert facts["world"]["ranks"] == 2 and len(facts["results"]) == 3
    compared = json.loads(paceline.run(*argv, "--baseline", "out.json", "--json").out)["comparisons"][0]["comparison"]
    # On a busy machine a figure may be too noisy to judge; it is never left out.
    assert sorted([one["label"] for one in compared["figures"]] + compared["not_judged"]) == ["1K", "64K", "8K"]
    assert recordings(paceline) == [] and paceline.left() == []


@pytest.mark.gpu
def test_ranks_may_share_a_gpu_over_gloo(paceline):
    done = paceline.run(
        "bench", "all_reduce", "-e", "64K", "-f", "64", "-g", "2", "--backend", "gloo", "--device", "cuda"
    )
    assert done.code == 0 and "tensors on cuda" in done.out, done.err
    assert all(row[8] == row[12] == "0" and float(row[5]) > 0 for row in rows(done.out))


@pytest.mark.wide
def test_hosts_are_measured_pair_by_pair(paceline):
    done = paceline.run("bench", "--pairs", "-e", "64K", "-n", "3", "--local-hosts", "3", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert [(one["a"], one["b"]) for one in facts["pairs"]] == [
        ("algo-1", "algo-2"),
        ("algo-1", "algo-3"),
        ("algo-2", "algo-3"),
    ]
    assert all(one["gb_per_second"] > 0 and one["latency_seconds"] > 0 for one in facts["pairs"])
    assert facts["slow"] is not None and paceline.left() == []


def test_a_backend_that_is_not_there_is_refused_by_the_ranks(paceline):
    done = paceline.run("bench", "all_reduce", "-e", "8", "--backend", "glo")
    assert done.code == 2 and "error[X03]: the backend glo is not there" in done.err
    assert "--backend gloo" in done.err and recordings(paceline) == []


def test_a_rank_that_dies_ends_the_bench_with_its_reason_and_code_3(paceline):
    job = paceline.start("bench", "all_reduce", "-b", "8", "-e", "8", "-n", "100000000", "--size-time", "10m")
    job.until(lambda: bool(re.search(r"Rank  1 .* Pid +(\d+) on", job.out)))
    os.kill(int(re.search(r"Rank  1 .* Pid +(\d+) on", job.out)[1]), signal.SIGKILL)
    done = job.wait()
    assert done.code == 3 and "error[X05]" in done.err and "SIGKILL" in done.err, done.err
    assert re.search(r"next +paceline why r-", done.err) and len(recordings(paceline)) == 1
    assert paceline.left() == []


@pytest.mark.wide
def test_strategies_are_compared_on_a_script_and_one_that_fails_has_its_reason(paceline):
    script = paceline.script("train.py", TRAINS)
    argv = ("bench", "step", "--gradients", "ring", "--steps", "5", "--rounds", "1", "-J", "out.json")
    done = paceline.run(*argv, script, "1000000")
    assert done.code == 0, done.err
    facts = json.loads((paceline.directory / "out.json").read_text())
    plain, ring = facts["strategies"]
    assert plain["step_count"] == 5 and plain["step_seconds"] > 0 and plain["times_plain"] == 1.0
    assert ring["gradients"] == "ring" and (ring["step_seconds"] or ring["failure"])
    assert "GRADIENTS" in done.out and "take  " in done.out and paceline.left() == []


def test_a_script_that_does_not_run_is_not_enough_evidence(paceline):
    script = paceline.script("broken.py", "raise ValueError('no data')\n")
    done = paceline.run("bench", "step", "--gradients", "ring", script)
    assert done.code == 3 and "error[X05]" in done.err and "no data" in done.err
