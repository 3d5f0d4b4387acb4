"""Strangers at the agents' port: they keep nobody from joining, and no job from starting again."""

import resource
import socket
from contextlib import ExitStack, suppress

import pytest
from ports import free_port

pytestmark = pytest.mark.process

CONNECTIONS = 1100
FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
TWICE = """
import os, sys, time
while not os.path.exists("crowded"):
    time.sleep(0.05)
sys.exit(0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else 3)
"""


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip(f"only {hard} descriptors may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_job_starts_again_beside_a_thousand_strangers(paceline, many_descriptors):
    port = free_port()
    argv = ("run", "--nnodes", "2", "--max-restarts", "1", "--master-port", str(port))
    script = paceline.script("twice.py", TWICE)
    first = paceline.start(*argv, script, prefix=FEW_DESCRIPTORS)
    first.until(lambda: "run r-" in first.err)
    with ExitStack() as open_ones:
        for number in range(CONNECTIONS):
            # One that is closed for another's sake may be so before it is through the door.
            with suppress(ConnectionError):
                stranger = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 30))
                if number % 2:
                    stranger.send(b"PACELINE" if number % 4 == 1 else b"GET / HTTP/1.1\r\n\r\n")
        second = paceline.start(*argv, "--node-rank", "1", script)
        second.until(lambda: "joined" in second.err)
        (paceline.directory / "crowded").touch()
        finished = first.wait(90)
    assert (finished.code, second.wait(30).code) == (0, 0), finished.err
    assert "Traceback" not in finished.err and finished.err.count("was refused") <= 5
