"""The agent's own directories, in places where everybody may write."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from paceline.launch.agent.scratch import make_scratch, still_there


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


PLACES = ["rings", "sockets", "errors", "root"]


def _place(scratch, name):
    return scratch.roots[0] if name == "root" else getattr(scratch, name)


@pytest.mark.parametrize("name", PLACES)
def test_what_has_vanished_is_made_again_in_its_place(scratch_here, name):
    shutil.rmtree(_place(scratch_here, name))
    found = still_there(scratch_here)
    assert found is scratch_here
    for directory in (found.rings, found.sockets, found.errors):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("instead", ["file", "link", "open to all"])
def test_where_something_else_has_the_name_all_is_made_anew(scratch_here, tmp_path, name, instead):
    place = _place(scratch_here, name)
    shutil.rmtree(place)
    match instead:
        case "file":
            place.write_text("")
        case "link":
            place.symlink_to(tmp_path)
        case _:
            place.mkdir()
            place.chmod(0o777)
    found = still_there(scratch_here)
    try:
        assert not set(found.roots) & set(scratch_here.roots)
        assert all(directory.is_dir() for directory in (found.rings, found.sockets, found.errors))
    finally:
        for root in found.roots:
            shutil.rmtree(root)


def test_what_is_there_is_left_as_it_is(scratch_here):
    (scratch_here.errors / "0").mkdir()
    assert still_there(scratch_here) is scratch_here and (scratch_here.errors / "0").is_dir()


@pytest.fixture
def scratch_here():
    found = make_scratch("m" * 32, {})
    yield found
    for root in found.roots:
        if root.is_dir() and not root.is_symlink():
            shutil.rmtree(root, ignore_errors=True)
        else:
            root.unlink(missing_ok=True)
