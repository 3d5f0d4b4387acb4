import os
import stat

import pytest

from paceline.atomic_write import atomic_write, write_whole


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "facts.json"
    path.write_text("old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_what_fails_halfway_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "facts.json"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path) as file:
        file.write(b"half")
        raise KeyError
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("facts.json", "old")]


def test_the_mode_holds_from_the_first_byte_on(tmp_path):
    path = tmp_path / "secret.json"
    with atomic_write(path, mode=0o600) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_writers_of_one_path_do_not_meet(tmp_path):
    path = tmp_path / "facts.json"
    with atomic_write(path) as one, atomic_write(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_is_written_as_utf_8(tmp_path):
    write_whole(tmp_path / "name", "µs")
    assert (tmp_path / "name").read_bytes() == "µs".encode()
