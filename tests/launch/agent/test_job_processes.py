"""Which processes are a job's, and that no other is signalled."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from patience import patient

from paceline.launch.agent import guardian
from paceline.launch.agent.job_processes import guarded, guardian_argv
from paceline.parts.lab.emulate import local_hosts
from paceline.parts.sagemaker.local import host

MARK = "m" * 32


@pytest.fixture
def process_table(monkeypatch):
    """Rows of processes that there are not."""

    def lay(rows, marked=()):
        monkeypatch.setattr(guardian, "table", lambda: rows)
        monkeypatch.setattr(guardian, "carries_mark", lambda pid, mark: pid in marked)

    return lay


def test_what_is_marked_in_a_session_or_below_is_the_jobs(process_table):
    process_table(
        {
            10: (1, 10, 100, "S"),  # a worker, whose title overwrote the mark
            11: (10, 10, 110, "S"),
            12: (1, 12, 120, "S"),  # marked, in a session of its own
            13: (12, 13, 130, "S"),  # below it, with an environment of its own
            14: (10, 10, 140, "Z"),
            20: (1, 20, 90, "S"),  # somebody else's
        },
        marked={12},
    )
    assert guardian.job_processes(MARK, {10: 100}) == {10: 100, 11: 110, 12: 120, 13: 130}


def test_a_session_outlives_its_leader_and_its_number_is_nobody_elses_till_then(process_table):
    process_table({11: (1, 10, 110, "S")})
    assert guardian.job_processes(MARK, {10: 100}) == {11: 110}


def test_a_number_that_is_used_again_is_not_the_jobs(process_table):
    process_table({10: (1, 10, 999, "S"), 11: (10, 10, 1000, "S")})
    assert guardian.job_processes(MARK, {10: 100}) == {}


def test_the_guardian_of_a_job_inside_a_rank_is_left_to_clear_up(process_table, monkeypatch):
    process_table({10: (1, 10, 100, "S"), 11: (10, 11, 110, "S"), 12: (11, 12, 120, "S")})
    monkeypatch.setattr(guardian, "is_guardian", lambda pid: pid == 12)
    assert guardian.job_processes(MARK, {10: 100}) == {10: 100, 11: 110}


def test_a_guardian_is_known_by_its_name_wherever_one_is_looked_for(tmp_path):
    with guarded(MARK, [tmp_path / "scratch"]) as processes:
        # It has its name once it has become the interpreter that runs it.
        deadline = time.monotonic() + patient(5)
        while not (known := guardian.is_guardian(processes.guardian_pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert known and not guardian.is_guardian(os.getpid())
    assert local_hosts._GUARDIAN == guardian.NAME and guardian.NAME.encode() == host._GUARDIAN


def test_orphans_come_to_the_agent_for_as_long_as_the_job_lasts_and_no_longer(tmp_path):
    with guarded(MARK, [tmp_path / "scratch"]):
        ours = parent_of_an_orphan()
    assert ours == os.getpid() and parent_of_an_orphan() != os.getpid()


def parent_of_an_orphan():
    """Who adopts a process whose parent has ended."""
    starter = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-c", starter], stdout=subprocess.PIPE, check=True).stdout)
    try:
        return guardian.read_row(pid)[0]
    finally:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_started_at_another_time_is_not_signalled(sleeper):
    ticks = guardian.read_row(sleeper.pid)[2]
    assert not guardian.send(sleeper.pid, ticks - 1, signal.SIGKILL) and sleeper.poll() is None
    assert guardian.send(sleeper.pid, ticks, signal.SIGTERM)
    assert sleeper.wait(10) == -signal.SIGTERM


def test_a_pattern_that_finds_agents_does_not_find_the_guardian():
    assert not [word for word in guardian_argv()[1:] if "paceline" in word]
    assert os.path.samefile(guardian_argv()[0], sys.executable)


def test_neither_does_it_where_the_environment_is_called_as_agents_are(tmp_path, monkeypatch):
    python = tmp_path / "envs" / "paceline" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(sys, "executable", str(python))
    assert not [word for word in guardian_argv() if "paceline" in word]
    said = subprocess.run(
        [*guardian_argv()[:3], "-c", "import json; print(json.dumps(1))"], env={}, capture_output=True
    )
    assert said.stdout == b"1\n", said.stderr


def test_the_guardian_ends_what_it_was_told_of_and_removes_the_scratch(tmp_path, sleeper):
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    class Killed(Exception):
        pass

    led = subprocess.Popen(["sleep", "60"], start_new_session=True, env={})
    with pytest.raises(Killed), guarded(MARK, [scratch]) as processes:
        processes.began(led.pid)
        assert list(processes.here()) == [led.pid]
        raise Killed
    assert led.wait(10) == -signal.SIGTERM and not scratch.exists()
    assert sleeper.poll() is None


def test_after_a_farewell_nothing_is_ended(tmp_path):
    led = subprocess.Popen(["sleep", "60"], start_new_session=True, env={})
    try:
        with guarded(MARK, [tmp_path / "scratch"]) as processes:
            processes.began(led.pid)
        assert led.poll() is None
    finally:
        led.kill()
        led.wait()
