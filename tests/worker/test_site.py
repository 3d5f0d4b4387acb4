"""The sitecustomize: reaches every Python process, costs next to nothing, and steps aside."""

import os
import re
import subprocess
import sys
import venv

import pytest

from paceline.worker.our_groups import MODULES

pytestmark = pytest.mark.process


def test_an_existing_sitecustomize_runs_and_keeps_its_name(workplace, written):
    theirs = written("import sys\nsys.flag_of_theirs = 'here'\nmine = 1\n", "theirs/sitecustomize.py")
    script = written("import sys, sitecustomize\nprint(sys.flag_of_theirs, sitecustomize.mine)\n")
    path = os.pathsep.join([workplace.environment["PYTHONPATH"], os.path.dirname(theirs)])
    (left,) = workplace.run(sys.executable, script, PYTHONPATH=path)
    assert (left.code, left.out, left.err) == (0, "here 1\n", "")


@pytest.mark.slow
def test_a_sitecustomize_that_raises_is_reported_as_without_us_and_the_rank_still_counts(workplace, written):
    theirs = written("raise RuntimeError('theirs is broken')\n", "theirs/sitecustomize.py")
    directory = os.path.dirname(theirs)
    path = os.pathsep.join([workplace.environment["PYTHONPATH"], directory])
    (with_us,) = workplace.run("loops.py", "gan", PYTHONPATH=path)
    (without_us,) = workplace.run("loops.py", "gan", PYTHONPATH=directory)
    assert (with_us.code, with_us.err) == (0, without_us.err)
    assert "theirs is broken" in with_us.err
    ((header, _),) = workplace.rings
    assert header.step_count == 6


def test_children_are_reached_through_any_python(workplace, written):
    script = written(
        "import subprocess, sys\n"
        "code = 'import sys; print(any(type(f).__name__ == \"AfterImport\" for f in sys.meta_path))'\n"
        "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout, end='')\n"
        "print(subprocess.run([sys.executable, '-I', '-c', code], capture_output=True, text=True).stdout, end='')\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert left.out == "True\nFalse\n"


@pytest.mark.slow
def test_a_users_own_module_called_paceline_keeps_its_name(workplace, written):
    theirs = written("me = 'a library for something else'\n", "theirs/paceline.py")
    script = written(
        "import sys, torch, paceline\n"
        "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); torch.optim.SGD(m.parameters(), 0.1).step()\n"
        "print(paceline.me)\n"
    )
    path = os.pathsep.join([workplace.environment["PYTHONPATH"], os.path.dirname(theirs)])
    (left,) = workplace.run(sys.executable, script, PYTHONPATH=path)
    assert (left.out, left.err) == ("a library for something else\n", "")
    ((header, _),) = workplace.rings
    assert (header.step_count, header.exiting) == (1, True)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [("", "", False), ("os.environ['X'] = '1'", "", True), ("", "os.environ['X'] = '1'", True)],
)
def test_a_changed_environment_is_one_of_before_torch_whatever_else_came_first(
    workplace, written, before, after, changed
):
    """A step of the script's own stands for another framework: what watches this process is there before torch is."""
    text = f"import os, paceline\n{before}\npaceline.step()\n{after}\nimport torch\nos.environ['Y'] = '1'\n"
    (left,) = workplace.run(sys.executable, written(text))
    assert (left.code, left.err) == (0, "")
    ((header, _),) = workplace.rings
    assert header.environment_changed == changed


@pytest.mark.slow
def test_a_rank_without_its_directories_trains_as_if_we_were_not_there(workplace):
    (left,) = workplace.run("loops.py", "gan", PACELINE_RING_DIR="/nowhere", PACELINE_SOCKET_DIR="/nowhere")
    assert (left.code, left.out, left.err) == (0, "", "")


def test_before_torch_only_modules_that_every_python_has_are_loaded(workplace):
    code = "import sys; print(sorted(sys.modules))"
    command = [sys.executable, "-c", code]
    with_us = subprocess.run(command, env=workplace.environment, capture_output=True, text=True, check=True).stdout
    without_us = subprocess.run(
        command, env=workplace.environment | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True
    ).stdout
    assert set(eval(with_us)) - set(eval(without_us)) <= {"sitecustomize", "atexit"}


def test_what_is_named_by_a_part_of_its_name_is_there(repository):
    """In a rank the package may go by another name, so modules are named by their ends."""
    package = repository / "src" / "paceline"
    site = (package / "worker" / "site" / "sitecustomize.py").read_text()
    ends = re.findall(r'_ours\("([\w.]+)"\)', site)
    ends += [name.removeprefix(".") for name in re.findall(r'"(\.worker\.\w+)"', site)]
    ends += [name.removeprefix("paceline.") for name in MODULES]
    ends += ["worker." + re.search(r'f"{__package__}\.(\w+)"', (package / "worker" / "error_file.py").read_text())[1]]
    assert len(ends) >= 8
    places = [package / end.replace(".", "/") for end in ends]
    missing = [str(place) for place in places if not (place.is_dir() or place.with_suffix(".py").is_file())]
    assert missing == []


def test_python_of_another_environment_finds_what_is_installed_there(workplace, written, tmp_path):
    """A rank may start a tool that has an environment of its own. In that of the rank all of it is there, in every child too."""
    other = tmp_path / "other"
    venv.create(other, with_pip=False)
    look = "import importlib.util as u; print([u.find_spec(n) is not None for n in ('paceline', 'smdistributed')], flush=True)"
    script = written(
        "import os, subprocess, sys\n"
        f"look = {look!r}\n"
        f"for python in ({str(other / 'bin' / 'python')!r}, sys.executable):\n"
        "    subprocess.run([python, '-c', look], check=True)\n"
        "exec(look)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    assert left.out.splitlines() == ["[False, False]", "[True, True]", "[True, True]"], left.err
