"""The container side for real: SageMaker's own training toolkit starts our entry point on an /opt/ml of its own, on two hosts."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from sagemaker_containers import RUN_ID, Container, Containers, a_job, first_process

from paceline.errors import UsageError
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

pytestmark = pytest.mark.engine

TRAINS = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank = dist.get_rank()
print("rank", rank, "of", int(total), "on", os.environ["SM_CURRENT_HOST"], sys.argv[1:], flush=True)
assert open(os.environ["SM_CHANNEL_TRAIN-DATA"] + "/part").read() == "x"
if rank == 0:
    torch.save(total, os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()
"""
FAILS = """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("no such luck")
time.sleep(300)
"""
WAITS = """
import os, signal, sys, time
def leave(number, frame):
    print("rank", os.environ["RANK"], "got", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("rank", os.environ["RANK"], "is ready", flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="session")
def toolkit_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the toolkit and with this one's torch: $PACELINE_TOOLKIT_PYTHON, this one, or one that is made now."""
    if named := os.environ.get("PACELINE_TOOLKIT_PYTHON"):
        return named
    if importlib.util.find_spec("sagemaker_training") and importlib.util.find_spec("sagemaker_pytorch_container"):
        return sys.executable
    directory = tmp_path_factory.mktemp("toolkit")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    python = directory / "bin" / "python"
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "zz_of_the_suite.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "sagemaker-training", "sagemaker_pytorch_training"]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"the toolkit cannot be installed: {done.stderr[-300:]}")
    return str(python)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        with Hosts(2) as hosts:
            yield hosts
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")


@pytest.fixture
def containers(hosts: Hosts, toolkit_python: str, tmp_path: Path) -> Iterator[Containers]:
    found = Containers(hosts, tmp_path, toolkit_python)
    yield found
    found.close()


def by_toolkit(containers: Containers, job, **options) -> list[Container]:
    return [containers.by_toolkit(index, tree) for index, tree in enumerate(containers.lay(job, **options))]


def test_the_toolkit_starts_a_job_of_two_hosts_and_everything_is_where_sagemaker_looks_for_it(containers, tmp_path):
    job = a_job(tmp_path, TRAINS, hyperparameters={"name": "it's", "lr": 0.1}, arguments=("--mine",))
    first, second = by_toolkit(containers, job, channels=["train-data"])
    assert first.wait() == 0 and second.wait() == 0, first.out + second.out
    argv = ["--mine", "--lr", "0.1", "--name", "it's"]
    assert f"rank 0 of 2 on algo-1 {argv}" in first.out
    assert f"rank 1 of 2 on algo-2 {argv}" in second.out
    assert (first.tree / "model/model.pt").stat().st_size and not list((second.tree / "model").iterdir())
    assert (first.tree / "output/success").exists() and not first.failure
    # What output.tar.gz of all hosts would hold: one recording.
    run, events, missing = read_run((RunDirectory(first.recording), RunDirectory(second.recording)))
    assert (run.id, run.exit_code, missing) == (RUN_ID, 0, ())
    assert {event["host"] for event in events if event["event"] == "rank_exited"} == {"algo-1", "algo-2"}
    assert "the agents' secret" not in first.out + second.out


def test_a_failing_rank_is_named_in_the_failure_file_of_every_host(containers, tmp_path):
    first, second = by_toolkit(containers, a_job(tmp_path, FAILS))
    assert first.wait() == 1 and second.wait() == 1
    for container in (first, second):
        assert container.failure.startswith("rank 1 on algo-2 raised ValueError: no such luck"), container.out
        assert re.search(r"train\.py:4 in <module>\n    raise ValueError", container.failure)
        assert len(container.failure) <= 1024
    assert read_run((RunDirectory(first.recording),))[0].exit_code == 1


def test_sigterm_that_ends_the_toolkit_reaches_python_in_each_rank(containers, tmp_path):
    first, second = by_toolkit(containers, a_job(tmp_path, WAITS, ranks_per_host="2"))
    first.until(lambda: (first.out + second.out).count("is ready") == 4)
    first.process.send_signal(signal.SIGTERM)
    # The toolkit itself dies of it at once; what it printed on behalf of its child is gone with it, the recording is not.
    first.wait()
    second.wait()
    logs = {number: first.recording / f"hosts/algo-1/attempt_0/rank_{number}.out" for number in (0, 1)}
    logs |= {number: second.recording / f"hosts/algo-2/attempt_0/rank_{number}.out" for number in (2, 3)}
    second.until_ended(lambda: all(f"rank {number} got SIGTERM" in file.read_text() for number, file in logs.items()))
    second.until_ended(lambda: read_run((RunDirectory(first.recording),))[0].exit_code == 204)


def test_as_the_first_process_of_a_container_the_agent_is_told_to_end(containers, tmp_path):
    job = a_job(tmp_path, WAITS, hosts=1, ranks_per_host="2")
    (tree,) = containers.lay(job, start="direct")
    container = containers.direct(0, tree)
    container.until(lambda: container.out.count("is ready") == 2)
    os.kill(first_process(container), signal.SIGTERM)
    assert container.wait() == 204
    assert container.out.count("got SIGTERM") == 2
    assert "stopped by SIGTERM" in container.failure or "SIGTERM at the agent" in container.failure


def test_the_users_requirements_are_installed_where_nobody_else_does(containers, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/requirements.txt").write_text("./no-such-package\n")
    (tree,) = containers.lay(a_job(tmp_path, "print('trained')\n", hosts=1), start="direct")
    container = containers.direct(0, tree)
    assert container.wait() == 2
    assert "requirements.txt failed to install" in container.failure and "no-such-package" in container.out


def test_the_job_that_was_shipped_is_the_one_that_ran(containers, tmp_path):
    (tree,) = containers.lay(a_job(tmp_path, "print('trained')\n", hosts=1), start="direct")
    container = containers.direct(0, tree)
    assert container.wait() == 0, container.out
    document = json.loads((container.recording / "run.json").read_text())
    shipped = json.loads((tree / "code/paceline_job.json").read_text())["job"]
    ran = json.loads((tree / "code/.paceline_agent/job.json").read_text())
    assert ran["job"].pop("contract") == {} and ran == shipped
    assert document["command"][2:5] == ["--set", "opt_ml=true", "--run-dir"] and document["run_id"] == shipped["run_id"]
