"""A wrong value is named as it was given: by the option that was typed, or by the variable."""

import pytest

from paceline.cli import main


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
