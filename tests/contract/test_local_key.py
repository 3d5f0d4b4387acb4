"""The key of a local server is its owner's alone, and clients of the same user find it by the server's URL."""

import os
import socket
import stat

import pytest

from paceline.contract.local_key import access_key_of, new_access_key, published


@pytest.fixture
def index(tmp_path):
    return tmp_path / "index"


def test_a_client_of_this_user_finds_the_key_while_the_server_lasts(tmp_path, index):
    key, file = new_access_key(), tmp_path / "credentials"
    with published(key, file, 8090, index) as unknown:
        assert unknown is None
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for host in ("127.0.0.1", "localhost", "[::1]", socket.gethostname()):
            assert access_key_of(f"http://{host}:8090", index) == key
        for url in ("http://127.0.0.1:8091", "http://192.0.2.1:8090", "http://host.example:8090", "http://127.0.0.1",
                    "https://sagemaker.eu-west-1.amazonaws.com", "http://127.0.0.1:x", "", "unix:///x"):  # fmt: skip
            assert access_key_of(url, index) is None
    assert access_key_of("http://127.0.0.1:8090", index) is None
    assert not file.exists() and not list(index.iterdir())


def test_two_keys_are_never_the_same_and_a_secret_is_not_shown():
    one, other = new_access_key(), new_access_key()
    assert one.id != other.id and one.secret != other.secret
    assert one.secret not in repr(one)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_does_not_count(tmp_path, index, mode):
    with published(new_access_key(), tmp_path / "credentials", 8090, index):
        (tmp_path / "credentials").chmod(mode)
        assert access_key_of("http://127.0.0.1:8090", index) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_file_of_another_user_does_not_count(tmp_path, index):
    with published(new_access_key(), tmp_path / "credentials", 8090, index):
        os.chown(tmp_path / "credentials", 2002, 2002)
        assert access_key_of("http://127.0.0.1:8090", index) is None


@pytest.mark.parametrize(
    "content", [b"", b"[default]\n", b"no table", b"\xff\xfe", b"[default]\naws_access_key_id = x\n"]
)
def test_what_is_no_key_is_none(tmp_path, index, content):
    with published(new_access_key(), tmp_path / "credentials", 8090, index):
        (tmp_path / "credentials").write_bytes(content)
        assert access_key_of("http://127.0.0.1:8090", index) is None


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path, index):
    with published(new_access_key(), tmp_path / "credentials", 8090, index):
        (tmp_path / "credentials").unlink()
        os.mkfifo(tmp_path / "credentials")
        assert access_key_of("http://127.0.0.1:8090", index) is None


def test_where_no_note_can_be_left_the_server_says_so(tmp_path, index):
    index.write_text("a file")
    with published(new_access_key(), tmp_path / "credentials", 8090, index) as unknown:
        assert "index" in unknown and (tmp_path / "credentials").exists()
