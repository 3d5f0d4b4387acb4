"""What other users of the machine see and leave, and what the commands do with it."""

import os
import shutil
import stat
import sys

import pytest

from paceline.cli import main
from paceline.contract.requirements import command
from paceline.parts.resume import resume_from
from paceline.parts.web.cli import web
from paceline.probes.environment import without_secrets
from paceline.probes.torch_version import read_torch
from paceline.user_folders import user_state_folder
from paceline.views.report.redaction import command_without_secrets

NAMES = ("HF", "MYKEY", "PGPASS", "SLACK_WEBHOOK", "PLAIN", "A")
# Names of the standard library, most of which our own questions import.
SHADOWS = (
    "json", "importlib", "platform", "re", "os", "runpy", "random", "subprocess", "zipfile", "email", "csv", "pathlib", "typing",
    "tempfile", "socket", "logging", "inspect", "types",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["hunter2", "a=hunter2", "-hunter2", "", "x\nhunter2"])
def test_the_value_of_a_variable_is_in_no_command_line_that_is_kept(name, value):
    for words in (("--env", f"{name}={value}"), (f"--env={name}={value}",)):
        kept = without_secrets(("submit", *words, "train.py", "--lr", "1"))
        shown = command_without_secrets(["submit", *words, "train.py"])
        assert "hunter2" not in " ".join((*kept, *shown)) and f"{name}=***" in " ".join(kept)
        assert kept[-3:] == ("train.py", "--lr", "1") and shown[-1] == "train.py"


def test_a_variable_without_a_value_stays_as_it_is():
    for words in (("--env", "HOME", "train.py"), ("--env=HOME", "train.py")):
        assert without_secrets(words) == words


def test_a_browser_is_given_a_file_that_only_its_user_may_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(
        "BROWSER", f"{sys.executable} -c \"import sys; open('{tmp_path}/opened', 'w').write(sys.argv[1])\" %s"
    )
    web._open_in_browser("http://127.0.0.1:9/#k=hunter2&b=<")
    given = (tmp_path / "opened").read_text()
    page = user_state_folder() / "web/open.html"
    assert "hunter2" not in given and given == page.as_uri()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600 and "#k=hunter2&amp;b=&lt;" in page.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_what_another_user_has_left_is_named_and_the_rest_is_pruned(tmp_path, monkeypatch, recording, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = recording("r-000001")
    made.identity(started_ns=1)
    made.finish()
    for path in (made.path, *made.path.rglob("*")):
        os.utime(path, (1, 1))
    root = made.path.parent
    for name, owner in ((".pruned-r-000007", 12345), (".pruned-r-000008", 0)):
        (root / name).mkdir()
        os.chown(root / name, owner, owner)
    assert main(["ps", "--prune", "--older-than", "1s", "--run-dir", str(root)]) == 0
    assert ".pruned-r-000007 is left: it belongs to '#12345'" in capsys.readouterr().err
    assert sorted(path.name for path in root.iterdir()) == [".pruned-r-000007"]


@pytest.mark.process
def test_no_question_of_ours_imports_what_lies_in_the_working_directory(tmp_path, monkeypatch):
    """In an interpreter other than the agent's: its own name is another one, so nobody answers from this process."""
    other = tmp_path / "bin/python"
    other.parent.mkdir()
    other.symlink_to(os.path.realpath(sys.executable))
    work = tmp_path / "work"
    work.mkdir()
    for name in SHADOWS:
        (work / f"{name}.py").write_text(f"raise SystemExit('the user\\'s own {name} was imported')")
    monkeypatch.chdir(work)
    own = ".".join(map(str, sys.version_info[:3]))
    found = read_torch(str(other))
    assert (found.python_version, "was imported" in found.reason) == (own, False)
    environ = {**os.environ, "PYTHON_EXEC": str(other)}
    assert resume_from._versions(environ)[0] == own
    argv = command(work / "requirements.txt", sys.executable)
    code = argv[2].replace("'pip'", "'json.tool'")
    (work / "one").write_text("{}")
    assert os.spawnv(os.P_WAIT, sys.executable, [argv[0], "-c", code, "one", "two"]) == 0
    assert shutil.which("true") and (work / "two").read_text().strip() == "{}"
