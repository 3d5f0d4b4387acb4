"""`paceline check --engine slurm` on a real cluster of two nodes: what it finds there, and that it leaves nothing in the queue."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from slurm_cluster import SlurmCluster, missing
from submissions import a_submission

from paceline.facts import Program, ProgramKind
from paceline.parts.engines.conformance import check_hosts
from paceline.parts.engines.slurm import engine as slurm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(200)]

SMALL_SHM = "8m"
CHECK = (
    sys.executable,
    "-m",
    "paceline",
    "check",
    "--json",
    "--fail-on",
    "never",
    "--engine",
    "slurm",
    "--nnodes",
    "2",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, make_user_environment) -> Iterator[SlurmCluster]:
    if (why := missing()) is not None:
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("slurm")
    with SlurmCluster(directory, make_user_environment(directory / "state")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def empty_queue(cluster):
    yield
    cluster.command("scancel", "--user=root", check=False)
    cluster.all_up()


def check(cluster: SlurmCluster, *argv: str, **environment: str) -> dict:
    done = subprocess.run(
        [*CHECK, *argv], env={**cluster.environ, **environment}, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def found(answer: dict) -> set[tuple[str, str]]:
    return {(one["code"], one["what"]) for one in answer["findings"]}


def queue(cluster: SlurmCluster) -> list[str]:
    return cluster.command("squeue", "--noheader", "--format=%j %t").splitlines()


def until_gone(cluster: SlurmCluster) -> None:
    cluster.until(lambda: not [job for job in queue(cluster) if job.startswith("paceline-check")], 20)


@contextmanager
def all_nodes_in_use(cluster: SlurmCluster) -> Iterator[str]:
    """A job that holds both nodes; its number."""
    argv = ("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")
    number = cluster.command(*argv).strip()
    cluster.until(lambda: queue(cluster) == ["wrap R"])
    yield number
    cluster.command("scancel", number)


def run_on(cluster: SlurmCluster, index: int, *argv: str) -> None:
    assert cluster.hosts.run_in(index, argv).wait() == 0, argv


def test_two_nodes_are_looked_at_as_the_contract_says(cluster):
    job = a_submission(program=Program(kind=ProgramKind.SCRIPT, target="train.py"), hosts=2)
    seen = check_hosts(slurm.engine(cluster.environ, {}), job)
    assert [host.name for host in seen.hosts] == list(cluster.node_names)
    assert all(link.delay_seconds and link.bytes_per_second for link in seen.links)
    until_gone(cluster)


def test_the_options_of_the_job_choose_the_nodes(cluster):
    options = {"nodelist": "algo-3", "time": "500", "array": "0-3", "sbatch.comment": "not for salloc"}
    job = a_submission(program=Program(kind=ProgramKind.SCRIPT, target="train.py"), engine_options=options)
    assert [host.name for host in check_hosts(slurm.engine(cluster.environ, {}), job).hosts] == ["algo-3"]


def test_another_torch_on_one_node_a_closed_way_and_a_small_shm_are_found(cluster, tmp_path):
    first, second = cluster.node_names
    distribution = tmp_path / second / "torch-0.4.1.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.4.1\n")
    closed = ("unreachable", cluster.hosts.address(1))
    run_on(cluster, 2, "ip", "route", "add", *closed)
    run_on(cluster, 2, "mount", "-t", "tmpfs", "-o", f"size={SMALL_SHM}", "tmpfs", "/dev/shm")
    try:
        answer = check(cluster, "--option", f'setup=export PYTHONPATH="{tmp_path}/$SLURMD_NODENAME"')
    finally:
        run_on(cluster, 2, "umount", "/dev/shm")
        run_on(cluster, 2, "ip", "route", "del", *closed)
    assert ("K37", f"{second} cannot connect to {first}") in found(answer)
    assert ("K37", f"{first} cannot connect to {second}") in found(answer)
    assert ("K30", "the hosts have different versions of torch") in found(answer)
    assert f"{second} 0.4.1" in next(one["saw"] for one in answer["findings"] if one["code"] == "K30")
    assert any(code == "K34" and what.startswith(f"/dev/shm of {second}") for code, what in found(answer))
    until_gone(cluster)


def test_nodes_that_other_jobs_use_are_not_judged_and_nothing_waits_for_them(cluster):
    with all_nodes_in_use(cluster):
        answer = check(cluster, "--wait", "2s")
        assert queue(cluster) == ["wrap R"]
    assert not answer["findings"] and not answer["silent"]
    assert {one["missing"] for one in answer["not_judged"]} == {"the nodes of the job: no 2 nodes were free within 2 s"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_check_that_is_stopped_while_it_waits_leaves_nothing_in_the_queue(cluster, number):
    with all_nodes_in_use(cluster):
        checking = subprocess.Popen([*CHECK, "--wait", "6s"], env=cluster.environ, stderr=subprocess.DEVNULL)
        cluster.until(lambda: "paceline-check PD" in queue(cluster))
        checking.send_signal(number)
        assert checking.wait(20) == (130 if number is signal.SIGINT else -number)
        until_gone(cluster)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_check_that_is_stopped_while_it_looks_gives_the_nodes_back(cluster, tmp_path, number):
    waits = f'setup=touch "{tmp_path}/$SLURMD_NODENAME"; sleep 600'
    checking = subprocess.Popen([*CHECK, "--option", waits], env=cluster.environ, stderr=subprocess.DEVNULL)
    cluster.until(lambda: all((tmp_path / name).exists() for name in cluster.node_names))
    checking.send_signal(number)
    assert checking.wait(30) == (130 if number is signal.SIGINT else -number)
    until_gone(cluster)


def test_inside_an_allocation_its_nodes_are_looked_at_and_nothing_is_asked_of_the_queue(cluster):
    with all_nodes_in_use(cluster) as number:
        inside = {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": "algo-[2-3]"}
        answer = check(cluster, **inside)
        assert queue(cluster) == ["wrap R"]
    assert {"K30", "K37", "K39"} <= set(answer["silent"]), answer


def test_a_python_that_one_node_does_not_have_is_named_with_that_node(cluster):
    answer = check(cluster, "--option", "python=/nonexistent/python")
    assert found(answer) == {("E11", f"no program could be started on the node {name}") for name in cluster.node_names}
    assert all("/nonexistent/python" in one["saw"] for one in answer["findings"]), answer["findings"]
    assert not answer["silent"] and len(answer["not_judged"]) == 10


@pytest.mark.parametrize(
    ("argv", "code"),
    [(("--option", "partition=nope"), "E34"), (("--nnodes", "3"), "E33"), (("--option", "mem=99G"), "E33")],
)
def test_what_slurm_would_refuse_of_the_job_is_found_before_it(cluster, argv, code):
    answer = check(cluster, *argv)
    assert [one["code"] for one in answer["findings"]] == [code] and len(answer["not_judged"]) == 10


def test_a_machine_without_slurm_says_so(cluster, tmp_path):
    answer = check(cluster, PATH=str(tmp_path))
    assert {one["code"] for one in answer["findings"]} == {"E01"}
    assert os.listdir(tmp_path) == []
