"""What `paceline submit` makes of a command line, shows and refuses; nothing is started."""

import json

import pytest

from paceline.cli import main
from paceline.errors import UsageError
from paceline.parts.engines.cli.submission import submission_of
from paceline.parts.engines.cli.submit import parse


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def submission(*argv, environ=None):
    return submission_of(parse(["--engine", "fake", *argv]), "r-000001", {}, environ or {})


def test_the_options_of_run_become_the_job_file():
    job, directory, root = submission(
        *("--nnodes", "2", "--nproc-per-node=gpu", "--max-run", "2h", "--name", "big", "--hp", "lr=0.1"),
        *("--max-restarts", "3", "--on-hang=stop", "train.py", "--engine", "mine"),
    )
    assert (job.hosts, job.ranks_per_host, job.max_run_seconds, job.name) == (2, "gpu", 7200.0, "big")
    assert job.hyperparameters == {"lr": 0.1}
    assert (job.file.job.max_restarts, job.file.job.on_hang) == (3, "stop")
    assert (job.program.target, job.program.arguments) == ("train.py", ("--engine", "mine"))
    assert root == directory / ".paceline" / "runs"


def test_a_script_below_this_directory_ships_this_directory(project):
    job, directory, _ = submission("src/train.py")
    assert (directory, job.program.target) == (project, "src/train.py")


def test_a_script_elsewhere_ships_its_own_directory(project, monkeypatch):
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    job, directory, _ = submission(str(project / "src" / "train.py"))
    assert (directory, job.program.target) == (project / "src", "train.py")


def test_variables_come_from_the_shell_or_from_the_command_line():
    job, _, _ = submission("--env", "A=1", "--env", "B", "train.py", environ={"B": "2"})
    assert job.environment == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("argv", "code", "what"),
    [
        (["--node-rank", "0", "--master-addr", "there", "train.py"], "U05", "--master-addr cannot be set here"),
        (["--set", "no_check=true", "train.py"], "U05", "--set no_check is an option of paceline run alone"),
        (["--set", "json_file=x", "train.py"], "U05", "--set json_file is an option of paceline run alone"),
        (["--set", "no_token=true", "train.py"], "U05", "--set no_token cannot be set here"),
        (["--nnodes", "1:4", "train.py"], "U05", "a fixed number of hosts"),
        (["--hosts", "a,b", "--nnodes", "3", "train.py"], "U05", "--hosts names 2 hosts"),
        (["--env", "NOT_SET", "train.py"], "U03", "not set here"),
        (["--retries", "-1", "train.py"], "U03", "not 0 or more"),
        (["trian.py"], "U02", "there is no script trian.py"),
        (["--nprocs-per-node", "2", "train.py"], "U01", "unknown option --nprocs-per-node"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(project, argv, code, what):
    with pytest.raises(UsageError) as refused:
        submission(*argv)
    assert refused.value.code == code
    assert what in refused.value.what
    assert refused.value.next
    assert not (project / ".paceline").exists()


def test_a_dry_run_asks_nothing_and_leaves_nothing(project, capsys):
    assert main(["submit", "--engine", "local", "--nnodes", "2", "--dry-run", "--json", "train.py"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["engine"] == "local"
    assert shown["document"]["local_hosts"] == 2
    assert shown["document"]["job"]["job"]["program"] == {"kind": "script", "target": "train.py"}
    assert not (project / ".paceline").exists()


def test_only_hosts_of_this_machine_have_an_opt_ml_of_their_own():
    asked = ["--set", "opt_ml=true", "train.py"]
    job, _, _ = submission_of(parse(["--engine", "local", *asked]), "r-000001", {}, {})
    assert job.file.job.contract.shown_at_opt_ml and not job.file.job.contract.opt_ml
    with pytest.raises(UsageError, match="--set opt_ml cannot be set here"):
        submission(*asked)


def test_a_job_that_is_refused_leaves_nothing(project, capsys):
    assert main(["submit", "--engine", "fake", "--option", "refuse=U05", "train.py"]) == 2
    assert "the fake engine refuses this job" in capsys.readouterr().err
    assert not list((project / ".paceline" / "runs").iterdir())


def test_the_verbs_work_on_a_job_that_no_agent_has_recorded(capsys):
    states = ["--option", "states=Pending,Pending,Training,Training"]
    assert main(["submit", "--engine", "fake", *states, "--json", "train.py"]) == 0
    run = json.loads(capsys.readouterr().out)["run_id"]
    assert main(["ps", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"][0]
    assert (listed["run_id"], listed["name"], listed["engine"], listed["status"]) == (
        run,
        "train",
        "fake",
        "InProgress",
    )
    assert main(["logs", run]) == 0
    assert capsys.readouterr().out == "look 0\nlook 1\nlook 2\n"
    assert main(["stop", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accepted"] is True
    assert main(["ps", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"][0]
    assert (listed["status"], listed["exit_code"]) == ("Stopped", 143)
    assert main(["stop", run]) == 0
    assert "has already ended: Stopped" in capsys.readouterr().err


def test_to_follow_a_job_returns_its_exit_code(capsys):
    options = ["--option", "states=Training,Failed", "--option", "exit_code=7"]
    assert main(["submit", "--engine", "fake", *options, "--follow", "train.py"]) == 7
    assert "look 1" in capsys.readouterr().out
