"""`paceline web` refuses before it listens, and says how it is reached."""

import json
import os
import socket

import pytest
from web_recordings import record

from paceline.cli import main
from paceline.cli.parsing import VerbParser
from paceline.parts.web.cli.web import VERB, Engines, _access, _listener


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def refused(capsys, *argv):
    assert main(["web", *argv, "--json"]) == 2
    refusal = json.loads(capsys.readouterr().out)
    assert refusal["what"] and refusal["saw"] and refusal["next"]
    return refusal


def parsed(*argv):
    return VerbParser(VERB).parse_args([*argv])


def token_file(tmp_path, text="0123456789abcdef0123456789abcdef", mode=0o600):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_port_in_use_is_refused(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        refusal = refused(capsys, "--port", str(other.getsockname()[1]))
    assert refusal["code"] == "U04" and refusal["next"] == "paceline web --port 0"


def test_without_a_port_the_next_free_one_is_taken():
    with _listener(parsed()) as first, _listener(parsed()) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"


def test_a_path_of_a_file_is_no_socket(tmp_path, capsys):
    (tmp_path / "web.sock").write_text("mine")
    assert refused(capsys, "--socket", str(tmp_path / "web.sock"))["code"] == "U04"


def test_a_run_that_does_not_exist_is_refused(capsys):
    assert refused(capsys, "r-zzzzzz")["code"] == "U09"


def test_other_machines_need_a_token_of_the_users_own(capsys):
    assert refused(capsys, "--bind", "0.0.0.0")["code"] == "U12"


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("short", 0o600),
        ("", 0o600),
        ("0123456789 abcdef012345", 0o600),
        ("0123456789abcdef0123", 0o644),
        ("0123456789abcdef0123", 0o640),
    ],
)
def test_a_token_that_is_none_or_is_everybodys_is_refused(tmp_path, capsys, text, mode):
    assert refused(capsys, "--token-file", token_file(tmp_path, text, mode))["code"] == "U12"
    assert refused(capsys, "--metrics-token-file", token_file(tmp_path, text, mode))["code"] == "U12"
    assert refused(capsys, "--token-file", str(tmp_path / "none"))["code"] == "U12"


def test_each_server_has_a_token_of_its_own_and_it_is_long():
    tokens = {_access(parsed()).token for _ in range(20)}
    assert len(tokens) == 20 and min(map(len, tokens)) >= 32


def test_a_token_file_and_further_names_count(tmp_path):
    access = _access(parsed("--token-file", token_file(tmp_path), "--allow-host", "Hub.example", "--bind", "10.0.0.7"))
    assert access.token == "0123456789abcdef0123456789abcdef" and {"hub.example", "10.0.0.7"} <= access.hosts


def test_an_engine_is_asked_once_and_by_nobody_who_waits(tmp_path):
    path = record(tmp_path / "runs", "r-000001")
    asked = []
    engines = Engines(lambda one: asked.append(one) or "it does not answer")
    assert engines.ask(path) == "" and asked == []
    (path / "submission.json").write_text('{"engine": "slurm"}')
    while not engines.ask(path):
        continue
    assert asked == [path] and engines.ask(path) == "it does not answer"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_read_is_refused(tmp_path, capsys):
    path = record(tmp_path / "runs", "r-000001")
    path.chmod(0)
    try:
        assert refused(capsys, str(path))["code"] == "U09"
    finally:
        path.chmod(0o700)
