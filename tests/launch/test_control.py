"""Whatever is written to the control socket gets an answer, and the next request too."""

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from paceline.launch.run import _answer, serve_control

AGENT = SimpleNamespace(hang_monitor=SimpleNamespace(placed={0: None, 1: None}, take_snapshots=None))


async def replies(path, *requests):
    async def answer(request):
        return await _answer(AGENT, request)

    async with await serve_control(path, answer):
        found = []
        for request in requests:
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(request + b"\n")
            found.append(json.loads(await asyncio.wait_for(reader.readline(), 30)))
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        return found


@pytest.mark.parametrize(
    "request_line",
    [
        b'{"command": "look", "ranks": 5}',
        b'{"command": "look", "ranks": {"0": 1}}',
        b'{"command": "look", "ranks": "01"}',
        b'{"command": ["stop"]}',
        b"[" * 60_000,
        b"5",
        b"",
        b"\xff",
        b"x" * 70_000,
    ],
    ids=lambda line: line[:40].decode(errors="replace"),
)
def test_a_request_that_makes_no_sense_is_answered_with_an_error(tmp_path, request_line):
    (reply,) = asyncio.run(replies(tmp_path / "control", request_line))
    assert reply["ok"] is False and reply["error"]


WHEN_RECORDED = """
import signal, sys
from pathlib import Path
from paceline.cli import main
from paceline.launch import run

write = run.write_run
def recorded(found):
    print(Path(found.control_socket).is_socket(), signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, flush=True)
    write(found)
run.write_run = recorded
sys.exit(main(["run", "train.py"]))
"""


@pytest.mark.process
def test_whoever_finds_a_recording_can_already_ask_its_agent_and_signal_it(tmp_path, user_environment):
    (tmp_path / "train.py").write_text("print('trained')\n")
    done = subprocess.run(
        [sys.executable, "-c", WHEN_RECORDED],
        cwd=tmp_path,
        env=user_environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "True True\ntrained\n"), done.stderr
