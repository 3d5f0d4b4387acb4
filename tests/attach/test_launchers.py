"""Which program a command line runs."""

import pytest

from paceline.attach.launchers import launcher_of, program_of


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --m x", "train.py"),
        ("/usr/bin/python3.11 -u -X dev -W ignore train.py", "train.py"),
        ("python -m pkg.train -c x", "pkg.train"),
        ("python -um pkg.train", "pkg.train"),
        ("python -mpkg.train", "pkg.train"),
        ("python -Pc code", "-c"),
        ("python -ccode", "-c"),
        ("python -", ""),
        ("python", ""),
        ("python -m", ""),
        ("./trainer -m x", "./trainer"),
        ("", ""),
    ],
)
def test_a_python_runs_its_script_module_or_code(command, program):
    assert program_of(command.split()) == program


def test_a_title_that_a_process_gave_itself_is_no_script():
    assert program_of(["python: rank 3 of 8"]) == ""


@pytest.mark.parametrize(
    "command",
    [
        "python /home/torchrun/train.py",
        "python train.py torchrun",
        "vim torchrun.py",
        "tail -f mpirun.log",
        "python accelerate.py",
        "python -c import torchrun",
        "python -m mypackage.run",
        "bash -c torchrun train.py",
        "python run.py",
    ],
)
def test_a_name_in_a_path_or_an_argument_is_no_launcher(command):
    assert launcher_of(command.split()) == ""


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("python /x/site-packages/torch/distributed/run.py t.py", "torchrun"),
        ("/usr/bin/mpirun.openmpi -np 2", "MPI"),
        ("python -m paceline run t.py", "paceline"),
        ("python -P -m paceline.launch.programs.agent", "paceline"),
    ],
)
def test_a_launcher_is_known_by_its_program(command, word):
    assert launcher_of(command.split()) == word


def test_an_agent_that_a_python_runs_as_code_is_known():
    assert (
        launcher_of(["python", "-c", "import runpy\nrunpy.run_module('paceline.launch.agent', run_name='__main__')"])
        == "paceline"
    )
