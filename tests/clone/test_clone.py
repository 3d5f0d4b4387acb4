"""The command that installs paceline names a clone: the one of the code that runs, or a place to fill in."""

import runpy
import shutil

import pytest

from paceline import clone


@pytest.mark.parametrize(
    ("source", "has_project", "extra", "command"),
    [
        ("src", True, "ray", "pip install '{root}[ray]'"),
        ("src", True, "", "pip install '{root}'"),
        ("src", False, "ray", "pip install '/path/to/clone[ray]'"),
        ("site-packages", True, "ray", "pip install '/path/to/clone[ray]'"),
        ("site-packages", False, "", "pip install /path/to/clone"),
    ],
)
def test_a_clone_is_named_by_its_path_and_an_installed_copy_by_a_placeholder(
    tmp_path, source, has_project, extra, command
):
    root = tmp_path / "my clone"
    copy = root / source / "paceline" / "clone.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(clone.__file__, copy)
    if has_project:
        (root / "pyproject.toml").touch()
    assert runpy.run_path(str(copy))["install_command"](extra) == command.format(root=root)
