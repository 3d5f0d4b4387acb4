"""What the server refuses before it reads a body, and how much of one it reads."""

import asyncio
import json

import pytest

from paceline.parts.sagemaker.local.app import MOST_BODY_BYTES, application
from paceline.parts.sagemaker.local.errors import ApiError

pytest.importorskip("starlette", reason="pip install 'paceline[sagemaker]'")

HOST = {"host": "127.0.0.1:8090"}


class Everything:
    """Signatures that takes or refuses all."""

    def __init__(self, refuses=None):
        self.refuses, self.checked = refuses, []

    def claim(self, headers):
        if self.refuses == "claim":
            raise ApiError("MissingAuthenticationTokenException", "not signed", status=403)
        return headers

    def check(self, claim, method, target, body):
        self.checked.append((method, target, body))
        if self.refuses == "check":
            raise ApiError("InvalidSignatureException", "wrong", status=403)


class Echo:
    def __init__(self):
        self.asked = []

    def answer(self, target, body):
        self.asked.append((target, body))
        return 200, {}, {"bytes": len(body)}


def ask(headers, pieces=(b"{}",), signatures=None, api=None, *, stalls=False, query=b""):
    """Status, headers, answer, and how many pieces of the body were read."""
    read, said = 0, []
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/", "raw_path": b"/", "query_string": query,
        "scheme": "http", "server": ("127.0.0.1", 8090), "client": ("127.0.0.1", 5), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip

    async def receive():
        nonlocal read
        if read == len(pieces):
            await asyncio.sleep(3600 if stalls else 0)
            return {"type": "http.disconnect"}
        read += 1
        return {"type": "http.request", "body": pieces[read - 1], "more_body": stalls or read < len(pieces)}

    async def send(message):
        said.append(message)

    app = application(api or Echo(), signatures or Everything(), body_seconds=0.05)
    asyncio.run(app(scope, receive, send))
    told = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], told, b"".join(part.get("body", b"") for part in said[1:]), read


def test_a_signed_request_is_answered():
    api, signatures = Echo(), Everything()
    status, _, answer, _ = ask({**HOST, "x-amz-target": "SageMaker.X"}, (b"ab", b"cd"), signatures, api, query=b"a=b")
    assert (status, json.loads(answer)) == (200, {"bytes": 4})
    assert api.asked == [("SageMaker.X", b"abcd")] and signatures.checked == [("POST", "/?a=b", b"abcd")]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "page.example"},
        {},
        {**HOST, "origin": "http://page.example"},
        {**HOST, "origin": "null"},
        {**HOST, "origin": "http://127.0.0.1:8090"},
    ],
)
def test_a_page_is_refused_before_its_body_is_read(headers):
    api = Echo()
    status, told, _, read = ask(headers, (b"x" * 1000,), api=api)
    assert (status, read, told["connection"], api.asked) == (403, 0, "close", [])


@pytest.mark.parametrize("refuses", ["claim", "check"])
def test_nothing_is_done_for_who_has_no_key(refuses):
    api = Echo()
    status, told, answer, read = ask(HOST, (b"{}",), Everything(refuses), api)
    assert status == 403 and api.asked == [] and told["connection"] == "close"
    assert json.loads(answer)["__type"] == told["x-amzn-ErrorType".lower()]
    assert read == (0 if refuses == "claim" else 1)


def test_the_query_protocol_has_the_same_refusal_in_its_own_words():
    status, _, answer, _ = ask(
        {**HOST, "content-type": "application/x-www-form-urlencoded"}, signatures=Everything("claim")
    )
    assert status == 403 and b"<Code>MissingAuthenticationToken</Code>" in answer


def test_a_body_that_says_it_is_too_large_is_not_read():
    status, told, answer, read = ask({**HOST, "content-length": str(MOST_BODY_BYTES + 1)}, (b"x",) * 9)
    assert (status, read, told["connection"]) == (413, 0, "close")
    assert json.loads(answer)["__type"] == "RequestEntityTooLargeException"


def test_a_body_that_does_not_say_its_size_is_read_up_to_the_limit():
    piece = b"x" * 65536
    status, _, _, read = ask(HOST, (piece,) * 100)
    assert status == 413 and read == MOST_BODY_BYTES // len(piece) + 1
    assert ask(HOST, (piece,) * (MOST_BODY_BYTES // len(piece)))[0] == 200


@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 5000, "x"])
def test_a_length_that_is_none_is_refused(length):
    assert ask({**HOST, "content-length": length})[::3] == (413, 0)


def test_a_body_that_does_not_come_is_not_waited_for():
    status, _, answer, _ = ask(HOST, (b"{",), stalls=True)
    assert (status, json.loads(answer)["__type"]) == (408, "RequestTimeoutException")


def test_who_leaves_in_the_middle_is_no_fault_of_the_server():
    api = Echo()
    read = ask({**HOST}, (), api=api)
    assert read[0] == 400 and api.asked == []
