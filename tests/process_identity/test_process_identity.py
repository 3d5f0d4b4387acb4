import os
import subprocess
import sys

from paceline.probes.processes import read_stat
from paceline.process_identity import boot_id, machine_key, start_ticks


def test_a_process_has_one_start():
    assert start_ticks(os.getpid()) == start_ticks(os.getpid()) == read_stat(os.getpid()).start_ticks


def test_a_process_that_nobody_has_waited_for_yet_is_gone():
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(child.pid) is None


def test_no_process_has_pid_0():
    assert start_ticks(0) is None


def test_the_key_of_a_machine_names_the_host_and_its_boot():
    assert boot_id()
    assert machine_key() == f"{os.uname().nodename} {boot_id()}"
