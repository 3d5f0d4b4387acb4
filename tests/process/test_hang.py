"""A job that hangs: said, stopped or restarted, on one host and on two, and the same answer from the recording."""

import json
import os
import socket

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def events(paceline, name):
    return [event for event in paceline.evidence().events if event["event"] == name]


def codes(paceline):
    return [(event["finding"]["code"], tuple(event["finding"].get("ranks", ()))) for event in events(paceline, "cause")]


def asleep(examples):
    return str(examples / "broken" / "n01_asleep.py")


@pytest.mark.slow
def test_a_stall_is_said_and_the_job_left_running_until_it_is_stopped(paceline, examples):
    job = paceline.start("run", "--nproc-per-node", "2", asleep(examples))
    job.until(lambda: "stall[N01]" in job.err)
    (run,) = (paceline.directory / ".paceline" / "runs").iterdir()
    answer = json.loads(paceline.run("why", run.name, "--json").out)
    assert answer["status"] == "InProgress"
    assert [(found["code"], found["ranks"]) for found in answer["findings"]] == [("N01", [1])]
    assert "n01_asleep.py" in paceline.run("stack", run.name, "--diff").out
    paceline.run("stop", run.name, "--now")
    assert job.wait().code == 143
    assert not paceline.left()


def test_a_confirmed_stall_ends_the_job_with_202_where_that_was_asked_for(paceline, examples):
    done = paceline.run("run", "--nproc-per-node", "2", "--on-hang", "stop", asleep(examples))
    assert done.code == 202
    assert "stopped on a confirmed hang: rank 1" in done.err
    assert not paceline.left()


@pytest.mark.wide
def test_a_restart_on_a_stall_starts_every_rank_again(paceline, examples):
    script = paceline.script(
        "once.py",
        "import os, runpy, sys\n"
        "again = os.environ['TORCHELASTIC_RESTART_COUNT'] != '0'\n"
        "sys.argv = ['x', '--steps', '20'] + (['--at-step', '999'] if again else [])\n"
        f"sys.path.insert(0, {str(examples / 'broken')!r})\n"
        f"runpy.run_path({asleep(examples)!r}, run_name='__main__')\n",
    )
    done = paceline.run("run", "--nproc-per-node", "2", "--max-restarts", "1", "--on-hang", "restart", script)
    assert done.code == 0, done.err
    assert [event["attempt"] for event in events(paceline, "restart")] == [1]
    assert {event["attempt"] for event in events(paceline, "cause")} == {0}


@pytest.mark.slow
def test_the_sleeper_is_named_across_hosts(paceline, examples):
    done = paceline.run(
        "run", "--local-hosts", "2", "--nproc-per-node", "1", "--on-hang", "stop", asleep(examples), "--rank", "1"
    )
    assert done.code == 202, done.err
    # On a machine that is busy with other things, what the rank did before may look like work of its own for a moment.
    named = next(event["finding"] for event in events(paceline, "cause") if event["finding"]["code"] == "N01")
    assert (named["ranks"], named["hosts"]) == ([1], ["algo-2"])


def test_wrong_numbers_of_a_job_that_ends_with_0_are_said(paceline, examples):
    done = paceline.run("run", "--nproc-per-node", "2", str(examples / "broken" / "m03_max.py"), "--steps", "40")
    assert done.code == 0
    assert [code for code, _ in codes(paceline)] == ["M03"]
    assert "M03" in done.err and "m03_max.py:15" in done.err


def test_a_healthy_job_has_nothing_said_of_it(paceline, examples):
    script = str(examples / "broken" / "n01_asleep.py")
    done = paceline.run("run", "--nproc-per-node", "2", script, "--steps", "60", "--at-step", "999")
    assert done.code == 0, done.err
    assert not events(paceline, "standstill") and not events(paceline, "divergence")


@pytest.mark.slow
def test_who_holds_the_port_of_the_rendezvous_is_named(paceline):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = paceline.script(
            "taken.py",
            "import os\nimport torch.distributed as dist\n"
            f"os.environ['MASTER_PORT'] = '{port}'\ndist.init_process_group('gloo')\n",
        )
        paceline.run("run", "--nproc-per-node", "2", script)
    (finding,) = [event["finding"] for event in events(paceline, "cause")]
    assert finding["code"] == "R04"
    assert any(f"port {port}: " in line and f"held by pid {os.getpid()} " in line for line in finding["saw"]), finding[
        "saw"
    ]
