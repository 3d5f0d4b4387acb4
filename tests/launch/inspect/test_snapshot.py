"""Snapshots of real processes: one that sleeps, one that is stopped, one that works, one that waits for a pipe, one that is gone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from patience import patient

from paceline.diagnosis.hang.progress import uses_a_cpu
from paceline.diagnosis.snapshots import Frame, RankSnapshot
from paceline.launch.inspect.child_processes import cpu_seconds, role_of
from paceline.launch.inspect.host_snapshot import lines_that_matter
from paceline.launch.inspect.rank_snapshot import RankParts, shown_environment, snapshot_of_rank
from paceline.launch.inspect.snapshot import at_once, look_at
from paceline.launch.inspect.tcp_sockets import endpoint, plain_socket
from paceline.probes.cgroup import control_group
from paceline.probes.kernel_log import KernelLine
from paceline.probes.process_status import read_waiting
from paceline.probes.processes import ProcessStat, read_stat
from paceline.probes.sockets import TcpSocket
from paceline.probes.stacks import StackDump, ThreadStack
from paceline.recording.fact_json import from_plain, to_plain

SLEEPS = "import time; print(flush=True); time.sleep(600)"
WORKS = "print(flush=True)\nwhile True: pass"
READS = "import sys; print(flush=True); open(sys.argv[1]).read()"
SERVES = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{sys.argv[1]}/{os.getpid()}.sock")
listener.listen()
open(f"{sys.argv[1]}/{os.getpid()}.gate", "w").close()
print(flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\npong")
"""
HAS_LOADER = """
import multiprocessing, time
def _worker_loop():
    print(flush=True)
    time.sleep(600)
if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=_worker_loop, daemon=True)
    worker.start()
    worker.join()
"""


@contextmanager
def child(tmp_path: Path, program: str, *argv: str) -> Iterator[int]:
    """A Python process that has printed its first line."""
    script = tmp_path / f"program_{len(list(tmp_path.glob('program_*')))}.py"
    script.write_text(program)
    process = subprocess.Popen([sys.executable, str(script), *argv], stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def looked(ranks: dict[int, int], tmp_path: Path, **options) -> tuple[list[RankSnapshot], object]:
    options = {"all_ranks_here": ranks, "hosts_by_address": {}, **options}
    return look_at(ranks, host="algo-1", attempt=2, role="suspect", socket_dir=tmp_path, **options)


def until(condition) -> None:
    ends_at = time.monotonic() + patient(20)
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.process
def test_a_sleeper_a_stopped_one_and_a_busy_one_are_told_apart(tmp_path):
    with child(tmp_path, SLEEPS) as sleeper, child(tmp_path, SLEEPS) as stopped, child(tmp_path, WORKS) as busy:
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: state_of(stopped) == "T" and state_of(sleeper) == "S")
        ranks = {0: sleeper, 3: stopped, 5: busy}
        snapshots, host = looked(ranks, tmp_path, directory=tmp_path)
        while snapshots[0].stack_moved is None:
            # On a busy machine the second stack may come too late.
            snapshots, host = looked(ranks, tmp_path, directory=tmp_path)
    asleep, still, works = snapshots
    assert [snapshot.rank for snapshot in snapshots] == [0, 3, 5]
    assert (asleep.state, asleep.system_call, asleep.cpu_fraction) == (
        "S",
        "clock_nanosleep",
        pytest.approx(0, abs=0.05),
    )
    assert asleep.stack_moved is False and asleep.read_bytes_per_second == 0
    assert asleep.stacks[0].main and asleep.stacks[0].frames[0].users and asleep.stacks[0].frames[0].line == 1
    assert still.state == "T" and still.stacks[0].frames[0].line == 1
    assert uses_a_cpu(works) and works.stacks[0].frames[0].line == 2
    assert works.attempt == 2 and works.ping_answers is None and works.traceback_answers is None
    assert busy not in [pid for pid, _, _ in host.foreign]
    assert {room.what for room in host.filesystems} >= {"tmp", "cwd", "run"}
    assert host.busy_fraction > 0 and host.cpu_count
    assert from_plain(RankSnapshot, to_plain(asleep)) == asleep


@pytest.mark.process
def test_a_process_outside_the_job_that_uses_a_core_is_foreign(tmp_path):
    with child(tmp_path, SLEEPS) as rank, outsider(WORKS) as other:
        # As root it has its share of a busy machine as well.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, other, -20)
        until(lambda: other in [pid for pid, _, _ in looked({0: rank}, tmp_path)[1].foreign])


@contextmanager
def outsider(program: str) -> Iterator[int]:
    """A process that is not below this one."""
    starter = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-c", starter, program], stdout=subprocess.PIPE, check=True).stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.process
def test_a_read_that_waits_names_the_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with child(tmp_path, READS, str(pipe)) as pid:
        until(lambda: state_of(pid) == "S" and "openat" in call_of(pid))
        (opens,), _ = looked({0: pid}, tmp_path)
        writer = os.open(pipe, os.O_WRONLY)
        until(lambda: "read" in call_of(pid))
        (reads,), _ = looked({0: pid}, tmp_path)
        os.close(writer)
    assert opens.system_call == "openat" and opens.blocked_on.startswith(str(pipe))
    assert reads.system_call == "read" and reads.blocked_on.startswith(str(pipe))


def call_of(pid: int) -> str:
    return read_waiting(pid, {}).call or ""


@pytest.mark.process
def test_a_loader_worker_is_shown_below_its_rank_with_its_stack(tmp_path):
    with child(tmp_path, HAS_LOADER) as pid:
        (snapshot,), _ = looked({0: pid}, tmp_path)
    (worker,) = snapshot.children
    assert worker.role == "loader" and worker.state == "S"
    assert worker.stack[0] == Frame(
        file=snapshot.stacks[0].frames[-1].file, line=5, function="_worker_loop", users=True
    )


@pytest.mark.process
def test_unread_bytes_and_the_host_at_the_other_end(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
        listener.accept()[0],
    ):
        sender.sendall(b"x" * 500)
        (snapshot,), _ = looked({0: os.getpid()}, tmp_path, hosts_by_address={"127.0.0.1": "algo-7"})
    mine = [one for one in snapshot.sockets if one.receive_queue_bytes == 500]
    assert [one.peer_host for one in mine] == ["algo-7"]


@pytest.mark.process
def test_a_process_that_is_gone_and_one_that_nobody_waited_for_cost_the_others_nothing(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: state_of(zombie.pid) == "Z")
    with child(tmp_path, SLEEPS) as pid:
        (first, second, third), _ = looked({0: gone.pid, 1: zombie.pid, 2: pid}, tmp_path)
    zombie.wait()
    assert first.state is None and first.not_judged == (f"process {gone.pid} is gone",)
    assert second.state == "Z" and second.stacks is None
    assert third.state == "S" and third.stacks


@pytest.mark.process
def test_a_process_that_dies_during_the_snapshot_is_said(tmp_path):
    with child(tmp_path, SLEEPS) as pid:
        killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
        killer.start()
        (snapshot,), _ = looked({0: pid}, tmp_path)
        killer.join()
    # Nobody has waited for it yet, so it is still there without anything left inside.
    assert snapshot.state == "Z" and snapshot.stacks is not None and snapshot.stack_moved is None


def test_a_reading_that_hangs_or_raises_costs_only_itself():
    release = threading.Event()
    found = at_once({"a": lambda: 1, "b": lambda: [][0], "c": lambda: release.wait(60)}, 0.1)
    release.set()
    assert found.values == {"a": 1}
    assert "IndexError" in found.missing["b"] and found.missing["c"] == "no answer within 0.1 s"


def test_a_child_that_ends_during_the_snapshot_adds_only_what_it_used_meanwhile():
    def table(*rows):
        return {
            pid: ProcessStat(
                pid=pid, parent=parent, state="S", cpu_seconds=total, own_cpu_seconds=own,
                resident_bytes=0, threads=1, start_ticks=1,
            )
            for pid, parent, own, total in rows
        }  # fmt: skip

    before = table((1, 0, 10.0, 10.0), (2, 1, 600.0, 600.0))
    after = table((1, 0, 10.1, 610.3))
    assert cpu_seconds(1, before, after) == (pytest.approx(0.3), pytest.approx(0.2))
    assert cpu_seconds(1, before, {}) is None


@pytest.mark.parametrize(
    ("name", "command", "role"),
    [
        ("pt_data_worker", "", "loader"),
        ("ptxas", "ptxas -v", "compiler"),
        ("python", "python -m torch._inductor.compile_worker --parent=7", "compiler"),
        ("python3", "/usr/bin/python3 /x/torch/_inductor/compile_worker/__main__.py", "compiler"),
        ("bash", "bash -c ls", ""),
        ("as", "as -o x.o", "compiler"),
    ],
)
def test_children_by_name(name, command, role):
    assert role_of(name, command) == role


def test_variables_that_change_training_are_shown_and_secrets_are_not():
    environment = {"NCCL_DEBUG": "INFO", "HOME": "/root", "TORCH_TOKEN": "t", "OMP_NUM_THREADS": "4", "AWS_SECRET": "s"}
    assert shown_environment(environment) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


def test_kernel_lines_that_matter():
    lines = [
        KernelLine(seconds=1.0, text="eth0: renamed from veth1"),
        KernelLine(seconds=2.0, text="NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
        KernelLine(seconds=3.0, text="nfs: server files not responding, still trying"),
        KernelLine(seconds=4.0, text="INFO: task python:77 blocked for more than 120 seconds."),
    ]
    assert [line.split("]")[0] for line in lines_that_matter(lines)] == ["[2.0", "[3.0", "[4.0"]


def test_the_other_end_is_a_known_host_this_host_or_unknown():
    def peer(remote: str, local: str = "10.0.0.1") -> str | None:
        connection = TcpSocket(
            inode=1, state="established", local=local, local_port=1, remote=remote, remote_port=2,
            receive_queue_bytes=0, send_queue_bytes=0,
        )  # fmt: skip
        return plain_socket(connection, "algo-1", {"10.0.0.2": "algo-2"}).peer_host

    assert [peer("10.0.0.2"), peer("10.0.0.1"), peer("127.0.0.1"), peer("8.8.8.8")] == [
        "algo-2",
        "algo-1",
        "algo-1",
        None,
    ]
    assert endpoint("fd00::1", 80) == "[fd00::1]:80"


@pytest.mark.process
def test_a_frozen_process_names_the_file_that_thaws_it(tmp_path):
    with child(tmp_path, SLEEPS) as pid, freezer_group() as group:
        until(lambda: state_of(pid) == "S")
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        until(lambda: (group / "freezer.state").read_text() == "FROZEN\n")
        (snapshot,), _ = looked({0: pid}, tmp_path)
    assert snapshot.frozen and snapshot.frozen_by == str(group / "freezer.state")
    assert snapshot.state == "D" and snapshot.blocked_on is None and snapshot.stacks


@contextmanager
def freezer_group() -> Iterator[Path]:
    own = control_group("freezer")
    if own is None or own.version != 1:
        pytest.skip("no freezer of version 1 here")
    group = own.directory / f"paceline-look-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in (group / "cgroup.procs").read_text().split():
            (own.directory / "cgroup.procs").write_text(pid)
        group.rmdir()


@pytest.mark.process
def test_a_rank_with_a_server_is_asked_whether_it_answers(tmp_path):
    with child(tmp_path, SERVES, str(tmp_path)) as pid:
        (snapshot,), _ = looked({0: pid}, tmp_path)
    assert snapshot.ping_answers is True and snapshot.traceback_answers is True


def test_the_ranks_own_traceback_stands_in_for_py_spy_and_what_it_cannot_show_is_said():
    refused = StackDump(reason="ptrace is refused: ...")
    frames = (Frame(file="/home/you/train.py", line=7, function="step"),)
    own = StackDump(threads=(ThreadStack(pid=1, thread="MainThread", main=True, frames=frames),))
    here = read_stat(os.getpid())
    parts = RankParts(
        first=None, second=None, setting=None, stacks=(refused, refused), ping=True, traceback=own, traceback_answers=True,
        stats=(here, here), cpu_seconds=None, cpu_seconds_so_far=None, seconds=0.5, children=(), missing=(),
    )  # fmt: skip
    snapshot = snapshot_of_rank(parts, host="algo-1", rank=0, pid=1, at_ns=1, attempt=0, role="suspect")
    assert snapshot.stacks[0].frames[0].line == 7 and snapshot.stack_moved is None
    assert snapshot.not_judged == ("whether its stack changes: ptrace is refused: ...",)
    nothing = snapshot_of_rank(
        replace(parts, traceback=None), host="algo-1", rank=0, pid=1, at_ns=1, attempt=0, role="suspect"
    )
    assert nothing.stacks is None and nothing.not_judged == ("Python stacks: ptrace is refused: ...",)
