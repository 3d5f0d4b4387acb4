"""Signals, limits, exit codes and restarts with real processes. The scripts need no torch, so each takes well under a second."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

from paceline.probes.processes import read_stat

pytestmark = pytest.mark.process

SLEEPS = """
import os, signal, sys, time
def leave(number, frame):
    print("rank", os.environ["RANK"], "got", signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
print("ready", flush=True)
time.sleep(300)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def test_every_rank_gets_its_place_in_the_environment(paceline):
    script = paceline.script(
        "place.py",
        "import json, os\n"
        "names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'GROUP_WORLD_SIZE', 'ROLE_RANK',"
        " 'ROLE_WORLD_SIZE', 'ROLE_NAME', 'MASTER_ADDR', 'TORCHELASTIC_RESTART_COUNT', 'TORCHELASTIC_MAX_RESTARTS',"
        " 'TORCHELASTIC_USE_AGENT_STORE', 'OMP_NUM_THREADS', 'SM_CURRENT_HOST']\n"
        "print(json.dumps({name: os.environ[name] for name in names}))\n",
    )
    finished = paceline.run("run", "--nproc-per-node", "2", "--max-restarts", "3", script)
    assert finished.code == 0, finished.err
    ranks = sorted((json.loads(line) for line in finished.out.splitlines()), key=lambda rank: rank["RANK"])
    assert [(rank["RANK"], rank["LOCAL_RANK"]) for rank in ranks] == [("0", "0"), ("1", "1")]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"2"}
    assert ranks[0]["TORCHELASTIC_MAX_RESTARTS"] == "3"
    assert ranks[0]["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    assert ranks[0]["OMP_NUM_THREADS"] == "1"


def test_stdout_carries_nothing_but_the_users_own_output(paceline):
    script = paceline.script("out.py", "import sys\nsys.stdout.write('no newline')\n")
    finished = paceline.run("run", script)
    assert finished.out == "no newline"
    assert "done" in finished.err and "\r" not in finished.err and "\x1b" not in finished.err


def test_script_arguments_come_through_untouched(paceline):
    script = paceline.script("args.py", "import sys\nprint(sys.argv[1:])\n")
    argv = ["--nproc-per-node", "7", "a b", "it's", "--", "$HOME", "*"]
    finished = paceline.run("run", script, *argv)
    assert finished.out.strip() == str(argv)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("os._exit(7)", 7), ("raise ValueError('x')", 1)])
def test_the_ranks_own_code_is_the_runs(paceline, ending, code):
    script = paceline.script("ends.py", f"import os, sys\n{ending}\n")
    assert paceline.run("run", script).code == code


def test_a_signal_that_ended_a_rank_gives_128_plus_its_number(paceline):
    script = paceline.script("killed.py", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    finished = paceline.run("run", script)
    assert finished.code == 139 and "SIGSEGV" in finished.err


def test_a_scripts_own_200_becomes_1_with_a_note(paceline):
    script = paceline.script("odd.py", "import sys\nsys.exit(202)\n")
    finished = paceline.run("run", script)
    assert finished.code == 1 and "202" in finished.err


def test_the_first_failing_rank_is_the_headline_with_the_users_own_line(paceline):
    script = paceline.script(
        "fails.py",
        "import os, time\n"
        "def load(path):\n"
        "    return open(path)\n"
        "if os.environ['RANK'] == '1':\n"
        "    load('/no/such/file')\n"
        "time.sleep(300)\n",
    )
    finished = paceline.run("run", "--nproc-per-node", "3", script)
    assert finished.code == 1
    summary = finished.err[finished.err.index("failed  r-") :]
    assert "rank 1 on localhost raised FileNotFoundError" in summary
    assert "fails.py:3 in load" in summary and "return open(path)" in summary
    assert "2 ranks (0,2) stopped by paceline" in summary
    assert finished.err.count("Traceback") == 1


def test_output_failure_holds_the_real_reason_on_every_host(paceline):
    text = "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('no such luck')\ntime.sleep(300)\n"
    finished = paceline.run("run", "--local-hosts", "2", paceline.script("fails.py", text))
    assert finished.code == 1
    for host in ("algo-1", "algo-2"):
        (failure,) = paceline.directory.glob(f".paceline/runs/*/hosts/{host}/ml/output/failure")
        assert failure.read_text().startswith("rank 1 on algo-2 raised ValueError: no such luck")
        assert "fails.py:3" in failure.read_text()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_agent_reaches_every_rank(paceline, number):
    job = paceline.start("run", "--nproc-per-node", "3", paceline.script("sleeps.py", SLEEPS))
    job.until_printed("ready", 3)
    job.process.send_signal(number)
    finished = job.wait()
    assert sorted(line for line in finished.out.splitlines() if "got" in line) == [
        f"rank {rank} got {number.name}" for rank in range(3)
    ]
    assert finished.code == (130 if number == signal.SIGINT else 204)
    assert "Stopped" in str(paceline.evidence().run.status)


def test_a_rank_that_somebody_stopped_ends_at_a_signal_and_not_after_the_grace(paceline):
    job = paceline.start("run", "--stop-grace", "100", paceline.script("sleeps.py", SLEEPS))
    job.until_printed("ready")
    started = [pid for pid in paceline.left() if pid != job.process.pid]
    (rank,) = [pid for pid in started if b"sleeps.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(rank, signal.SIGSTOP)
    job.until(lambda: read_stat(rank).state == "T")
    job.process.send_signal(signal.SIGTERM)
    assert "rank 0 got SIGTERM" in job.wait(30).out


def test_ctrl_c_twice_is_now(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("stubborn.py", STUBBORN))
    job.until_printed("ready", 2)
    job.process.send_signal(signal.SIGINT)
    job.until(lambda: "Ctrl-C again" in job.err)
    job.process.send_signal(signal.SIGINT)
    assert job.wait(20).code == 130
    assert paceline.left() == []


def test_the_time_limit_stops_every_rank_and_says_so(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", "--max-run", "1", paceline.script("sleeps.py", SLEEPS))
    assert finished.code == 204 and finished.out.count("got SIGTERM") == 2
    run = paceline.evidence().run
    assert (run.status, run.secondary_status) == ("Stopped", "MaxRuntimeExceeded")


def test_what_ignores_the_limit_is_killed_after_the_grace(paceline):
    script = paceline.script("stubborn.py", STUBBORN)
    finished = paceline.run("run", "--max-run", "1", "--stop-grace", "1", script)
    assert finished.code == 204
    assert paceline.left() == []


def test_stop_from_another_terminal_ends_the_run_in_good_order(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("sleeps.py", SLEEPS))
    job.until_printed("ready", 2)
    stopped = paceline.run("stop")
    assert stopped.code == 0, stopped.err
    finished = job.wait()
    assert finished.code == 143 and finished.out.count("got SIGTERM") == 2


def test_a_failed_group_restarts_whole_within_its_budget(paceline):
    script = paceline.script(
        "flaky.py",
        "import os, sys, time\n"
        "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('rank', os.environ['RANK'], 'attempt', attempt, os.environ['MASTER_PORT'], flush=True)\n"
        "open(f'here-{attempt}-{os.environ[\"RANK\"]}', 'w').close()\n"
        "while not os.path.exists(f'here-{attempt}-0'): time.sleep(0.01)\n"
        "if attempt < 2 and os.environ['RANK'] == '1': sys.exit(5)\n"
        "if attempt < 2: time.sleep(300)\n",
    )
    finished = paceline.run("run", "--nproc-per-node", "2", "--max-restarts", "2", script)
    assert finished.code == 0, finished.err
    lines = [line.split() for line in finished.out.splitlines()]
    assert sorted((line[1], line[3]) for line in lines) == [(rank, str(a)) for rank in "01" for a in range(3)]
    assert len({line[4] for line in lines}) == 3, "each attempt has a store of its own"


def test_a_budget_that_is_used_up_ends_with_the_last_failure(paceline):
    script = paceline.script("fails.py", "import sys\nsys.exit(9)\n")
    finished = paceline.run("run", "--max-restarts", "1", script)
    assert finished.code == 9


def test_redirects_keep_a_stream_off_the_terminal_and_tee_prefixes_it(paceline):
    script = paceline.script("speaks.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
    finished = paceline.run("run", "--nproc-per-node", "2", "--log-dir", "logs", "-r", "0:1", "-t", "1:1", script)
    assert finished.out == "[default1]:out\n"
    assert finished.err.count("err\n") >= 2
    files = sorted(
        str(path.relative_to(paceline.directory / "logs")).split("/", 1)[1]
        for path in (paceline.directory / "logs").rglob("*.log")
    )
    assert files == ["attempt_0/0/stdout.log", "attempt_0/1/stdout.log"]


def test_the_filter_of_local_ranks_applies_to_the_terminal_and_not_to_the_logs(paceline):
    script = paceline.script("speaks.py", "import os\nprint('rank', os.environ['RANK'])\n")
    finished = paceline.run("run", "--nproc-per-node", "3", "--local-ranks-filter", "1", script)
    assert finished.out == "rank 1\n"
    logs = paceline.run("logs", "--stdout")
    assert all(f"rank {rank}" in logs.out for rank in range(3))


def test_modules_programs_and_run_path_start_as_with_torchrun(paceline):
    paceline.script("mod.py", "import sys\nprint('module', sys.argv[1:])\n")
    assert paceline.run("run", "-m", "mod", "a").out == "module ['a']\n"
    assert paceline.run("run", "--no-python", "echo", "a", "b").out == "a b\n"
    script = paceline.script("path.py", "import sys\nprint(__name__, sys.argv[1:])\n")
    assert paceline.run("run", "--run-path", script, "x").out == "__main__ ['x']\n"


def test_a_shell_script_keeps_its_arguments_and_its_python_is_reached_by_signals(paceline):
    child = paceline.script("sleeps.py", SLEEPS)
    script = paceline.script("go.sh", f'echo "args $1 $2"\npython3 -u {child}\n')
    job = paceline.start("run", script, "one", "two words")
    job.until_printed("ready")
    job.process.send_signal(signal.SIGTERM)
    finished = job.wait()
    assert "args one two words" in finished.out and "got SIGTERM" in finished.out
    assert paceline.left() == []


def test_a_reader_that_leaves_does_not_end_the_training(paceline):
    script = paceline.script("chatty.py", "for i in range(20000): print('line', i)\nopen('finished', 'w').close()\n")
    command = f"{shlex.quote(sys.executable)} -m paceline run {shlex.quote(script)} | head -1"
    subprocess.run(
        command, shell=True, cwd=paceline.directory, env=paceline.environment, timeout=patient(60), check=True
    )
    assert (paceline.directory / "finished").exists()


@pytest.mark.slow
def test_a_restarted_attempt_is_not_killed_by_the_grace_of_the_one_before(paceline):
    """The only rank is gone before anybody says stop, so nothing ends that wish's grace early."""
    script = paceline.script(
        "once.py",
        "import os, sys, time\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(5)\n"
        "time.sleep(2.5)\nprint('whole', flush=True)\n",
    )
    finished = paceline.run("run", "--max-restarts", "1", "--shutdown-timeout", "1", script)
    assert finished.code == 0, finished.err
    assert finished.out == "whole\n"


@pytest.mark.slow
def test_an_error_file_in_the_scripts_own_form_does_not_keep_the_job_from_ending(paceline):
    script = paceline.script(
        "odd.py",
        "import json, os, sys\n"
        "message = {'message': 'Odd: text', 'extraInfo': 'none'}\n"
        "json.dump({'message': message}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
        "sys.exit(3)\n",
    )
    finished = paceline.run("run", script, timeout=30)
    assert finished.code == 3 and "raised Odd" in finished.err


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_requirements_are_installed_ends_the_installation(paceline, number):
    source = paceline.directory / "source"
    source.mkdir()
    (source / "requirements.txt").write_text("nothing\n")
    (source / "train.py").write_text("print('started')\n")
    python = paceline.directory / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *"\'pip\'"*) touch installing && sleep 300;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    job = paceline.start("run", "--source-dir", str(source), "train.py", PYTHON_EXEC=str(python))
    job.until((source / "installing").exists)
    job.process.send_signal(number)
    finished = job.wait(10)
    assert finished.code == (130 if number == signal.SIGINT else 204), finished.err
    assert finished.out == "" and "E01" not in finished.err
    assert paceline.left() == []


@pytest.mark.slow_but_first
@pytest.mark.parametrize("which", [["RING"], ["SOCKET"], ["ERROR"], ["RING", "SOCKET", "ERROR"]], ids="-".join)
def test_a_restart_works_where_a_cleaner_has_removed_what_was_made_for_the_job(paceline, which):
    """A logout clears /run/user/UID and /dev/shm. The last ones stand for all that is above them too."""
    script = paceline.script(
        "cleans.py",
        "import os, pathlib, shutil, sys\n"
        "import paceline\n"
        "paceline.step()\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    for name in sys.argv[1:]:\n"
        "        place = pathlib.Path(os.environ[f'PACELINE_{name}_DIR'])\n"
        "        shutil.rmtree(place.parent.parent if name == 'ERROR' else place)\n"
        "    sys.exit(3)\n"
        "print('done')\n",
    )
    finished = paceline.run("run", "--max-restarts", "1", script, *which)
    assert (finished.code, finished.out) == (0, "done\n"), finished.err


@pytest.mark.slow_but_first
@pytest.mark.parametrize("size", ["0", "4096", str(1 << 45)])
def test_a_cleaner_that_cuts_off_every_file_of_the_job_ends_no_rank(paceline, size):
    """A script that empties /dev/shm, or what it takes for it: a page that is gone is SIGBUS in whoever has mapped it."""
    script = paceline.script(
        "cleans.py",
        "import os, pathlib, sys, time\n"
        "import paceline\n"
        "for step in range(100):\n"
        "    paceline.step()\n"
        "    for name in ('RING', 'SOCKET', 'ERROR'):\n"
        "        for place in pathlib.Path(os.environ[f'PACELINE_{name}_DIR']).rglob('*'):\n"
        "            if place.is_file():\n"
        "                os.truncate(place, int(sys.argv[1]))\n"
        "    time.sleep(0.01)\n"
        "print('done')\n",
    )
    finished = paceline.run("run", script, size)
    assert (finished.code, finished.out) == (0, "done\n"), finished.err
    (rank,) = paceline.evidence().ranks
    assert rank.step_count == 100


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--resume", "auto"), ("--local-hosts", "2")])
def test_without_an_umask_nobody_else_may_change_what_a_recording_has(paceline, options):
    script = paceline.script("short.py", "print('here')")
    open_to_all = ("sh", "-c", 'umask 000; exec "$@"', "sh")
    assert paceline.run("run", "--nproc-per-node", "2", *options, script, prefix=open_to_all).code == 0
    (run,) = (paceline.directory / ".paceline" / "runs").iterdir()
    found = [path for path in run.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    # Channels and what the script is to leave are the user's own.
    assert {path.name for path in found} <= {"model", "checkpoints", "output", "data", "intermediate", "success"}
