"""What every verb takes in the same way: --json and --color wherever they stand, help by name, refusals in our words, durations."""

import json

import pytest

from paceline.cli import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("argv", [["--json", "ps"], ["ps", "--json"], ["--color", "never", "--json", "ps"]])
def test_json_may_stand_before_the_verb(argv, capsys):
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "paceline.ps/2"


@pytest.mark.parametrize("argv", [["--json", "why", "r-zzzzzz"], ["why", "r-zzzzzz", "--json"]])
def test_a_refusal_is_an_object_then_too(argv, capsys):
    assert main(argv) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "U09"


@pytest.mark.parametrize(
    "argv", [["--color", "always", "why", "r-z"], ["why", "r-z", "--color", "always"], ["why", "--color=always", "r-z"]]
)
def test_a_refusal_has_colour_wherever_it_is_asked_for(argv, capsys):
    assert main(argv) == 2
    assert "\x1b[" in capsys.readouterr().err


def test_the_colour_of_the_users_own_script_is_not_ours(capsys):
    assert main(["run", "missing.py", "--color", "always"]) == 2
    assert "\x1b[" not in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["help", "logs"], ["-h", "logs"], ["--help", "logs"], ["logs", "--help"]])
def test_help_of_a_verb_by_its_name(argv, capsys):
    assert main(argv) == 0
    assert "usage: paceline logs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "what", "next_step"),
    [
        (["logs", "--attempt", "x"], "--attempt: 'x' is not a number", "paceline logs --attempt 1"),
        (["logs", "--stdout", "--stderr"], "it excludes --stdout", "paceline logs --stdout"),
        (["logs", "--tail", "-3"], "--tail -3 is not 0 or more", "paceline logs --tail 20"),
        (["env", "--python"], "--python: it has no value", "paceline env --python FILE"),
        (
            ["env", "--python", "/nowhere/python"],
            "no program that can be started",
            "paceline env --python /usr/bin/python3",
        ),
        (["submit", "train.py"], "--engine says where", "paceline submit --engine local train.py"),
        (["ps", "--status", "Broken"], "'Broken' is no status", "paceline ps --status Failed"),
        (["bench", "--iterz=3", "all_reduce"], "unknown option --iterz", "paceline bench --iters=3 all_reduce"),
        (
            ["plan", "--instance", "p4d.24xlarge", "--hosts", "0", "--gradient-mib", "1"],
            "--hosts 0 cannot be",
            "paceline plan --instance p4d.24xlarge --hosts 1 --gradient-mib 1",
        ),
        (["top", "--interval", "0s"], "--interval 0s is not above 0", "paceline top --interval 1s"),
    ],
)
def test_what_is_refused_says_so_in_our_words(argv, what, next_step, capsys):
    assert main(argv) == 2
    text = capsys.readouterr().err
    assert what in text and f"next      {next_step}" in text and "argument " not in text


def test_the_engine_for_tests_is_not_offered(capsys):
    assert main(["submit", "--engine", "kubernetes", "train.py"]) == 2
    assert "fake" not in capsys.readouterr().err


def test_all_that_sagemaker_lacks_is_named_at_once(tmp_path, capsys):
    (tmp_path / "train.py").touch()
    assert main(["submit", "--engine", "sagemaker", "--dry-run", "train.py"]) == 2
    text = capsys.readouterr().err
    assert "no image and no role and no instance type" in text
    assert text.count("--option ") == 3


@pytest.fixture
def runs(recording):
    done = recording("r-000001")
    done.identity()
    done.event("run_finished", status="Completed", secondary_status="Completed", exit_code=0, reason="")
    failed = recording("r-000002")
    failed.identity()
    failed.event("run_finished", status="Failed", secondary_status="Failed", exit_code=1, reason="over")
    log = failed.path / "hosts" / "localhost" / "attempt_0" / "rank_0.out"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"line {number}\n" for number in range(10)))
    return failed.path.parent


def test_ps_shows_runs_of_one_status_below_a_directory(runs, capsys):
    assert main(["ps", "--json", "--status", "failed", "--run-dir", str(runs)]) == 0
    assert [one["run_id"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["r-000002"]


@pytest.mark.parametrize(
    ("argv", "lines"),
    [
        (["--tail", "2"], ["line 8", "line 9"]),
        (["-n", "1", "--grep", "[0-4]"], ["line 4"]),
        (["--tail", "0"], []),
        (["--tail", "50"], [f"line {number}" for number in range(10)]),
    ],
)
def test_the_last_lines_of_a_log(runs, argv, lines, capfdbinary):
    assert main(["logs", str(runs / "r-000002"), *argv]) == 0
    found = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.partition("line")[1] + line.partition("line")[2] for line in found] == lines


def test_ctrl_c_during_the_imports_leaves_no_traceback(monkeypatch):
    import builtins

    from paceline.__main__ import main as command

    real = builtins.__import__

    def interrupted(name, *more):
        if name == "paceline.cli":
            raise KeyboardInterrupt
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert command() == 130
