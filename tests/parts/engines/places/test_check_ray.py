"""`paceline check --engine ray` on a real cluster of two workers: what it finds there, and that it reserves nothing afterwards."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import RayCluster
from submissions import a_submission

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_hosts

pytest.importorskip("ray", reason="the extra [ray] is not installed")
pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

CHECK = (sys.executable, "-m", "paceline", "check", "--json", "--fail-on", "never", "--engine", "ray", "--nnodes", "2")
# Takes as many CPUs as it is told, then answers each line of input with the placement groups that are not removed.
HOLDS = """\
import json, sys, ray
from ray.util.placement_group import placement_group_table
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="CRITICAL")
@ray.remote(num_cpus=1)
class Holds:
    def is_here(self):
        return True
held = [Holds.remote() for _ in range(int(sys.argv[2]))]
ray.get([one.is_here.remote() for one in held])
print("[]", flush=True)
for line in sys.stdin:
    print(json.dumps([one["state"] for one in placement_group_table().values() if one["state"] != "REMOVED"]), flush=True)
"""
CONTRACT = """\
import json, os, sys
sys.path[:0] = json.loads(sys.argv[2])
from submissions import a_submission
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_hosts
job = a_submission(program=Program(kind=ProgramKind.SCRIPT, target="train.py"), hosts=2)
seen = check_hosts(load("ray", os.environ, {"address": sys.argv[1]}), job)
print(json.dumps([host.name for host in seen.hosts]))
"""
OTHER = 2


@pytest.fixture(scope="module")
def cluster(make_user_environment, tmp_path_factory) -> Iterator[RayCluster]:
    """Two workers, on one of which Python finds another torch."""
    path = tmp_path_factory.mktemp("other")
    (path / "torch-0.4.1.dist-info").mkdir()
    (path / "torch-0.4.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.4.1\n")
    made = RayCluster(2, make_user_environment(tmp_path_factory.mktemp("state")))
    made.own_variables[OTHER] = {"PYTHONPATH": str(path)}
    try:
        made.__enter__()
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")
    yield made
    made.close()


def check(cluster: RayCluster, tmp_path: Path, *argv: str) -> dict:
    out = tmp_path / "out"
    with out.open("wb") as file:
        checking = cluster.run_in(0, [*CHECK, "--option", f"address={cluster.address}", *argv], stdout=file)
        assert checking.wait(90) == 0
    return json.loads(out.read_text())


@contextmanager
def holder(cluster: RayCluster, cpus: int) -> Iterator[Callable[[], list[str]]]:
    """A driver that holds CPUs of the cluster; a function that returns the states of its placement groups."""
    argv = [sys.executable, "-c", HOLDS, cluster.address, str(cpus)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with cluster.hosts.run_in(0, argv, env=cluster.environment_of(0), **pipes) as process:

        def groups() -> list[str]:
            process.stdin.write("\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert process.stdout.readline() == "[]\n"
        yield groups
        process.stdin.close()
        assert process.wait(30) == 0


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.1)


def found(answer: dict) -> set[tuple[str, str]]:
    return {(one["code"], one["what"]) for one in answer["findings"]}


def test_two_nodes_are_looked_at_as_the_contract_says(cluster, tmp_path):
    argv = [sys.executable, "-c", CONTRACT, cluster.address, json.dumps(sys.path)]
    out = tmp_path / "out"
    with out.open("wb") as file:
        assert cluster.run_in(0, argv, stdout=file).wait(90) == 0
    assert sorted(json.loads(out.read_text())) == [cluster.hosts.address(1), cluster.hosts.address(2)]


def test_another_torch_on_one_node_a_closed_way_and_a_small_shm_are_found(cluster, tmp_path):
    first, second = cluster.hosts.address(1), cluster.hosts.address(OTHER)
    closed = ("unreachable", first)
    assert cluster.run_in(OTHER, ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", "/dev/shm"]).wait() == 0
    assert cluster.run_in(OTHER, ["ip", "route", "add", *closed]).wait() == 0
    try:
        answer = check(cluster, tmp_path)
    finally:
        cluster.run_in(OTHER, ["ip", "route", "del", *closed]).wait()
        cluster.run_in(OTHER, ["umount", "/dev/shm"]).wait()
    assert ("K37", f"{second} cannot connect to {first}") in found(answer)
    assert ("K30", "the hosts have different versions of torch") in found(answer)
    assert f"{second} 0.4.1" in next(one["saw"] for one in answer["findings"] if one["code"] == "K30")
    assert any(code == "K34" and what.startswith(f"/dev/shm of {second}") for code, what in found(answer))


def test_nodes_that_other_jobs_use_are_not_judged_and_nothing_waits_for_them(cluster, tmp_path):
    with holder(cluster, 2) as groups:
        answer = check(cluster, tmp_path, "--wait", "2s")
        until(lambda: groups() == [])
    assert not answer["findings"] and not answer["silent"]
    (missing,) = {one["missing"] for one in answer["not_judged"]}
    assert missing.startswith("the nodes of the job: no 2 nodes were free within 2 s")


def test_ctrl_c_while_it_waits_takes_the_request_back(cluster):
    with holder(cluster, 2) as groups:
        checking = cluster.run_in(
            0, [*CHECK, "--option", f"address={cluster.address}", "--wait", "10m"], stderr=subprocess.DEVNULL
        )
        until(lambda: groups() == ["PENDING"])
        checking.send_signal(signal.SIGINT)
        assert checking.wait(30) == 130
        until(lambda: groups() == [])


def test_what_the_cluster_can_never_hold_is_found_before_the_job(cluster, tmp_path):
    answer = check(cluster, tmp_path, "--option", "cpus_per_host=64")
    assert {one["code"] for one in answer["findings"]} == {"E33"} and len(answer["not_judged"]) == 10


def test_a_cluster_that_does_not_answer_is_found_within_seconds(cluster, tmp_path):
    answer = check(cluster, tmp_path, "--option", "address=10.77.0.1:9")
    assert {one["code"] for one in answer["findings"]} == {"E10"} and len(answer["not_judged"]) == 10


def test_a_ray_of_the_jobs_own_is_this_machine(user_environment):
    clean = {name: value for name, value in user_environment.items() if not name.startswith("RAY_")}
    job = a_submission(program=Program(kind=ProgramKind.SCRIPT, target="train.py"), hosts=1)
    assert len(check_hosts(load("ray", clean, {}), job).hosts) == 1
