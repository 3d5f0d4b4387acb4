"""The ranks of a host hand memory to processes of their own user and of their own job alone, whatever names the store has."""

import os
import secrets
import socket
import subprocess
import sys
import threading

import pytest

from paceline.parts.comm.transports.shared_memory.connect import _HELLO, _accept, _connect, _listen

STRANGER = """
import os, socket, sys
os.setuid(2002)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(chr(0) + sys.argv[1])
listener.listen(4)
print("here", flush=True)
connection, _ = listener.accept()
connection.settimeout(30)
print(len(connection.recv(4)), flush=True)
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_listener_of_another_user_is_told_nothing():
    name = f"paceline-test-{secrets.token_hex(8)}"
    stranger = subprocess.Popen([sys.executable, "-c", STRANGER, name], stdout=subprocess.PIPE, text=True)
    lines = {}
    try:
        assert stranger.stdout.readline() == "here\n"
        refused = _connect(lines, 1, [{"name": name}])
        assert "another user's" in refused["refused"]
        lines[0].close()
        assert stranger.stdout.readline() == "0\n"
    finally:
        stranger.kill()
        stranger.communicate()


CALLING_STRANGER = """
import os, socket, sys
os.setuid(2002)
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
    caller.connect(chr(0) + sys.argv[1])
    caller.sendall(bytes.fromhex(sys.argv[2]))
    sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_caller_of_another_user_gets_no_line():
    listener, name = _listen(2)
    lines = {}
    command = [sys.executable, "-c", CALLING_STRANGER, name, _HELLO.pack(1).hex()]
    # It may be refused before it has said anything, which it then says itself.
    with listener, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL):
        _accept(listener, lines, range(1, 2), 30)
    assert lines == {}


def test_a_listener_of_ones_own_is_greeted():
    listener, name = _listen(2)
    lines = {}
    with listener:
        assert _connect(lines, 1, [{"name": name}]) == {}
        theirs = {}
        _accept(listener, theirs, range(1, 2), 30)
        assert list(theirs) == [1]
    lines[0].close(), theirs[1].close()


@pytest.mark.parametrize(
    "said",
    [_HELLO.pack(0), _HELLO.pack(4), _HELLO.pack(0xFFFFFFFF), _HELLO.pack(1), b"ab", b""],
)
def test_only_a_rank_that_is_missing_gets_a_line(said):
    listener, name = _listen(4)
    known = socket.socket(socket.AF_UNIX)
    lines = {1: known}

    def call():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(f"\0{name}")
            stranger.sendall(said)

    with listener, known:
        caller = threading.Thread(target=call)
        caller.start()
        _accept(listener, lines, range(1, 4), 30)
        caller.join()
        assert lines == {1: known}
