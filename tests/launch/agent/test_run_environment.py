"""What two runs are compared by: versions, variables, code."""

import subprocess
import sys

import pytest

from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.run_environment import cuda_version, driver_version, environment_document
from paceline.probes.torch_version import read_torch


def identity(**environ):
    return HostIdentity(run_id="r-1", job_name="j", name="algo-1", mark="m", environ=environ)


def git(directory, *words):
    names = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    subprocess.run(("git", "-C", directory, *names, *words), check=True, capture_output=True)


def test_it_names_versions_variables_and_the_state_of_the_code(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    (tmp_path / "train.py").write_text("2")
    found = environment_document(identity(NCCL_DEBUG="INFO", PACELINE_TOKEN="secret", HOME="/root"), tmp_path)
    assert (found["schema"], found["host"], found["torch"]) == (
        "paceline.environment/1",
        "algo-1",
        read_torch().version,
    )
    assert len(found["commit"]) == 40 and (found["dirty"], found["dirty_count"]) == (["train.py"], 1)
    assert found["variables"] == {"NCCL_DEBUG": "INFO", "PACELINE_TOKEN": "***"}


def test_without_git_and_without_torch_it_says_so(tmp_path):
    found = environment_document(identity(PYTHON_EXEC=str(tmp_path / "none")), tmp_path)
    assert found["commit"] is None
    found = environment_document(identity(PYTHON_EXEC=str(tmp_path / "none")), None)
    assert (found["commit"], found["dirty"], found["torch"], found["cuda"]) == (None, [], None, None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build", "570.86.10"),
        ("", None),
    ],
)
def test_the_driver_is_named(text, version):
    assert driver_version(text) == version


def test_the_cuda_of_another_torch_is_not_known():
    assert cuda_version("0.0.0+another") is None
    assert sys.executable
