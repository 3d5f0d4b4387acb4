import os
import sys
import threading
import zipfile

import pytest

from paceline.contract.requirements import command, install, last_lines, wanted
from paceline.errors import UsageError
from paceline.facts import Contract, Program, ProgramKind


def script(path="train.py"):
    return Program(kind=ProgramKind.SCRIPT, target=str(path))


def wheel(directory, name):
    """A wheel that needs nothing to build or download."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "here = True\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def test_a_plain_run_installs_nothing_even_when_the_file_is_there(tmp_path):
    (tmp_path / "requirements.txt").touch()
    assert wanted(Contract(), script(tmp_path / "train.py")) is None


def test_the_option_takes_the_file_beside_the_script(tmp_path):
    (tmp_path / "requirements.txt").touch()
    asked = Contract(install_requirements=True)
    assert wanted(asked, script(tmp_path / "train.py")) == tmp_path / "requirements.txt"


def test_the_file_of_a_code_directory_is_taken_without_being_asked(tmp_path):
    assert wanted(Contract(code_dir=str(tmp_path)), script()) is None
    (tmp_path / "requirements.txt").touch()
    assert wanted(Contract(code_dir=str(tmp_path)), script()) == tmp_path / "requirements.txt"


def test_a_relative_code_directory_and_a_relative_python_are_found_from_the_files_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "requirements.txt").touch()
    file = wanted(Contract(code_dir="code"), script())
    assert file == tmp_path / "code" / "requirements.txt"
    assert command(file, ".venv/bin/python")[0] == str(tmp_path / ".venv/bin/python")
    assert command(file, "python3")[0] == "python3"


def test_the_option_without_a_file_is_refused(tmp_path):
    with pytest.raises(UsageError) as refused:
        wanted(Contract(install_requirements=True), script(tmp_path / "train.py"))
    assert refused.value.code == "E01"


def test_the_last_lines_are_those_with_text():
    text = "\n".join(f"line {number}\n" for number in range(20))
    assert last_lines(text).splitlines() == [f"line {number}" for number in range(12, 20)]


def test_the_line_that_names_the_error_stays_above_them():
    text = "Collecting x\nerror: externally-managed-environment\n" + "hint\n" * 20
    assert last_lines(text).splitlines() == ["error: externally-managed-environment", *["hint"] * 8]


@pytest.mark.slow
@pytest.mark.process
def test_agents_of_one_machine_install_once_and_wait_for_each_other(tmp_path):
    wheel(tmp_path, "pacelinetestwheel")
    file = tmp_path / "requirements.txt"
    file.write_text("./pacelinetestwheel-1.0-py3-none-any.whl\n")
    site = tmp_path / "site"
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_TARGET": str(site)}
    installed_now = []

    def agent():
        installed_now.append(
            install(file, python=sys.executable, lock_directory=tmp_path, run_id="r-000001", environment=environment)
        )
        assert (site / "pacelinetestwheel.py").exists()

    agents = [threading.Thread(target=agent) for _ in range(3)]
    for thread in agents:
        thread.start()
    for thread in agents:
        thread.join()
    assert sorted(installed_now) == [False, False, True]


@pytest.mark.slow
@pytest.mark.process
def test_the_end_of_what_pip_said_is_in_the_error(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("no-such-package-of-paceline==1.0\n")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_TARGET": str(tmp_path / "site")}
    with pytest.raises(UsageError) as refused:
        install(file, python=sys.executable, lock_directory=tmp_path, run_id="r-000001", environment=environment)
    error = refused.value
    assert error.code == "E01"
    assert "no-such-package-of-paceline" in error.saw
    assert error.next.endswith(f"-r {file}")
