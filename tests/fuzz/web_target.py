"""What reaches the port of `paceline web`: as a stranger's, who must not see a byte of a recording, and from who has the token."""

import atexit
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from web_recordings import SECRET, TOKEN, make_app, record

# Stands for a token: a wrong one, then the right one.
_TOKEN = b"@TOKEN@"
_LINES = st.sampled_from(
    [
        b"Host: localhost\r\n", b"host: 127.0.0.1:8642\r\n", b"Host: evil.example\r\n", b"Authorization: Bearer @TOKEN@\r\n",
        b"Authorization: Bearer \xff\r\n", b"Origin: http://localhost\r\n", b"Origin: null\r\n", b"Content-Length: 4\r\n",
        b"Content-Length: 9999999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Accept-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n", b"Connection: close\r\n", b" folded\r\n", b"\r\n", b"{}[]",
    ]
)  # fmt: skip
_TARGETS = st.one_of(
    st.sampled_from(
        [
            b"/", b"/api/runs?find=a&sort=step&up=1", b"/api/run/r-000001/since?after=x.1", b"/api/run/r-000001/page",
            b"/api/run/r-000001/rank/0", b"/api/run/r-000001/logs?rank=0&since_ns=1&limit=1", b"/api/run/r-000001/trace?ranks=0",
            b"/api/compare?a=r-000001&b=r-000001", b"/metrics?run=r-000001&ranks=all", b"/api/run/%2e%2e/page", b"/api/run/r-000001/stop",
        ]
    ),
    st.binary(max_size=40),
)  # fmt: skip
_REQUEST = st.tuples(
    st.sampled_from([b"GET", b"POST", b"HEAD", b"X"]),
    _TARGETS,
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b""]),
    st.lists(st.one_of(_LINES, st.binary(max_size=20)), max_size=6).map(b"".join),
).map(lambda parts: b"%s %s %s\r\n%s\r\n" % parts)
WEB_REQUESTS = st.one_of(st.lists(_REQUEST, max_size=3).map(b"".join), st.binary(max_size=200))


def check_web_request(data: bytes) -> None:
    """A stranger's gets nothing of a recording; one with the token is answered or refused."""
    told = _answered(data.replace(_TOKEN, b"wrong"))
    assert b"000001" not in told and SECRET.encode() not in told
    told = _answered(data.replace(_TOKEN, TOKEN.encode()))
    assert b"HTTP/1.1 500" not in told


def _answered(data: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Nobody reads until the answer is complete.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        _server().finish_request(ours, ("127.0.0.1", 1))
        ours.shutdown(socket.SHUT_RDWR)
        told = b""
        while part := theirs.recv(1 << 20):
            told += part
    return told


@cache
def _server():
    from paceline.listening import listening
    from paceline.parts.web.serve.server import WebServer

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    root = Path(folder.name) / "runs"
    record(root, "r-000001")
    listener = listening("127.0.0.1", 0)
    atexit.register(listener.close)
    return WebServer(listener, make_app(root).answer, socket_seconds=2.0)
