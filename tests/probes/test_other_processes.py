"""Who else uses a host."""

import os
import subprocess
import sys

import pytest

from paceline.probes.other_processes import below, busy_processes, named, read_processes
from paceline.probes.processes import ProcessStat


def stat(pid, parent, cpu_seconds=0.0, start_ticks=1):
    return ProcessStat(
        pid=pid,
        parent=parent,
        state="S",
        cpu_seconds=99 * cpu_seconds,
        own_cpu_seconds=cpu_seconds,
        resident_bytes=0,
        threads=1,
        start_ticks=start_ticks,
    )


def table(*stats):
    return {one.pid: one for one in stats}


def test_everything_below_a_process_belongs_to_it_also_in_a_circle():
    processes = table(stat(1, 0), stat(2, 1), stat(3, 2), stat(4, 1), stat(5, 6), stat(6, 5))
    assert below([2], processes) == {2, 3}
    assert below([5], processes) == {5, 6}


def test_only_processes_outside_that_use_a_tenth_of_a_core_the_busiest_first():
    before = table(stat(1, 0, 5.0), stat(2, 0, 1.0), stat(3, 0, 1.0), stat(4, 0, 9.0))
    after = table(stat(1, 0, 5.5), stat(2, 0, 1.04), stat(3, 0, 1.1), stat(4, 0, 9.5))
    assert busy_processes(before, after, 0.5, {4}) == {1: 1.0, 3: 0.2}


def test_a_pid_that_was_given_again_counts_from_its_own_start():
    before, after = table(stat(1, 0, 100.0, start_ticks=1)), table(stat(1, 0, 0.3, start_ticks=900))
    assert busy_processes(before, after, 1.0, ()) == {1: 0.3}


@pytest.mark.process
def test_a_rank_of_another_agent_of_the_same_run_is_not_foreign_and_neither_is_that_agent():
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    environment = {**os.environ, "PACELINE_RUN_ID": "r-1"}
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as rank:
        rank.stdout.readline()
        processes = read_processes()
        cores = {rank.pid: 1.0, os.getpid(): 0.5}
        ours, theirs = named(cores, {"r-1"}, processes), named(cores, {"r-2"}, processes)
        rank.stdin.close()
    assert ours == ()
    assert [one.pid for one in theirs] == [rank.pid, os.getpid()] and all(one.name for one in theirs)
