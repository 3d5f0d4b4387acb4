"""Which files are the user's own."""

import json
import os
import subprocess
import sys

import pytest

from paceline.worker.error_file import is_users


@pytest.fixture
def packages(tmp_path):
    path = tmp_path / "lib/python3/dist-packages"
    path.mkdir(parents=True)
    return path


def test_a_link_that_an_installer_leaves_in_place_of_a_file_is_not_the_users(packages, tmp_path):
    (tmp_path / "cache.py").touch()
    (packages / "package.py").symlink_to(tmp_path / "cache.py")
    assert not is_users(str(packages / "package.py"))


def test_a_project_that_is_linked_into_the_packages_is_the_users(packages, tmp_path):
    (tmp_path / "project").mkdir()
    (packages / "project").symlink_to(tmp_path / "project")
    assert is_users(str(packages / "project" / "model.py"))


def test_of_an_interpreter_behind_a_link_nothing_is_the_users(tmp_path, user_environment, repository):
    (tmp_path / "python").symlink_to(sys.base_prefix)
    program = (
        "import json; from paceline.worker.error_file import is_users; print(json.__file__, is_users(json.__file__))"
    )
    done = subprocess.run(
        [tmp_path / "python" / "bin" / os.path.basename(os.path.realpath(sys.executable)), "-c", program],
        env=user_environment | {"PYTHONPATH": str(repository / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tmp_path / "python" / os.path.relpath(json.__file__, sys.base_prefix)), "False"]
