"""The agent's own directories, in places where everybody may write."""

import os
from pathlib import Path

import pytest

from paceline.launch.agent.scratch import make_scratch


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr("paceline.launch.agent.scratch._LONGEST_SOCKET_DIRECTORY", 4096)
    return place


def made(tmp_path):
    memory = tmp_path / "shm"
    memory.mkdir(exist_ok=True)
    return make_scratch("a" * 32, {}, memory)


def test_agents_of_one_user_meet_in_a_private_directory(tmp_path, temporary):
    scratch = made(tmp_path)
    assert scratch.shared == temporary / f"paceline-{os.getuid()}"
    for directory in (scratch.shared, scratch.rings, scratch.sockets, scratch.errors, *scratch.roots):
        assert directory.stat().st_mode & 0o777 == 0o700


def dangling(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "nowhere")


def to_elsewhere(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    path.symlink_to(elsewhere)


def a_file(path: Path, tmp_path: Path) -> None:
    path.touch()


def open_to_all(path: Path, tmp_path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def another_users(path: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a file of another user needs root")
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("laid", [dangling, to_elsewhere, a_file, open_to_all, another_users])
def test_whatever_a_stranger_lays_in_the_way_the_job_starts_and_shares_nothing(tmp_path, temporary, laid):
    laid(temporary / f"paceline-{os.getuid()}", tmp_path)
    scratch = made(tmp_path)
    assert scratch.shared == scratch.roots[0]
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())


def test_what_was_made_before_a_failure_is_gone(tmp_path, temporary):
    memory = tmp_path / "shm"
    memory.mkdir()
    (memory / f"paceline-{os.getuid()}-{'a' * 12}").touch()
    with pytest.raises(OSError):
        made(tmp_path)
    assert not [path for path in temporary.iterdir() if path.name != f"paceline-{os.getuid()}"]
