"""A port on which a job cannot listen is refused with its reason and a port that can be taken."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

import paceline.launch.ports as ports_module
from paceline.errors import UsageError
from paceline.launch.ports import ReservedPorts, require_free, why_not_listening
from paceline.probes.ports import Bind, Holder, try_bind


@pytest.mark.parametrize(
    ("port", "option", "saw", "next_"),
    [
        (80, "--master-port", "Permission denied; ports below 1024 are usually root's", "--master-port 29500 ..."),
        (2049, "--set store_port", "Permission denied", "--set store_port=29500 ..."),
        (
            80,
            "--rdzv-endpoint",
            "Permission denied; ports below 1024 are usually root's",
            "--rdzv-endpoint node1:29500 ...",
        ),
    ],
)
def test_a_port_that_this_user_may_not_listen_on_is_refused(port, option, saw, next_):
    error = why_not_listening(PermissionError(errno.EACCES, "permission denied"), "node1", port, option)
    assert error is not None and error.code == "U04"
    assert (error.what, error.saw) == (f"port {port} on node1 cannot be listened on", saw)
    assert error.next == f"paceline run {next_}"


def test_a_port_in_use_names_who_has_it():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        error = why_not_listening(OSError(errno.EADDRINUSE, ""), "127.0.0.1", port, "--master-port")
        assert error is not None and f"pid {os.getpid()}" in error.saw
        with pytest.raises(UsageError, match="is in use"):
            require_free("127.0.0.1", port, "--master-port")


@pytest.mark.parametrize(
    ("holder", "option", "is_agent"),
    [
        ("python /v/bin/paceline run --nnodes 2 --node-rank 0 --nproc-per-no...", "--master-port", True),
        ("python -m paceline run --nnodes=2 --node_rank=0 t.py", "--master-port", True),
        ("python -m paceline run --nnodes 2 t.py", "--rdzv-endpoint", False),
        ("python -m paceline web", "--master-port", False),
        ("torchrun --nnodes 2 train.py", "--master-port", False),
    ],
)
def test_two_hosts_with_one_node_rank_are_told_apart_from_a_port_of_another(holder, option, is_agent, monkeypatch):
    monkeypatch.setattr(
        ports_module, "holder_of", lambda port: Holder(port=port, address="0.0.0.0", pid=7, command=holder)
    )
    error = why_not_listening(OSError(errno.EADDRINUSE, ""), "127.0.0.1", 29500, option)
    assert ("--node-rank 0" in error.what) is is_agent and ("--node-rank 1" in error.next) is is_agent


def test_any_other_error_of_the_system_is_not_about_the_port():
    assert why_not_listening(OSError(errno.EMFILE, ""), "127.0.0.1", 29500, "--master-port") is None


def test_reserved_ports_are_the_wanted_ones_and_nobody_elses_until_the_ranks_start():
    port = free_port()
    wanted = port, port + 1
    ports, others = ReservedPorts(wanted), ReservedPorts(wanted)
    try:
        assert ports.numbers == wanted and not set(wanted) & set(others.numbers) and len(set(others.numbers)) == 2
        assert {try_bind("0.0.0.0", port) for port in ports.numbers + others.numbers} == {Bind.IN_USE}
    finally:
        ports.close()
        others.close()
    assert {try_bind("0.0.0.0", port) for port in ports.numbers + others.numbers} == {Bind.FREE}


def test_a_job_that_starts_while_the_ranks_of_another_do_not_listen_yet_takes_other_ports():
    wanted = (free_port(),)
    first = ReservedPorts(wanted)
    first.release()
    second = ReservedPorts(wanted)
    assert first.numbers == wanted != second.numbers and try_bind("0.0.0.0", *wanted) is Bind.FREE
    first.close()
    second.reserve()
    assert second.numbers == wanted
    second.close()


def test_for_the_next_attempt_a_port_on_which_somebody_still_listens_is_another_one():
    wanted = (free_port(),)
    ports = ReservedPorts(wanted)
    ports.release()
    with socket.create_server(("0.0.0.0", wanted[0])):
        ports.reserve()
        assert ports.numbers != wanted
    ports.reserve()
    assert ports.numbers == wanted
    ports.close()


def test_a_machine_that_gives_no_ports_has_none_and_nothing_fails():
    program = f"""
import sys
sys.path.insert(0, {str(Path(ports_module.__file__).parents[2])!r})
import resource, paceline.launch.ports as ports
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
print(ports.ReservedPorts((0, 0)).numbers)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "()"
