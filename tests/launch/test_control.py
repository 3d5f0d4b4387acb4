"""Whatever is written to the control socket gets an answer, and the next request too."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from paceline.launch.run import _answer, serve_control

AGENT = SimpleNamespace(detective=SimpleNamespace(placed={0: None, 1: None}, look=None))


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
