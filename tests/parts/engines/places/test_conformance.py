"""What a drop-in for SageMaker's containers has to get right, where the toolkits of SageMaker are known to get it wrong.

Letters are those of the list that this suite follows: (a) encodings: tests/contract/test_hyperparameters.py, and here as they leave the
engine; (b) host order; (c) awkward names and values: tests/process/test_contract.py and test_sagemaker_toolkit.py; (d) a host that dies at
each stage; (e) SIGTERM: test_sagemaker_toolkit.py; (f) the time limit; (g) unequal shards: tests/contract/test_channels.py; (h) predicted
all-reduce times: tests/parts/plan/planner/test_collective.py.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from going_on import SCRIPT, GoingOn
from patience import patient
from sagemaker_containers import OPTIONS, Containers, a_job, first_process
from variants import all_but

from paceline.contract.hyperparameters import from_wire, to_arguments
from paceline.contract.tree import in_host_order, read_job
from paceline.errors import UsageError
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.sagemaker.engine.engine import engine
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

# value -> text on the wire, and what the script gets for it: SDK v2's framework estimators and its toolkit.
VECTORS = [
    (0.1, "0.1", "0.1"),
    ("bert base", '"bert base"', "bert base"),
    (True, "true", "True"),
    (None, "null", ""),
    ([1, "a"], '[1, "a"]', "[1, 'a']"),
    ({"b": 1, "a": "x y"}, '{"b": 1, "a": "x y"}', "a=x y,b=1"),
    ("5", '"5"', "5"),
    ("it's", '"it\'s"', "it's"),
]
# Joins both hosts, takes ten steps, saves; on algo-2 it stands still at the stage that the job names.
STAGES = """
import os, pathlib, sys, time
checkpoints = pathlib.Path("/opt/ml/checkpoints")
def stage(name):
    if (os.environ["SM_CURRENT_HOST"], name) == ("algo-2", sys.argv[1]):
        (checkpoints / name).touch()
        time.sleep(600)
stage("rendezvous")
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(11):
    if step == 10:
        stage("step 10")
    dist.all_reduce(torch.ones(1))
stage("save")
dist.barrier()
"""
LASTS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
BOUND_SECONDS = 45.0


@pytest.mark.parametrize(("value", "wire", "argument"), VECTORS)
def test_a_golden_vectors_pass_through_the_engine(tmp_path, value, wire, argument):
    job = a_job(tmp_path, "", hyperparameters={"key": value})
    sent = engine({}, OPTIONS).plan(job).document["HyperParameters"]
    assert sent["key"] == wire
    assert to_arguments(from_wire(sent), "v2") == ["--key", argument], "and no sagemaker_* beside it"


@pytest.mark.parametrize("count", [2, 12])
def test_b_ranks_are_unique_whatever_the_order_of_the_groups_hosts(tmp_path, count):
    names = [f"algo-{number}" for number in range(1, count + 1)]
    by_letter = sorted(names)
    ranks, masters = [], set()
    for name in names:
        config = tmp_path / name / "input/config"
        config.mkdir(parents=True)
        groups = [{"instance_group_name": "g", "instance_type": "t", "hosts": names[::-1]}]
        resources = {"current_host": name, "hosts": by_letter, "instance_groups": groups}
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        job = read_job(tmp_path / name)
        ranks.append(job.hosts.index(job.current_host))
        masters.add(job.hosts[0])
        ordered = in_host_order(job.resource_config, job.hosts)
        assert ordered["hosts"] == ordered["instance_groups"][0]["hosts"] == names
    assert ranks == list(range(count)) and masters == {"algo-1"}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        with Hosts(2) as hosts:
            yield hosts
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")


@pytest.fixture
def containers(hosts: Hosts, tmp_path: Path) -> Iterator[Containers]:
    found = Containers(hosts, tmp_path, sys.executable)
    yield found
    for index in range(2):
        hosts.mend(index)
    found.close()


@pytest.mark.engine
def test_d_a_host_that_dies_while_it_installs_never_arrives_and_is_named(containers, tmp_path):
    job = a_job(tmp_path, LASTS, join_timeout_seconds=8.0)
    first_tree, second_tree = containers.lay(job, start="direct")
    first = containers.direct(0, first_tree)
    second = containers.start(1, second_tree, ["sleep", "600"], as_first=True)
    first.until(lambda: "waiting for hosts" in first.out)
    second.process.kill()
    began = time.monotonic()
    assert first.wait() == 201 and time.monotonic() - began < BOUND_SECONDS
    assert "1 of 2 hosts never arrived" in first.failure, first.out


@pytest.mark.engine
@pytest.mark.parametrize("stage", all_but(["step 10"], ["rendezvous", "step 10", "save"]))
def test_d_a_host_that_dies_ends_the_job_within_a_bound_and_is_named(containers, hosts, tmp_path, stage):
    job = a_job(tmp_path, STAGES, arguments=(stage,))
    trees = containers.lay(job, start="direct")
    first, second = (containers.direct(index, tree) for index, tree in enumerate(trees))
    first.until(lambda: (trees[1] / "checkpoints" / stage).exists())
    # The power goes: its link first, or its kernel would still tell the others.
    hosts.cut(1)
    second.process.kill()
    began = time.monotonic()
    assert first.wait(BOUND_SECONDS) == 200, first.out
    assert time.monotonic() - began < BOUND_SECONDS
    assert "host algo-2 is lost" in first.failure and len(first.failure) <= 1024
    run, _, _ = read_run((RunDirectory(first.recording),))
    assert (run.exit_code, str(run.status)) == (200, "Failed")


@pytest.mark.engine
def test_f_a_time_limit_ends_as_what_it_is(containers, tmp_path):
    (tree,) = containers.lay(a_job(tmp_path, LASTS, hosts=1, max_run_seconds=2), start="direct")
    container = containers.direct(0, tree)
    assert container.wait() == 204, container.out
    run, _, _ = read_run((RunDirectory(container.recording),))
    assert (str(run.status), str(run.secondary_status)) == ("Stopped", "MaxRuntimeExceeded")
    assert "time limit" in container.failure or "--max-run" in container.failure
    assert "MaxRuntimeExceeded" in container.out and os.path.exists(container.recording / "events.jsonl")


@pytest.mark.engine
def test_a_container_that_follows_an_interrupted_one_goes_on_at_the_saved_step(containers, hosts, tmp_path):
    going_on = GoingOn(tmp_path)
    fields = {"hosts": 1, "resume": True, "checkpoint_url": "s3://jobs/kept", "arguments": going_on.arguments}
    job = a_job(tmp_path, SCRIPT, **fields)
    (tree,) = containers.lay(job, start="direct")
    first = containers.direct(0, tree)
    going_on.until_saved(lambda: [tree / "checkpoints/.paceline/state"], lambda: first.out)
    os.kill(first_process(first), signal.SIGTERM)
    assert first.wait(patient(60)) == 204, first.out
    going_on.go()
    # Another machine: nothing is left but what SageMaker had copied from the directory of checkpoints.
    (tmp_path / "following").mkdir()
    following = Containers(hosts, tmp_path / "following", sys.executable)
    (new_tree,) = following.lay(job, start="direct")
    shutil.copytree(tree / "checkpoints", new_tree / "checkpoints", dirs_exist_ok=True)
    second = following.direct(0, new_tree)
    containers.running.append(second)
    assert second.wait(patient(60)) == 0, second.out
    going_on.check(second.recording)
