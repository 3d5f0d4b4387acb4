"""`paceline run --local-hosts` with links of its own: what is delivered and told, who must be root, and that nothing stays behind."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from patience import patient

from paceline.errors import UsageError
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.probes.processes import read_stat

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.fault, pytest.mark.timeout(120)]

# A round trip of 20 ms keeps a transfer busy whatever else this machine does.
NETWORK = ("--local-hosts", "2", "--network")
LINKS = "50mbit,10ms"
EXCHANGES = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1 << 16)
dist.all_reduce(total)
names = ("PACELINE_HOST", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "SM_NETWORK_INTERFACE_NAME", "MASTER_ADDR")
limit = open("/proc/self/cgroup").read().count("/paceline-")
print(*(os.environ[name] for name in names), os.uname().nodename, int(total[0]), limit > 0, flush=True)
dist.destroy_process_group()
"""
WAITS = "import os, time\nprint(os.environ['PACELINE_RING_DIR'], flush=True)\ntime.sleep(300)\n"


@pytest.fixture(scope="module", autouse=True)
def emulation():
    try:
        with Hosts(1) as hosts:
            hosts.limit(0, cpus=1.0)
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")


def processes_of(launcher: int, paceline) -> list[int]:
    """What the launcher started, its agents and ranks by the test's mark, and what holds its hosts open by the launcher's."""
    found = paceline.left()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in found:
            try:
                if f"paceline-{launcher}-".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def groups_of(launcher: int) -> list[str]:
    walked = os.walk("/sys/fs/cgroup")
    return [name for _, inner, _ in walked for name in inner if name.startswith(f"paceline-{launcher}-")]


def test_two_hosts_get_the_network_that_was_asked_for_and_the_recording_tells_of_it(paceline):
    script = paceline.script("exchanges.py", EXCHANGES)
    limits = f"{LINKS},cpus=1,memory=2gib"
    finished = paceline.run("run", *NETWORK, limits, "--json", script, GLOO_SOCKET_IFNAME="lo")
    assert finished.code == 0, finished.err
    assert sorted(finished.out.splitlines()) == [
        f"algo-{number} eth0 eth0 eth0 algo-1 algo-{number} 2 True" for number in (1, 2)
    ]
    assert "network  2 hosts, 50 Mbit/s asked, " in finished.err and "limits   1 CPU and 2.0 GiB" in finished.err
    network = json.loads(finished.err.splitlines()[-1])["network"]
    assert network["asked"]["rate_mbit"] == 50.0 and network["zones"] == [["algo-1", "algo-2"]]
    for path in network["delivered"]["paths"]:
        assert path["rate_mbit"] == pytest.approx(50, rel=0.1), finished.err
        assert path["round_trip_ms"] == pytest.approx(20, rel=0.1), finished.err
    assert 0 < network["delivered"]["relay_cpu_fraction"] < 1
    assert "X34" not in finished.err
    assert [event["event"] for event in paceline.evidence().events].index("network") == 1


@pytest.mark.parametrize("who", ["the first agent", "the launcher"])
def test_a_crash_leaves_nothing(paceline, who):
    temporary = paceline.directory / "t"
    temporary.mkdir()
    limits = f"{LINKS},cpus=1,memory=1gib"
    job = paceline.start("run", *NETWORK, limits, paceline.script("waits.py", WAITS), TMPDIR=str(temporary))
    launcher = job.process.pid
    job.until(lambda: len(job.out.split()) == 2)
    rings = [Path(text) for text in job.out.split()]
    assert len(groups_of(launcher)) == 4 and all(path.exists() for path in rings)
    os.kill(launcher if who == "the launcher" else first_agent(launcher, paceline), signal.SIGKILL)
    assert job.wait(30).code == (-signal.SIGKILL if who == "the launcher" else 200)
    until(lambda: not processes_of(launcher, paceline) and not groups_of(launcher))
    assert not any(path.exists() for path in rings), "what clears up behind an agent had time for it"
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


def test_ctrl_c_while_the_network_is_measured_leaves_nothing(paceline):
    job = paceline.start("run", *NETWORK, LINKS, paceline.script("waits.py", WAITS))
    job.until(lambda: any(b"emulate.measure" in command_line(pid) for pid in paceline.left()))
    job.process.send_signal(signal.SIGINT)
    finished = job.wait(30)
    assert finished.code == 130 and "Traceback" not in finished.err, finished.err
    assert processes_of(job.process.pid, paceline) == []
    assert not (paceline.directory / ".paceline").exists()


def test_who_is_not_root_is_told_so_before_anything_starts(paceline):
    as_user = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    finished = paceline.run("run", *NETWORK, LINKS, paceline.script("waits.py", WAITS), prefix=as_user)
    assert finished.code == 2 and "error[U23]" in finished.err and "user 1000, not root" in finished.err
    assert "sudo paceline run" in finished.err and not (paceline.directory / ".paceline").exists()


def first_agent(launcher: int, paceline) -> int:
    """The launcher's child that started rank 0."""
    parents = {read_stat(pid).parent for pid in paceline.left() if b"RANK=0" in words(pid, "environ")}
    (found,) = (pid for pid in parents if read_stat(pid).parent == launcher)
    return found


def command_line(pid: int) -> bytes:
    return b" ".join(words(pid, "cmdline"))


def words(pid: int, name: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []


def until(condition, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + patient(timeout)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
