"""`paceline bench --rehearse` with real ranks: sizes are measured, failures are said with their reason, nothing is left running."""

import json
import signal
import time

import pytest
from patience import patient

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

TRAINS = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    if step == 4 and len(sys.argv) > 2 and dist.get_world_size() == int(sys.argv[2]) and dist.get_rank() == 1:
        raise ValueError("no more data")
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
ALONE = """
import sys, torch
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    layer(torch.randn(4, 8)).sum().backward()
    optimizer.step()
print("trained", flush=True)
"""
STUCK = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def rehearsal_of(paceline):
    (path,) = (paceline.directory / ".paceline" / "rehearsals").glob("rh-*/rehearsal.json")
    return json.loads(path.read_text())


def test_two_sizes_are_measured_and_larger_ones_predicted(paceline):
    script = paceline.script("train.py", TRAINS)
    done = paceline.run("bench", "--rehearse", "--json", "--steps", "5", "--predict", "4,8", script, "1000000")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert [size["measurement"]["devices"] for size in answer["sizes"]] == [1, 2]
    assert all(size["step_count"] >= 5 and size["measurement"]["step_seconds"] > 0 for size in answer["sizes"])
    assert [(one["devices"], one["tier"]) for one in answer["predictions"]] == [(4, 2), (8, 2)]
    assert len(answer["probe"]["points"]) > 10 and answer["probe"]["ranks"] == 2
    assert answer["script_hash"] and rehearsal_of(paceline)["sizes"] == answer["sizes"]
    planned = paceline.run("plan", "--json", "--rehearsal", "latest", "--devices-per-host", "1,2,4")
    assert [row["tier"] for row in json.loads(planned.out)["rows"]] == [2, 2, 2], planned.err
    assert paceline.left() == []


@pytest.mark.slow
def test_a_script_that_ends_by_itself_is_measured_as_far_as_it_went(paceline):
    script = paceline.script("alone.py", ALONE)
    done = paceline.run("bench", "--rehearse", "--json", "--sizes", "1", script, "12")
    assert done.code == 0, done.err
    assert json.loads(done.out)["sizes"][0]["step_count"] == 7
    # Its runs are found by their ids, and are never the newest.
    run_id = json.loads(done.out)["sizes"][0]["run_id"]
    assert json.loads(paceline.run("why", "--json").out)["next"] == "paceline run train.py"
    assert json.loads(paceline.run("ps", "--json").out)["runs"] == []
    assert run_id in {run["run_id"] for run in json.loads(paceline.run("ps", "--json", "--all").out)["runs"]}


@pytest.mark.slow
def test_a_script_that_fails_at_a_size_is_said_with_its_reason_and_the_sizes_before_it_are_kept(paceline):
    script = paceline.script("train.py", TRAINS)
    done = paceline.run("bench", "--rehearse", "--json", "--steps", "5", "--no-probe", script, "20", "2")
    assert done.code == 2
    error = json.loads(done.out)
    assert error["code"] == "X05" and "2 ranks" in error["what"]
    assert "rank 1 on localhost raised ValueError: no more data" in error["saw"] and "train.py" in error["saw"]
    assert error["next"].startswith("paceline why r-")
    assert [size["measurement"]["devices"] for size in rehearsal_of(paceline)["sizes"]] == [1]
    assert paceline.left() == []


@pytest.mark.slow
def test_too_few_steps_are_refused_with_their_number(paceline):
    script = paceline.script("alone.py", ALONE)
    done = paceline.run("bench", "--rehearse", "--sizes", "1", script, "6")
    assert done.code == 2
    assert "error[X05]: too few steps with 1 rank" in done.err and "6 were made" in done.err


@pytest.mark.slow
def test_a_script_without_steps_is_stopped_when_its_time_is_over(paceline):
    script = paceline.script("stuck.py", STUCK)
    done = paceline.run("bench", "--rehearse", "--sizes", "1", "--timeout", f"{patient(2):.0f}s", script)
    assert done.code == 2
    assert "error[X05]: no step was reported with 1 rank" in done.err and "paceline why r-" in done.err
    assert paceline.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal_it_leaves_nothing_running(paceline, number):
    script = paceline.script("stuck.py", STUCK)
    job = paceline.start("bench", "--rehearse", "--sizes", "1", script)
    logs = (paceline.directory / ".paceline").rglob
    job.until(lambda: any("ready" in path.read_text() for path in logs("rank_0.out")))
    job.process.send_signal(number)
    assert job.wait().code == 128 + number
    assert paceline.left() == []


@pytest.mark.slow
def test_killed_it_leaves_nothing_running(paceline):
    script = paceline.script("stuck.py", STUCK)
    job = paceline.start("bench", "--rehearse", "--sizes", "1", script)
    logs = (paceline.directory / ".paceline").rglob
    job.until(lambda: any("ready" in path.read_text() for path in logs("rank_0.out")))
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + patient(60)
    while paceline.left():
        assert time.monotonic() < deadline, paceline.left()
        time.sleep(0.05)


def test_what_run_would_refuse_is_refused_before_anything_is_started(paceline):
    done = paceline.run("bench", "--rehearse", "nowhere.py")
    assert done.code == 2 and "error[U02]" in done.err
    assert not (paceline.directory / ".paceline" / "rehearsals").exists()


@pytest.mark.slow
def test_hosts_are_rehearsed_on_this_machine_and_their_links_timed(paceline):
    script = paceline.script("train.py", TRAINS)
    done = paceline.run(
        "bench",
        "--rehearse",
        "--json",
        "--sizes",
        "1x1,2x1",
        "--steps",
        "5",
        "--no-probe",
        "--run-options",
        "--name small",
        script,
        "1000000",
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    shapes = [(size["measurement"]["hosts"], size["measurement"]["devices"]) for size in answer["sizes"]]
    assert shapes == [(1, 1), (2, 2)]
    assert [(one["hosts"], one["devices"]) for one in answer["predictions"]] == [(4, 4), (8, 8)]
    assert paceline.left() == []


@pytest.mark.wide
def test_the_probe_of_several_hosts_times_each_kind_of_link(paceline):
    out = paceline.directory / "curve.json"
    argv = ("--local-hosts", "2", "--nproc-per-node", "2", "-m", "paceline.parts.lab.worker.link_probe")
    done = paceline.run("run", *argv, "--out", str(out), "--largest", "65536")
    assert done.code == 0, done.err
    curve = json.loads(out.read_text())
    assert (curve["schema"], curve["hosts"], curve["ranks"]) == ("paceline.curve/1", 2, 4)
    assert [curve[part]["ranks"] for part in ("within", "among")] == [2, 2]
    for part in (curve, curve["within"], curve["among"]):
        assert [size for size, _ in part["points"]] == [4096, 8192, 16384, 32768, 65536]
        assert all(seconds > 0 for _, seconds in part["points"])
    planned = paceline.run(
        "plan",
        "--json",
        "--curve",
        str(out),
        "--measured-step-ms",
        "10",
        "--gradient-mib",
        "1",
        "--host-counts",
        "2",
        "--explain",
    )
    assert "measured" in planned.out and planned.code == 0, planned.err
