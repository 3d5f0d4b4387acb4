"""Two hosts with networks, names and directories of their own: network namespaces joined by a pair of virtual links."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.fault]

DDP = Path(__file__).parent.parent / "worker" / "scripts" / "ddp_tutorial.py"
WAITS = "import os, time\nprint('rank', os.environ['RANK'], flush=True)\ntime.sleep(300)\n"


def ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)


@dataclass
class Network:
    names: tuple[str, str]
    addresses: tuple[str, str] = ("10.77.0.1", "10.77.0.2")

    def on(self, host: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.names[host])

    def cut(self) -> None:
        ip("-n", self.names[0], "link", "set", "eth0", "down")


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    mark = f"pl{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", f"{mark}a"], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no network namespaces here: {tried.stderr.strip()}")
    network = Network((f"{mark}a", f"{mark}b"))
    try:
        ip("netns", "add", network.names[1])
        for name in network.names:
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "-n",
            network.names[0],
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            network.names[1],
        )
        for name, address in zip(network.names, network.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield network
    finally:
        for name in network.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def start_both(paceline, network, script, **environment):
    jobs = []
    for host in (0, 1):
        directory = paceline.directory / f"host{host}"
        directory.mkdir()
        options = [
            "--nnodes",
            "2",
            "--node-rank",
            str(host),
            "--master-addr",
            network.addresses[0],
            "--nproc-per-node",
            "2",
        ]
        more = {"GLOO_SOCKET_IFNAME": "eth0", "PACELINE_TOKEN": "a secret of this test", **environment}
        jobs.append(paceline.start("run", *options, script, cwd=directory, prefix=network.on(host), **more))
    return jobs


def test_two_hosts_train_over_a_network_and_either_directory_tells_of_the_run(paceline, network):
    first, second = start_both(paceline, network, str(DDP))
    assert first.wait().code == 0 and second.wait().code == 0, first.err + second.err
    assert "4 ranks on 2 hosts" in first.err and "10 steps" in first.err
    assert "ended with 0" in second.err
    (there,) = (paceline.directory / "host1" / ".paceline" / "runs").iterdir()
    here = paceline.run("logs", "--dir", str(there), cwd=paceline.directory / "host0")
    assert all(f"rank {rank} done" in here.out for rank in range(4))
    alone = paceline.run("logs", "--stdout", cwd=paceline.directory / "host0")
    assert all(f"rank {rank} done" in alone.out for rank in range(4)), "log tails were streamed to the first host"


@pytest.mark.slow
def test_a_cut_link_is_noticed_by_both_sides_and_nothing_is_left(paceline, network):
    first, second = start_both(paceline, network, paceline.script("waits.py", WAITS))
    first.until(lambda: (first.out + second.out).count("rank") == 4)
    network.cut()
    assert first.wait(40).code == 200 and second.wait(40).code == 200
    assert "was silent for 10 s" in first.err and "was silent for 10 s" in second.err
    assert paceline.left() == []


@pytest.mark.slow
def test_an_address_of_another_host_is_said_to_be_one(paceline, network):
    options = ["--nnodes", "2", "--master-addr", "10.77.0.99"]
    job = paceline.start("run", *options, paceline.script("waits.py", WAITS), prefix=network.on(0))
    job.until(lambda: "waiting for hosts" in job.err, timeout=20)
    assert "10.77.0.99 is not an address of this host" in job.err
