"""What is said and kept of a job whose state is saved."""

import zipapp

import pytest

from paceline.facts import Job, Program, ProgramKind
from paceline.parts.resume.agent.saved_job import is_container, is_copied, script_of
from paceline.parts.resume.recording.saved_state import command_to_go_on


@pytest.mark.parametrize(
    "command, said",
    [
        ("paceline run --resume auto t.py", "paceline run --resume r-1 t.py"),
        ("paceline run --resume=auto --set run_id=r-1 t.py --resume x", "paceline run --resume=r-1 t.py --resume x"),
        ("paceline run --set run_id=r-1 --resume r-0 t.py", "paceline run --resume r-1 t.py"),
        ("paceline run --resume auto t.py --set run_id=7", "paceline run --resume r-1 t.py --set run_id=7"),
        ("paceline run t.py --resume", "paceline run --resume r-1 ..."),
        ("", "paceline run --resume r-1 ..."),
        ("paceline run --job job.json", "paceline run --resume r-1 ..."),
    ],
)
def test_the_command_that_goes_on_is_the_one_that_was_typed_with_the_run_in_it(command, said):
    assert command_to_go_on(tuple(command.split()), "r-1") == said


@pytest.mark.parametrize(
    "state_dir, copied", [(None, False), ("/runs/r-1/state", False), ("/opt/ml/checkpoints/.paceline/state", True)]
)
def test_steps_in_the_directory_of_checkpoints_are_copied_by_a_platform(state_dir, copied):
    job = Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), state_dir=state_dir)
    assert is_copied(job) is copied


@pytest.mark.parametrize("target, directory, script", [("", True, "__main__.py"), ("t.py", False, "t.py")])
def test_of_a_directory_the_script_is_the_file_that_python_finds_in_it(tmp_path, target, directory, script):
    job = Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target=str(tmp_path / target)))
    assert is_container(job) is directory and script_of(job) == tmp_path / script


def test_a_zip_application_has_its_script_inside(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text("print(1)\n")
    zipapp.create_archive(tmp_path / "app", tmp_path / "t.pyz", interpreter="/usr/bin/env python3")
    assert is_container(Job(name="j", program=Program(kind=ProgramKind.SCRIPT, target=str(tmp_path / "t.pyz"))))
