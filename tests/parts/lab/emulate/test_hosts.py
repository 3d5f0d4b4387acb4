"""Hosts with networks of their own: who reaches whom, what a cut does, and that nothing is left, also after a crash of the creator."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import patient

from paceline.errors import UsageError
from paceline.parts.lab.emulate.cleanup import creators_mark, is_orphan, sweep
from paceline.parts.lab.emulate.hosts import Hosts

pytestmark = [pytest.mark.process, pytest.mark.fault]

SERVE = """
import socket
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""
ASK = """
import socket, sys
connection = socket.create_connection(("algo-2", 7000), timeout=5)
for line in sys.stdin:
    connection.sendall(line.encode())
    connection.settimeout(float(line.split()[0]))
    try:
        print(connection.recv(100).decode().strip(), flush=True)
    except TimeoutError:
        print("nothing came", flush=True)
"""


def output(hosts, index, *argv):
    with hosts.run_in(index, argv, stdout=subprocess.PIPE, text=True) as process:
        return process.communicate(timeout=patient(20))[0].strip()


def keepers_of(pid):
    """The processes that hold the hosts of one creator open. Nothing else does: no name, no mount, no open file."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word.startswith(f"paceline-{pid}-") for word in argv):
                found.append(int(entry.name))
    return found


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def groups_of(pid):
    # os.walk, because other groups come and go meanwhile.
    walked = os.walk("/sys/fs/cgroup")
    return [Path(top, name) for top, inner, _ in walked for name in inner if name.startswith(f"paceline-{pid}-")]


def ended(condition, timeout=10.0):
    deadline = time.monotonic() + patient(timeout)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_each_host_has_its_own_name_address_and_directory(two_hosts, tmp_path):
    for index, name in enumerate(("algo-1", "algo-2")):
        assert output(two_hosts, index, "hostname") == name
        assert two_hosts.address(index) in output(two_hosts, index, "ip", "-br", "addr", "show", "eth0")
    with two_hosts.run_in(1, ["pwd"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.communicate()[0].strip() == str(tmp_path)


def test_a_program_that_is_not_there_is_code_127(two_hosts):
    with two_hosts.run_in(0, ["no-such-program"], stderr=subprocess.PIPE, text=True) as process:
        assert "no-such-program" in process.communicate()[1]
    assert process.returncode == 127


def test_hosts_talk_until_the_link_is_cut_and_again_when_it_is_mended(two_hosts):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with two_hosts.run_in(1, [sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "listening\n"
        with two_hosts.run_in(0, [sys.executable, "-c", ASK], **pipes) as client:

            def ask(seconds):
                client.stdin.write(f"{seconds} seconds to answer\n")
                client.stdin.flush()
                return client.stdout.readline().strip()

            assert ask(5) == "5 seconds to answer"
            two_hosts.cut(1)
            assert ask(1) == "nothing came"
            two_hosts.mend(1)
            # TCP tries again by itself: what was sent into the cut link arrives now.
            assert ask(20).startswith("1 seconds to answer")
            client.stdin.close()


@pytest.mark.slow
def test_two_sets_of_hosts_do_not_see_each_other(two_hosts):
    with Hosts(1) as other:
        assert other.address(0) == two_hosts.address(0)
        assert output(other, 0, "readlink", "/proc/self/ns/net") != output(
            two_hosts, 0, "readlink", "/proc/self/ns/net"
        )


def test_the_end_of_the_block_leaves_nothing(emulation):
    before = groups_of(os.getpid())
    with Hosts(2) as hosts:
        hosts.shape(1, rate_mbit=100, delay_ms=5)
        hosts.limit(0, cpus=0.5, memory_bytes=200 << 20)
        sleeper = hosts.run_in(0, ["sh", "-c", "echo here; exec sleep 300"], stdout=subprocess.PIPE)
        assert sleeper.stdout.readline() == b"here\n"
        held, groups = keepers_of(os.getpid()), groups_of(os.getpid())
    assert len(held) == 3, "two hosts and the switch"
    assert len(groups) == len(before) + 2
    with sleeper:
        assert sleeper.wait(patient(5)) == -signal.SIGKILL
    assert keepers_of(os.getpid()) == [] and groups_of(os.getpid()) == before


CREATOR = """
import sys, time
from paceline.parts.lab.emulate.hosts import Hosts
with Hosts(2) as hosts:
    hosts.shape(1, rate_mbit=100, delay_ms=5)
    hosts.limit(0, cpus=0.5)
    sleeper = hosts.run_in(0, ["sh", "-c", "echo here; exec sleep 300"], stdout=-1)
    assert sleeper.stdout.readline()
    print(sleeper.pid, flush=True)
    time.sleep(300)
"""
LAST_WORDS = """
import os, sys, time
from paceline.parts.lab.emulate.namespace_holder import in_network_of
print("here", flush=True)
# As a guardian does: wait until the one that it watches is gone, then clear up and leave.
while any(pid == int(sys.argv[2]) for pid in in_network_of(os.getpid())):
    time.sleep(0.01)
open(sys.argv[3], "w").close()
"""


@pytest.fixture
def killed_creator(emulation, user_environment):
    """Pids of a process that made hosts and was killed, and of what ran in one of them."""
    creator = subprocess.Popen([sys.executable, "-c", CREATOR], env=user_environment, stdout=subprocess.PIPE, text=True)
    with creator:
        sleeper = int(creator.stdout.readline())
        assert groups_of(creator.pid) and len(keepers_of(creator.pid)) == 3 and not is_gone(sleeper)
        creator.kill()
    return creator.pid, sleeper


def test_what_a_killed_creator_left_is_swept_away(killed_creator):
    creator, sleeper = killed_creator
    sweep()
    assert groups_of(creator) == [] and keepers_of(creator) == [] and is_gone(sleeper)


def test_the_hosts_of_a_killed_creator_end_without_anyone_sweeping(killed_creator):
    creator, sleeper = killed_creator
    assert ended(lambda: keepers_of(creator) == [] and is_gone(sleeper) and groups_of(creator) == [])


@pytest.mark.slow
def test_who_clears_up_after_others_has_time_for_it(emulation, tmp_path):
    cleared = tmp_path / "cleared"
    with Hosts(1, last_words="clears-up-behind-others") as hosts:
        sleeper = hosts.run_in(0, ["sh", "-c", "echo here; exec sleep 300"], stdout=subprocess.PIPE)
        argv = [sys.executable, "-c", LAST_WORDS, "clears-up-behind-others", str(sleeper.pid), str(cleared)]
        guard = hosts.run_in(0, argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "src"})
        assert sleeper.stdout.readline() == guard.stdout.readline() == b"here\n"
    with sleeper, guard:
        assert sleeper.wait(patient(5)) == -signal.SIGKILL and guard.wait(patient(5)) == 0
    assert cleared.exists()


@pytest.mark.slow
def test_who_is_just_entering_when_the_hosts_end_does_not_stay(emulation):
    late = []
    for _ in range(5):
        with Hosts(1) as hosts:
            late += [hosts.run_in(0, ["sleep", "300"], stderr=subprocess.DEVNULL) for _ in range(3)]
    assert all(process.wait(patient(10)) != 0 for process in late)


def test_a_living_creators_things_are_never_swept(two_hosts):
    mark = creators_mark()
    pid, start, number = mark.removeprefix("paceline-").split("-")
    assert not is_orphan(mark) and not is_orphan("paceline-something") and not is_orphan("somebody-1-2-3")
    assert is_orphan(f"paceline-{pid}-{int(start) + 1}-{number}"), "the pid was used again"
    sweep()
    assert output(two_hosts, 0, "hostname") == "algo-1"


def test_a_user_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="cannot be made here") as refused, Hosts(1):
        pass
    assert refused.value.code == "U23" and "not root" in refused.value.saw
