"""Binding a tree over a path, in a program with namespaces of its own: what it sees, and what the machine sees."""

import json
import subprocess
import sys

import pytest

from paceline.mounts import bind_refusal

INSIDE = """
import json, os, sys
from pathlib import Path
from paceline.mounts import bind_over
from paceline.namespaces import NamespaceRefused, enter_with_hosts
enter_with_hosts({})
source, target = Path(sys.argv[1]), Path(sys.argv[2])
said = {}
try:
    bind_over(source, target, keep=True)
except NamespaceRefused as refused:
    said["refused"] = str(refused.args[0])
shown = target if target.exists() else target.parent
said["seen"] = sorted(str(path.relative_to(shown)) for path in shown.rglob("*"))
said["beside"] = sorted(os.listdir(target.parent))
try:
    (target.parent / "new").write_text("lost?")
except OSError as error:
    said["new"] = error.strerror
if not said.get("refused"):
    (target / "written").write_text("1")
print(json.dumps(said))
"""


@pytest.fixture
def bound(tmp_path):
    """Binds tmp/tree over tmp/opt/ml in a program of its own. Returns what the program saw."""
    if refused := bind_refusal(tmp_path):
        pytest.skip(refused)
    (tmp_path / "tree" / "model").mkdir(parents=True)
    (tmp_path / "opt" / "tool").mkdir(parents=True)
    (tmp_path / "opt" / "tool" / "file").write_text("tool")

    def run(source="tree"):
        argv = [sys.executable, "-c", INSIDE, str(tmp_path / source), str(tmp_path / "opt" / "ml")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_path_that_was_not_there_is_the_tree_and_nothing_beside_it_is_lost(bound, tmp_path):
    said = bound()
    assert (said["seen"], said["beside"]) == (["model"], ["ml", "tool"])
    assert said["new"] == "Read-only file system"
    assert (tmp_path / "tree" / "written").exists()
    assert sorted(path.name for path in (tmp_path / "opt").iterdir()) == ["tool"], "the machine sees nothing of it"


def test_what_the_machine_had_there_is_shown_in_the_tree(bound, tmp_path):
    (tmp_path / "opt" / "ml" / "metadata").mkdir(parents=True)
    (tmp_path / "opt" / "ml" / "metadata" / "name").write_text("notebook")
    said = bound()
    assert said["seen"] == ["metadata", "metadata/name", "model"]
    assert "new" not in said, "the parent is as it was"
    assert [path.name for path in (tmp_path / "opt" / "ml").iterdir()] == ["metadata"]


def test_after_a_refusal_the_mounts_are_as_they_were(bound, tmp_path):
    said = bound("nothing")
    assert "No such file" in said["refused"]
    assert (said["beside"], said["seen"]) == (["tool"], ["tool", "tool/file"])
    assert "new" not in said and (tmp_path / "opt" / "new").exists()
