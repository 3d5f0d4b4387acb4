"""The Ray engine on a cluster of three hosts on this machine, and on a Ray that starts with the job."""

import signal
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from going_on import GoingOn
from patience import patient
from ray_cluster import RayCluster, submission
from submissions import changed

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_cancel, check_ends, check_plan, check_refused
from paceline.parts.engines.detached import REFUSED_FILE
from paceline.parts.engines.package import package
from paceline.parts.engines.ray.cluster import refuse_strangers
from paceline.recording.evidence import evidence
from paceline.recording.runs import read_document

pytest.importorskip("ray", reason="the extra [ray] is not installed")
pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

NUMBERS = count(1)
# In seconds, on a machine that has other work: agents miss each other after a few seconds of silence, Ray after many more.
NOTICED = 25.0
LASTING = """\
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(8)
print("going", os.environ["RANK"], os.environ["SECRET_OF_THE_JOB"], flush=True)
again = os.environ["PACELINE_RUN_ID"].endswith(".2")
for step in range(10 if again else 10**9):
    dist.all_reduce(value / 2)
    time.sleep(0.05)
print("done again", os.environ["RANK"], flush=True)
dist.destroy_process_group()
os._exit(0)
"""
FAILING = """\
import os
if os.environ["RANK"] == "1":
    raise ValueError("the data are not there")
import time
time.sleep(60)
"""
SECRET = "s3cr3t-value-of-this-job"


@pytest.fixture(scope="module")
def three_hosts(make_user_environment, tmp_path_factory):
    from paceline.errors import UsageError

    environment = make_user_environment(tmp_path_factory.mktemp("state"))
    try:
        cluster = RayCluster(2, environment).__enter__()
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(three_hosts):
    yield three_hosts
    three_hosts.end_jobs()


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    (folder / "lasting.py").write_text(LASTING)
    (folder / "failing.py").write_text(FAILING)
    return folder


@pytest.fixture
def root(tmp_path):
    return tmp_path / ".paceline" / "runs"


@pytest.fixture
def run_id():
    return f"r-0f{next(NUMBERS):04x}"


def test_two_nodes_train_digits_and_the_recording_of_both_is_here(cluster, examples, root, run_id):
    held = cluster.hold(submission(run_id, "digits_ddp.py", "--epochs", "10"), root, examples)
    assert held.wait(90) == 0, held.log
    assert "test accuracy" in held.log
    found = evidence(held.run_dir)
    assert found.run.exit_code == 0
    hosts = {path.name for path in (held.run_dir / "hosts").iterdir()}
    assert len(hosts) == 2
    assert {path.parent.parent.name for path in held.run_dir.glob("hosts/*/attempt_0/rank_*.seg")} == hosts
    assert len({rank.rank for rank in found.ranks}) == 2
    cluster.until_nothing_is_left()


def test_a_failing_script_gives_its_code_and_reason_and_is_not_retried(cluster, code, root, run_id):
    held = cluster.hold(submission(run_id, "failing.py", retries=2), root, code)
    assert held.wait(60) == 1, held.log
    errors = [path.read_text() for path in held.run_dir.glob("hosts/*/attempt_0/rank_1.err")]
    assert len(errors) == 1 and "the data are not there" in errors[0]
    assert "rank 1" in evidence(held.run_dir).run.reason
    assert [path.name for path in root.iterdir() if path.is_dir()] == [run_id]
    cluster.until_nothing_is_left()


@pytest.mark.parametrize("address", ["10.77.0.1:9", "10.77.0.200:6379"])
def test_an_address_that_nobody_answers_at_is_refused_within_seconds(cluster, code, root, run_id, address):
    began = time.monotonic()
    job = submission(run_id, "lasting.py", engine_options={"address": address})
    held = cluster.hold(job, root, code)
    assert held.wait(30) == 2
    refusal = read_document(held.run_dir / REFUSED_FILE)
    assert refusal["code"] == "E10" and address in refusal["what"] and refusal["next"]
    assert time.monotonic() - began < 15


def test_a_machine_that_is_no_node_is_told_how_to_become_one(cluster, code, root, run_id):
    held = cluster.hold(submission(run_id, "lasting.py"), root, code, on=cluster.workers + 1)
    assert held.wait(30) == 2, held.log
    refusal = read_document(held.run_dir / REFUSED_FILE)
    assert refusal["code"] == "E10" and refusal["next"] == f"ray start --address {cluster.address} --num-cpus 0"


def test_resources_that_no_node_has_are_refused_with_what_there_is(cluster, code, root, run_id):
    options = {"cpus_per_host": "64"}
    held = cluster.hold(submission(run_id, "lasting.py", engine_options=options), root, code)
    assert held.wait(60) == 2, held.log
    refusal = read_document(held.run_dir / REFUSED_FILE)
    assert refusal["code"] == "E33"
    assert "64 CPU" in refusal["what"] and "10.77.0.2: 1 CPU" in refusal["saw"] and "10.77.0.3: 1 CPU" in refusal["saw"]


def test_a_cancelled_job_ends_in_order_and_its_secret_is_nowhere(cluster, code, root, run_id):
    held = cluster.hold(submission(run_id, "lasting.py", environment={"SECRET_OF_THE_JOB": SECRET}), root, code)
    held.until_said("going 0")
    held.process.send_signal(signal.SIGTERM)
    assert held.wait(60) == 204, held.log
    assert "SIGTERM at the agent" in evidence(held.run_dir).run.reason
    cluster.until_nothing_is_left()
    # The script printed it; nobody else did.
    said = [line for line in held.log.splitlines() if SECRET in line and "going" not in line]
    assert not said, said
    assert not [path for path in held.run_dir.glob("*.json") if path.name != "told.json" and SECRET in path.read_text()]


def test_a_keeper_that_is_killed_leaves_nothing_on_any_node(cluster, code, root, run_id):
    held = cluster.hold(submission(run_id, "lasting.py", environment={"SECRET_OF_THE_JOB": "x"}), root, code)
    held.until_said("going 0")
    held.process.kill()
    assert held.wait(10) == -signal.SIGKILL
    cluster.until_nothing_is_left()


def test_a_lost_node_is_retried_on_the_nodes_that_are_there_then(cluster, code, root, run_id):
    job = submission(run_id, "lasting.py", retries=1, environment={"SECRET_OF_THE_JOB": "x"})
    held = cluster.hold(job, root, code)
    held.until_said("going 0")
    lost = node_of(held, rank=1)
    began = time.monotonic()
    cluster.power_off(lost)
    held.until_said("retry 1 of 1", NOTICED)
    noticed = time.monotonic() - began
    cluster.power_on(lost)
    assert held.wait(90) == 0, held.log
    assert noticed < NOTICED
    assert "done again 0" in held.log
    first = evidence(held.run_dir).run
    assert first.exit_code == 200, first
    again = evidence(held.run_dir.with_name(f"{run_id}.2")).run
    assert again.exit_code == 0
    assert f"{run_id}.2" in (held.run_dir / "events.jsonl").read_text()
    cluster.wait_for_nodes(3)
    cluster.until_nothing_is_left()


@pytest.mark.wide
def test_a_retry_on_another_node_goes_on_at_the_saved_step(cluster, root, run_id, tmp_path):
    going_on, kept = GoingOn(tmp_path), tmp_path / "kept"
    fields = {"hosts": 1, "retries": 1, "resume": True, "checkpoint_url": kept.as_uri()}
    held = cluster.hold(submission(run_id, "train.py", *going_on.arguments, **fields), root, going_on.code)
    going_on.until_saved(lambda: [kept / ".paceline/state"], lambda: held.log)
    lost = node_of(held, rank=0)
    cluster.power_off(lost)
    held.until_said("retry 1 of 1", patient(NOTICED))
    going_on.go()
    assert held.wait(patient(90)) == 0, held.log
    going_on.check(root / f"{run_id}.2")
    cluster.power_on(lost)
    cluster.wait_for_nodes(3)


def test_the_first_host_powered_off_is_named_and_ends_the_job_with_200(cluster, code, root, run_id):
    held = cluster.hold(submission(run_id, "lasting.py", environment={"SECRET_OF_THE_JOB": "x"}), root, code)
    held.until_said("going 0")
    lost = node_of(held, rank=0)
    began = time.monotonic()
    cluster.power_off(lost)
    assert held.wait(60) == 200, held.log
    assert time.monotonic() - began < NOTICED
    refusal = read_document(held.run_dir / REFUSED_FILE)
    assert refusal["kind"] == "HostLost" and cluster.hosts.address(lost) in refusal["what"]
    run = evidence(held.run_dir).run
    assert run.exit_code == 200 and cluster.hosts.address(lost) in run.reason
    cluster.power_on(lost)
    cluster.wait_for_nodes(3)
    cluster.until_nothing_is_left()


class TestEmbedded:
    """The public contract suite, on a Ray of the job's own in the network of this machine."""

    @pytest.fixture
    def engine(self, user_environment):
        clean = {name: value for name, value in user_environment.items() if not name.startswith("RAY_")}
        return load("ray", clean, {})

    @pytest.fixture
    def job(self, code, tmp_path, run_id):
        shipped = package(code, tmp_path / "shipped.tar.gz")
        return replace(submission(run_id, "quick.py", hosts=1), package=shipped)

    @pytest.fixture(autouse=True)
    def quick(self, code):
        (code / "quick.py").write_text("print('quick')\n")

    def test_a_job_ends_with_its_code_and_no_token_stays_at_home(self, engine, job, root):
        check_plan(engine, job)
        home = Path.home() / ".ray"
        before = home.exists()
        check_ends(engine, job, root, seconds=60)
        assert home.exists() == before

    def test_a_cluster_that_strangers_can_read_starts_no_job(self, engine, job, root, monkeypatch):
        # Stands for a Ray that takes no notice of the token: whoever asks gets an answer.
        monkeypatch.setattr("paceline.parts.engines.ray.cluster._STRANGER", "")
        with pytest.raises(UsageError, match="lets strangers in"):
            refuse_strangers("127.0.0.1:1")

    def test_a_job_is_cancelled(self, engine, job, root):
        argv = ("-c", "import time; time.sleep(600)")
        program = Program(kind=ProgramKind.EXECUTABLE, target=sys.executable, arguments=argv)
        check_cancel(engine, changed(job, program=program), root, seconds=60)

    def test_a_cluster_that_is_not_there_is_refused_at_submission(self, user_environment, job, root):
        with_address = replace(job, engine_options={"address": "127.0.0.1:9"})
        engine = load("ray", user_environment, with_address.engine_options)
        check_refused(engine, with_address, root, "E10")


def node_of(held, rank: int) -> int:
    """The index of the cluster's host on which this rank's agent runs."""
    line = next(line for line in held.log.splitlines() if "on the Ray nodes" in line)
    return int(line.rpartition("nodes ")[2].split(", ")[rank].rpartition(".")[2]) - 1
