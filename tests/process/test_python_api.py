"""paceline.run, run_function and runs: the same jobs and answers as the verbs, from Python, and nothing left when the program goes."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from patience import patient

import paceline as api
from paceline.api.function import results_of
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.facts import Status
from paceline.recording.evidence import evidence

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

SCRIPTS = Path(__file__).parent / "scripts"
FUNCTIONS = """
import os

class Settings:
    def __init__(self, factor):
        self.factor = factor

def product(settings, offset):
    return int(os.environ["RANK"]) * settings.factor + offset

def fails():
    raise RuntimeError("on purpose")

alias = lambda: 1
"""


@pytest.fixture
def project(tmp_path, monkeypatch, user_environment):
    for name in set(os.environ) - set(user_environment):
        monkeypatch.delenv(name)
    for name, value in user_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for name in ("steps.py", "fails.py", "waits.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    return tmp_path


def test_a_script_runs_and_its_answers_are_values(project, capsys):
    run = api.run("steps.py", ["--lr", 3e-4], nproc_per_node=2, env={"MINE": "yes"}, hp={"depth": 3})
    assert run.status is Status.IN_PROGRESS and run.exit_code is None and run.directory.parent.name == "runs"
    assert run.wait(60) == 0
    shown = capsys.readouterr().out
    assert "0 | rank 0 of 2 --lr 0.0003" in shown and "1 | rank 1 of 2" in shown and f"done  {run.id}" in shown
    assert (run.status, run.exit_code) == (Status.COMPLETED, 0)
    assert sorted(line.split(" --")[0] for line in run.logs()) == ["rank 0 of 2", "rank 1 of 2"]
    (line,) = run.logs(rank=1, tail=1)
    assert line.endswith("--depth 3 yes")
    assert str(run.logs(rank=1)).startswith("1 | rank 1")
    assert run.evidence().run.id == run.id
    why = run.why()
    assert (why.state, why.findings, why.facts()["schema"]) == ("done", (), "paceline.why/2")
    assert run.id in str(why) and "<pre " in why._repr_html_()


def test_a_script_that_fails_is_explained_by_its_own_line(project, capsys):
    run = api.run("fails.py", nproc_per_node=2)
    assert run.wait(60, show=False) == 1
    assert capsys.readouterr().out == ""
    finding = run.why().findings[0]
    assert finding.ranks == (1,) and "no such class: 7" in " ".join(finding.saw)
    assert not run.stop(), "it has ended"


def test_the_runs_of_this_directory_are_a_table(project):
    assert len(api.runs()) == 0 and "no runs" in str(api.runs())
    first = api.run("steps.py")
    first.wait(60, show=False)
    second = api.run("steps.py", name="again")
    second.wait(60, show=False)
    found = api.runs()
    assert [run.id for run in found] == [second.id, first.id] and found[0].exit_code == 0
    assert found.facts() == json.loads(verb("ps", "--json"))
    assert "<td>again</td>" in found._repr_html_() and "again" in str(found)


def verb(*argv):
    return subprocess.run([sys.executable, "-m", "paceline", *argv], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("script", "options", "code", "next_step"),
    [
        ("nothere.py", {}, "U02", "ls ."),
        ("step.py", {}, "U02", "steps.py instead of step.py"),
        ("steps.py", {"nproc_per_nod": 2}, "U01", "nproc_per_node=..."),
        ("steps.py", {"nproc_per_node": "two"}, "U03", "--nproc-per-node 2"),
        ("steps.py", {"json": True}, "U01", "leave json out"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(project, script, options, code, next_step):
    with pytest.raises(UsageError) as refused:
        api.run(script, **options)
    assert (refused.value.code, refused.value.next) == (code, next_step)
    assert not (project / ".paceline").exists()


def test_a_function_runs_on_every_rank_and_returns(project, monkeypatch):
    (project / "mine.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(project)
    import mine

    run = api.run_function(mine.product, (mine.Settings(10), 1), nproc_per_node=3)
    assert run.wait(60, show=False) == 0, str(run.logs())
    assert run.results() == {0: 1, 1: 11, 2: 21}
    assert run.evidence().run.name == "product"


def test_a_function_that_fails_is_explained_and_has_no_results(project, monkeypatch):
    (project / "mine2.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(project)
    import mine2

    run = api.run_function(mine2.fails)
    assert run.wait(60, show=False) == 1
    assert "on purpose" in str(run.why()) and "mine2.py" in str(run.why())
    with pytest.raises(NotEnoughEvidence):
        run.results()


def test_a_function_that_the_ranks_could_not_find_is_refused_with_the_reason(project, monkeypatch):
    (project / "mine3.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(project)
    import mine3

    def inner():
        return 1

    for function, arguments, saw in (
        (inner, (), "no name of its own"),
        (mine3.alias, (), "no name of its own"),
        (mine3.product, (threading.Lock(), 1), "cannot pickle"),
    ):
        with pytest.raises(UsageError) as refused:
            api.run_function(function, arguments)
        assert refused.value.code == "U28" and saw in refused.value.saw
    assert not (project / ".paceline").exists()


def test_a_function_with_a_wrong_option_leaves_no_run(project, monkeypatch):
    (project / "mine4.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(project)
    import mine4

    with pytest.raises(UsageError, match="two"):
        api.run_function(mine4.fails, nproc_per_node="two")
    assert not list((project / ".paceline" / "runs").iterdir())


def test_results_that_another_user_could_have_written_are_not_loaded(tmp_path, monkeypatch):
    (tmp_path / "result_0.pickle").write_bytes(pickle.dumps(1))
    assert results_of(tmp_path) == {0: 1}
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError) as refused:
        results_of(tmp_path)
    assert refused.value.code == "U25"


def test_a_program_that_is_interrupted_while_the_job_starts_leaves_nothing(project, monkeypatch):
    sleep = time.sleep

    def interrupted(seconds):
        monkeypatch.setattr(time, "sleep", sleep)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        api.run("waits.py", run_id="r-000001")
    recording = project / ".paceline" / "runs" / "r-000001"
    assert not recording.exists() or evidence(recording).run.status is Status.STOPPED


def test_a_function_of_the_program_itself_is_found_as_multiprocessing_finds_it(project):
    program = project / "program.py"
    program.write_text(
        "import os, paceline\n"
        "def rank():\n    return os.environ['RANK']\n"
        "if __name__ == '__main__':\n"
        "    run = paceline.run_function(rank, nproc_per_node=2)\n"
        "    print(run.wait(show=False), run.results())\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stdout == "0 {0: '0', 1: '1'}\n", done.stderr


def test_a_run_is_stopped_from_its_handle_and_a_wait_that_is_over_leaves_it_running(project):
    run = api.run("waits.py", nproc_per_node=2)
    with pytest.raises(TimeoutError, match="still runs after 1 s"):
        run.wait(1, show=False)
    until(lambda: len(run.logs()) == 2)
    (same,) = api.runs()
    assert same.id == run.id and same.stop()
    assert run.wait(60, show=False) == 143
    assert run.status is Status.STOPPED


PROGRAM = "import paceline\nprint('begins', flush=True)\nrun = paceline.run('waits.py', nproc_per_node=2)\nrun.wait()\n"


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_job_whose_program_is_interrupted_or_killed(paceline, number):
    shutil.copy(SCRIPTS / "waits.py", paceline.directory)
    script = paceline.script("program.py", PROGRAM)
    with open(paceline.directory / "said", "w+b") as said:
        program = subprocess.Popen(
            [sys.executable, script], cwd=paceline.directory, env=paceline.environment, stdout=said, stderr=said
        )
        try:
            until(lambda: (paceline.directory / "said").read_bytes().count(b" | here") == 2)
            program.send_signal(number)
            code = program.wait(patient(30))
        finally:
            program.kill()
    assert code == -signal.SIGKILL if number == signal.SIGKILL else code == 130 or code == -signal.SIGINT
    until(lambda: paceline.left() == [])
    assert paceline.evidence().run.status is Status.STOPPED


def until(condition, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + patient(timeout)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
