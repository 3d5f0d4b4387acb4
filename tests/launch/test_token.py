"""The secret that agents share: where it is from, and which are refused."""

import os

import pytest

from paceline.errors import UsageError
from paceline.launch.token import own_token_file, token_for

SECRET = "0123456789abcdef"


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return own_token_file()


def asked(file=None, environ=(), **changes):
    terms = {"no_token": False, "needed": True, "must_be_had": True, **changes}
    return token_for(file, dict(environ), **terms)


def test_a_user_has_one_token_made_once_for_nobody_else_to_read(own):
    first, second = asked(), asked()
    assert first == second and first.own_file == own and len(first.secret) == 64
    assert own.stat().st_mode & 0o777 == 0o600 and own.parent.stat().st_mode & 0o077 == 0
    assert [path.name for path in own.parent.iterdir()] == ["token"]


def test_what_is_given_wins_and_a_file_wins_over_the_environment(own, tmp_path):
    file = tmp_path / "t"
    file.write_text(SECRET + "\n")
    assert asked(str(file), {"PACELINE_TOKEN": "x" * 20}).secret == SECRET.encode()
    assert asked(None, {"PACELINE_TOKEN": "x" * 20}).secret == b"x" * 20
    assert asked(no_token=True).secret is None
    assert not own.exists()


def test_a_file_and_none_at_once_are_refused(own, tmp_path):
    with pytest.raises(UsageError, match="exclude each other"):
        asked(str(tmp_path / "t"), no_token=True)


@pytest.mark.parametrize("text", [SECRET + "\r", f" {SECRET}\n", SECRET + "\udcff"])
def test_a_variable_is_read_as_a_file_is(own, tmp_path, text):
    file = tmp_path / "t"
    file.write_bytes(os.fsencode(text))
    assert asked(None, {"PACELINE_TOKEN": text}).secret == asked(str(file)).secret


def test_without_a_home_a_token_has_to_be_given(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def none(name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("platformdirs.user_config_path", none)
    with pytest.raises(UsageError, match="there is no token") as refused:
        asked()
    assert "no-home-directory" in refused.value.saw and refused.value.code == "U12"
    assert asked(must_be_had=False).secret is None


def test_a_job_of_one_host_makes_none(own):
    assert asked(needed=False).secret is None and not own.exists()


@pytest.mark.parametrize("secret", ["", "short", "x" * 15])
def test_a_token_that_can_be_guessed_is_refused(own, tmp_path, secret):
    file = tmp_path / "t"
    file.write_text(secret)
    with pytest.raises(UsageError) as caught:
        asked(str(file))
    assert caught.value.code == "U12" and "16 are the least" in caught.value.saw
    if secret:
        with pytest.raises(UsageError):
            asked(None, {"PACELINE_TOKEN": secret})


def test_a_token_that_others_may_read_is_refused(own):
    asked()
    own.chmod(0o640)
    with pytest.raises(UsageError, match="not this user's alone") as caught:
        asked()
    assert "0640" in caught.value.saw and "chmod 600" in caught.value.next


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user needs root")
def test_a_token_that_somebody_else_laid_there_is_refused(own):
    asked()
    os.chown(own, 12345, 12345)
    with pytest.raises(UsageError, match="not this user's alone"):
        asked()


def test_where_none_can_be_made_a_port_that_others_reach_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file" / "config"))
    with pytest.raises(UsageError, match="others can reach") as caught:
        asked()
    assert "--set no_token=true" in caught.value.next and "PACELINE_TOKEN" in caught.value.next
    assert asked(must_be_had=False).secret is None


def test_a_file_that_is_not_there_is_named(own, tmp_path):
    with pytest.raises(UsageError, match="missing") as caught:
        asked(str(tmp_path / "missing"))
    assert caught.value.code == "U12"
