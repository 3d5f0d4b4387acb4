"""A wrong value is named as it was given: by the option that was typed, or by the variable."""

import pytest

from paceline.cli import main
from paceline.facts import Run
from paceline.recording.runs import create_run, write_run


@pytest.mark.parametrize(
    ("variables", "words", "what"),
    [
        ({"PET_NPROC_PER_NODE": "two"}, (), "PET_NPROC_PER_NODE=two is not a number"),
        ({"PET_NNODES": "a:b"}, ("--nproc-per-node", "2"), "PET_NNODES=a:b is not N"),
        ({"PET_NNODES": "2"}, ("--nnodes", "c:d"), "--nnodes c:d is not N"),
        ({}, ("--nproc-per-node", "two"), "--nproc-per-node two is not a number"),
    ],
)
def test_a_variable_is_named_where_nobody_typed_the_option(monkeypatch, tmp_path, capsys, variables, words, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hi.py").write_text("print(1)\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["run", *words, "hi.py"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[U03]: {what}")
    assert ("unset PET_" in said) == what.startswith("PET_")


@pytest.mark.parametrize(
    ("off", "word", "next_step"),
    [
        ("everything", "everything", "unset PACELINE_OFF"),
        ("steps, wait", "wait", "export PACELINE_OFF=waits"),
        ("ALL,,Dpp", "dpp", "export PACELINE_OFF=ddp"),
    ],
)
def test_what_is_turned_off_is_an_instrument(monkeypatch, tmp_path, capsys, off, word, next_step):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hi.py").write_text("print(1)\n")
    monkeypatch.setenv("PACELINE_OFF", off)
    assert main(["run", "hi.py"]) == 2
    said = capsys.readouterr().err
    assert f"PACELINE_OFF={off}: there is no instrument '{word}'" in said and f"next      {next_step}\n" in said


def test_an_id_that_a_run_has_is_taken(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hi.py").write_text("print(1)\n")
    made = create_run(tmp_path / ".paceline" / "runs", "r-000001")
    write_run(Run(id="r-000001", name="a", directory=str(made.path), command=(), started_ns=1, first_host="a"))
    assert main(["run", "--set", "run_id=r-000001", "hi.py"]) == 2
    assert capsys.readouterr().err.startswith("error[U03]: --set run_id=r-000001: a run has this id already")
    assert [path.name for path in made.path.iterdir()] == ["run.json"]
