"""A program that cannot start is refused before anything starts, with something to type that helps."""

import pytest

from paceline.errors import UsageError
from paceline.facts import Job, Program, ProgramKind
from paceline.launch.program import require_program


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "broken.py").symlink_to("/nonexist")
    (tmp_path / "start").write_text("#!/bin/sh\n")
    (tmp_path / "start.sh").write_text("#!/bin/sh\n")
    (tmp_path / "py.sh").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "uv.py").write_text("#!/usr/bin/env -S uv run --script\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "main.py").write_text("")
    return tmp_path


def refusal(target, kind=ProgramKind.SCRIPT):
    with pytest.raises(UsageError) as refused:
        require_program(Job(name="j", program=Program(kind=kind, target=target)), {})
    assert refused.value.code == "U02"
    return refused.value


@pytest.mark.parametrize(
    ("target", "what", "next"),
    [
        ("trian.py", "there is no script trian.py", "train.py instead of trian.py"),
        ("broken.py", "broken.py is a link to /nonexist, which is not there", "ls -l broken.py"),
        ("start", "start is a script of another program than Python", "--no-python ./start instead of start"),
        ("pkg", "pkg is a directory without __main__.py", "ls pkg"),
        ("one", "one is a directory without __main__.py", "one/main.py instead of one"),
        ("one/gone/far.py", "there is no script one/gone/far.py", "ls one"),
        ("no/where/far.py", "there is no script no/where/far.py", "ls ."),
    ],
)
def test_a_script_that_is_not_there(target, what, next):
    error = refusal(target)
    assert (error.what, error.next) == (what, next)


@pytest.mark.parametrize(
    ("target", "what", "next"),
    [
        ("pkg.nothing", "there is no module pkg.nothing", "ls pkg"),
        ("pgk.train", "there is no module pgk", "pkg instead of pgk.train"),
        ("train.py", "-m takes a module name, and train.py is a file", "leave -m out"),
    ],
)
def test_a_module_that_is_not_there(target, what, next):
    error = refusal(target, ProgramKind.MODULE)
    assert (error.what, error.next) == (what, next)


@pytest.mark.parametrize("target", ["train", "json.tool", "pkg", "concurrent.futures"])
def test_a_module_that_is_or_may_be_there(target):
    require_program(Job(name="j", program=Program(kind=ProgramKind.MODULE, target=target)), {})


@pytest.mark.parametrize("target", ["train.py", "uv.py", "start.sh", "py.sh"])
def test_a_script_of_python_or_of_a_shell(target):
    require_program(Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target=target)), {})
