"""Strangers, slow ones and pages at the door of `paceline sagemaker-local`: none of them is served, and the server goes on."""

import http.client
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec

import pytest
from sagemaker_server import key_in, serving

from paceline.contract.local_key import access_key_of

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        find_spec("boto3") is None or find_spec("uvicorn") is None, reason="pip install 'paceline[sagemaker]'"
    ),
]

LIST = {"X-Amz-Target": "SageMaker.ListTrainingJobs", "Content-Type": "application/x-amz-json-1.1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory, make_user_environment):
    directory = tmp_path_factory.mktemp("door")
    with serving(directory, make_user_environment(directory / "state")) as server:
        yield server


def port_of(server):
    return int(server.url.rpartition(":")[2])


def ask(server, headers, body=b"{}"):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=60)
    try:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def serves(server):
    return server.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []


def test_a_client_with_the_key_is_served_and_one_without_is_not(server):
    import boto3
    from botocore.exceptions import ClientError

    assert serves(server)
    assert server.logs.describe_log_groups()["logGroups"] is not None
    stranger = boto3.client("sagemaker", endpoint_url=server.url, region_name="us-east-1",
                            aws_access_key_id="nobody", aws_secret_access_key="nothing")  # fmt: skip
    with pytest.raises(ClientError) as refused:
        stranger.list_training_jobs()
    stranger.close()
    assert refused.value.response["Error"]["Code"] == "UnrecognizedClientException"
    status, answer = ask(server, LIST)
    assert (status, json.loads(answer)["__type"]) == (403, "MissingAuthenticationTokenException")


def test_the_identity_services_want_the_key_too(server):
    import boto3
    from botocore.exceptions import ClientError

    argv = {"endpoint_url": server.url, "region_name": "us-east-1"}
    key = key_in(server.directory / "jobs/credentials")
    friend, stranger = (
        boto3.client("sts", **argv, **key),
        boto3.client("sts", **argv, aws_access_key_id="a", aws_secret_access_key="b"),
    )
    assert friend.get_caller_identity()["UserId"] == "LOCAL"
    with pytest.raises(ClientError) as refused:
        stranger.get_caller_identity()
    assert refused.value.response["Error"]["Code"] == "UnrecognizedClient"
    friend.close(), stranger.close()


def test_paceline_finds_the_key_by_the_servers_url(server):
    index = server.directory / "state/paceline/sagemaker-local"
    key = access_key_of(server.url, index)
    assert key is not None and key.id == key_in(server.directory / "jobs/credentials")["aws_access_key_id"]
    assert access_key_of(f"http://127.0.0.1:{port_of(server) + 1}", index) is None


AS_STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(2002); os.setuid(2002)
with socket.socket() as connection:
    connection.connect(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(sys.stdin.buffer.read())
    print(connection.recv(65536).split()[1].decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_of_the_machine_is_refused(server):
    head = "".join(
        f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **LIST, "Content-Length": "2"}.items()
    )
    argv = [sys.executable, "-c", AS_STRANGER, str(port_of(server))]
    said = subprocess.run(
        argv, input=f"POST / HTTP/1.1\r\n{head}\r\n{{}}".encode(), capture_output=True, timeout=60, check=True
    )
    assert said.stdout.split() == [b"403"]


def test_a_page_in_a_browser_is_refused(server):
    assert ask(server, {**LIST, "Origin": "http://page.example"})[0] == 403
    assert ask(server, {**LIST, "Host": "page.example"})[0] == 403


def test_a_large_body_is_refused_before_it_is_read(server):
    with socket.create_connection(("127.0.0.1", port_of(server)), 30) as stranger:
        stranger.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200000000\r\n\r\n")
        answer = stranger.recv(65536)
        assert answer.startswith(b"HTTP/1.1 403") and b"connection: close" in answer.lower()
        while stranger.recv(65536):
            pass
    assert serves(server)


def test_who_is_slow_with_the_headers_is_hung_up_on(server):
    with (
        socket.create_connection(("127.0.0.1", port_of(server)), 60) as silent,
        socket.create_connection(("127.0.0.1", port_of(server)), 60) as slow,
    ):
        slow.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert serves(server)
        assert slow.recv(1) == b"" and silent.recv(1) == b""
    assert serves(server)


def test_of_a_crowd_that_says_nothing_the_oldest_go_and_requests_are_answered(server):
    with ExitStack() as crowd:
        strangers = [
            crowd.enter_context(socket.create_connection(("127.0.0.1", port_of(server)), 60)) for _ in range(300)
        ]
        assert serves(server)
        assert strangers[0].recv(1) == b""
        held = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        assert held < 150
    assert serves(server)


def test_a_unix_socket_is_for_its_owner_and_needs_no_signature(tmp_path, make_user_environment):
    path = tmp_path / "socket"
    argv = ["sagemaker-local", "--unix", str(path), "--json", "--jobs-dir", str(tmp_path / "jobs")]
    environment = make_user_environment(tmp_path / "state")
    for _ in range(2):  # A socket that a killed server left is replaced.
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *argv], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            facts = json.loads(process.stdout.readline())
            assert facts["url"] == f"unix://{path}" and facts["credentials"] is None
            assert path.stat().st_mode & 0o777 == 0o600
            head = "".join(
                f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **LIST, "Content-Length": "2"}.items()
            )
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(str(path))
                client.sendall(f"POST / HTTP/1.1\r\n{head}\r\n".encode() + b"{}")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
            busy = subprocess.run(
                [sys.executable, "-m", "paceline", *argv[:-1], str(tmp_path / "other")],
                env=environment,
                capture_output=True,
                check=False,
            )
            assert busy.returncode == 2 and b"U04" in busy.stdout + busy.stderr
        finally:
            process.kill()
            process.communicate()
