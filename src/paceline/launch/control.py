"""The agent's side of the control socket: one JSON line in, one out, on a UNIX socket that only the user can open."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

_LONGEST_REQUEST_BYTES = 65536


async def serve_control(
    path: Path, answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
) -> asyncio.AbstractServer:
    """Answer requests until the server is closed. `answer` gets the request's object and returns the reply's."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            reply = await answer(request) if isinstance(request, dict) else {"ok": False, "error": "not an object"}
        except (ValueError, OSError, RecursionError) as error:
            reply = {"ok": False, "error": str(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        writer.close()

    return await asyncio.start_unix_server(one, str(path), limit=_LONGEST_REQUEST_BYTES)
