"""The entry point in the container, before it becomes the agent."""

import ast
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from paceline.parts.sagemaker.engine import entry as entry
from paceline.parts.sagemaker.engine.package import requirements, wheel_content


def a_job():
    return {"job": {"schema": "paceline.job/1", "run_id": "r-1", "job": {"name": "train"}}, "wheel": "w.whl"}


def argv_of(base, by_toolkit, code=None):
    (base / "code" / entry.AGENT_DIRECTORY).mkdir(parents=True, exist_ok=True)
    return entry._argv(a_job(), str(code or base / "code"), str(base), by_toolkit=by_toolkit)


def test_python_3_8_can_read_it_to_the_end():
    ast.parse(Path(entry.__file__).read_text(), feature_version=(3, 8))


def test_an_old_python_is_told_which_one_is_needed():
    with pytest.raises(entry.EntryRefused) as refused:
        entry._require_python((3, 8, 10))
    assert "3.8.10" in refused.value.text and "3.11 or newer" in refused.value.text
    entry._require_python((3, 11, 0))


def test_the_tree_of_sagemaker_is_the_real_one_unless_it_was_moved(tmp_path):
    code = tmp_path / "code"
    job = code / entry.AGENT_DIRECTORY / "job.json"
    place = [
        "--run-dir",
        f"{tmp_path}/output/data/paceline",
        "--set",
        f"token_file={code}/paceline_token",
        "--job",
        str(job),
    ]
    assert argv_of(tmp_path, True) == ["run", "--set", f"base_dir={tmp_path}", *place]
    assert json.loads(job.read_text())["run_id"] == "r-1"
    assert entry._argv(a_job(), str(code), "/opt/ml", by_toolkit=True)[2] == "opt_ml=true"


@pytest.mark.parametrize("by_toolkit", [False, True])
def test_requirements_are_the_agents_where_no_toolkit_has_installed_them(tmp_path, by_toolkit):
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").touch()
    argv = argv_of(tmp_path, by_toolkit)
    contract = json.loads(Path(argv[-1]).read_text())["job"]["contract"]
    assert contract == ({} if by_toolkit else {"code_dir": str(code)})


def test_the_archive_is_unpacked_once_and_only_where_nobody_has(tmp_path):
    here, base = tmp_path / "channel", tmp_path / "ml"
    here.mkdir()
    with tarfile.open(here / entry.ARCHIVE, "w:gz") as archive:
        member = tarfile.TarInfo(entry.JOB_FILE)
        archive.addfile(member, io.BytesIO())
    assert entry._code_directory(str(here), str(base)) == str(base / "code")
    assert entry._code_directory(str(base / "code"), str(base)) == str(base / "code")
    with pytest.raises(entry.EntryRefused, match="cannot be unpacked"):
        entry._code_directory(str(tmp_path), str(base))


def test_the_interface_of_the_platform_is_taken_where_several_hosts_meet_and_it_is_there(tmp_path):
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    assert entry._interface(str(tmp_path)) is None
    for hosts, name, expected in ((["a", "b"], "lo", "lo"), (["a"], "lo", None), (["a", "b"], "no-such", None)):
        (config / "resourceconfig.json").write_text(json.dumps({"hosts": hosts, "network_interface_name": name}))
        assert entry._interface(str(tmp_path)) == expected
    before = {"PATH": "/bin", "PYTHONPATH": "/mine", "GLOO_SOCKET_IFNAME": "eth9"}
    made = entry._environment(dict(before), ["/agent", "/agent/needs"], str(tmp_path))
    assert made == {
        "PATH": "/bin:/agent/needs/bin",
        "PYTHONPATH": "/agent:/agent/needs:/mine",
        "GLOO_SOCKET_IFNAME": "eth9",
    }


def test_without_a_package_that_only_measures_the_agent_goes_on(capsys):
    entry._judge_lack(["py-spy>=0.4"], "no network")
    assert "going on without py-spy>=0.4: no network" in capsys.readouterr().err
    with pytest.raises(entry.EntryRefused) as refused:
        entry._judge_lack(["py-spy>=0.4", "msgspec>=0.19"], "no network")
    assert "lacks msgspec>=0.19, and" in refused.value.text and "pip install 'msgspec>=0.19'" in refused.value.text


@pytest.mark.parametrize(
    ("requirement", "there"),
    [("pytest>=1", True), ("pytest>=999.1", False), ("no-such-thing>=1", False), ("pytest", True)],
)
def test_what_is_there_is_known_by_its_version(requirement, there):
    assert entry._is_there(requirement) is there


@pytest.mark.process
def test_the_wheel_is_one_that_pip_takes_and_the_same_each_time(tmp_path):
    content = wheel_content()
    assert content == wheel_content()
    name = tmp_path / "paceline-0.1.0-py3-none-any.whl"
    name.write_bytes(content)
    with zipfile.ZipFile(name) as wheel:
        files = set(wheel.namelist())
        wheel.extractall(tmp_path / "agent")
    assert "paceline/worker/site/sitecustomize.py" in files and not any("__pycache__" in file for file in files)
    assert entry._requirements(str(tmp_path / "agent")) == list(requirements())
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--target",
        str(tmp_path / "t"),
        str(name),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    assert (tmp_path / "t/paceline/cli/run/verb.py").exists()


@pytest.mark.process
def test_an_image_without_what_the_agent_needs_and_without_a_network_names_it(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "paceline_entry.py").write_text(Path(entry.__file__).read_text())
    (code / entry.JOB_FILE).write_text(json.dumps(a_job()))
    (code / "w.whl").write_bytes(wheel_content())
    # -S: as an image would be that has Python and nothing else.
    argv = [sys.executable, "-S", str(code / "paceline_entry.py")]
    environment = {"SAGEMAKER_BASE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    failure = (tmp_path / "output/failure").read_text()
    assert failure.startswith("error[E11]: this image lacks msgspec") and "platformdirs" in failure
    assert "RUN pip install 'msgspec" in failure and len(failure) <= 1024
