import subprocess
import sys

import pytest

from paceline.contract.entry import command, first_line_of, located
from paceline.facts import Program, ProgramKind


def program(kind, target, *arguments):
    return Program(kind=kind, target=target, arguments=arguments)


def test_a_python_file_runs_unbuffered_with_its_arguments_untouched():
    argv = command(program(ProgramKind.SCRIPT, "train.py", "--name", "it's", "a b"), python="python3")
    assert argv == ["python3", "-u", "train.py", "--name", "it's", "a b"]


def test_a_module_runs_with_dash_m():
    argv = command(program(ProgramKind.MODULE, "pkg.train", "x"), python="python3")
    assert argv == ["python3", "-u", "-m", "pkg.train", "x"]


def test_an_executable_is_the_first_word():
    assert command(program(ProgramKind.EXECUTABLE, "./train", "x"), python="python3") == ["./train", "x"]


def test_the_arguments_of_the_program_can_be_replaced():
    assert command(program(ProgramKind.SCRIPT, "t.py", "old"), python="p", arguments=["new"]) == [
        "p",
        "-u",
        "t.py",
        "new",
    ]


@pytest.mark.parametrize(
    ("first_line", "interpreter"),
    [
        ("", ["/bin/sh"]),
        ("#!", ["/bin/sh"]),
        ("#!/bin/bash", ["/bin/bash"]),
        ("#! /bin/bash -e ", ["/bin/bash", "-e"]),
        ("#!/usr/bin/env -S bash -e", ["/usr/bin/env", "-S bash -e"]),
    ],
)
def test_a_shell_script_runs_under_the_interpreter_it_names(first_line, interpreter):
    argv = command(program(ProgramKind.SCRIPT, "train.sh", "--lr", "0.1"), python="p", first_line=first_line)
    assert argv == [*interpreter, "train.sh", "--lr", "0.1"]


def test_the_first_line_of_a_file_without_one_is_empty(tmp_path):
    file = tmp_path / "train.sh"
    file.write_bytes(b"echo \xff\n")
    assert first_line_of(file) == ""
    assert first_line_of(tmp_path / "none.sh") == ""
    file.write_bytes(b"#!/bin/bash\r\n")
    assert first_line_of(file) == "#!/bin/bash"


def test_a_script_is_looked_up_in_the_code_directory_first(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert located(program(ProgramKind.SCRIPT, "train.py"), "code").target == str(tmp_path / "code" / "train.py")
    assert located(program(ProgramKind.SCRIPT, "other.py"), "code").target == str(tmp_path / "other.py")
    assert located(program(ProgramKind.SCRIPT, "train.py"), None).target == "train.py"
    assert located(program(ProgramKind.MODULE, "train"), "code").target == "train"


@pytest.mark.process
def test_a_shell_script_without_execute_permission_gets_its_arguments(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text('printf "%s|" "$@"\n')
    argv = command(program(ProgramKind.SCRIPT, str(script), "--name", "it's", "a b"), python=sys.executable)
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "--name|it's|a b|"


@pytest.mark.process
def test_run_path_runs_the_file_as_main_with_its_own_argv(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint(__name__, sys.argv)\n")
    argv = command(program(ProgramKind.RUN_PATH, str(script), "x"), python=sys.executable)
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert printed == f"__main__ {[str(script), 'x']}\n"
