"""One line of a rank's output with the name of the rank."""

import json

from paceline.terminal_text import visible


def log_line(host: str | None, rank: int, text: bytes, *, raw: bool = False) -> bytes:
    """ "algo-2:3 | text", or "3 | text" if there is one host.

    Of a progress bar only the last state, as on a terminal, and control characters as text; with `raw` the
    text's own bytes.
    """
    who = visible(f"{rank} | " if host is None else f"{host}:{rank} | ")
    last = text.rstrip(b"\r").rpartition(b"\r")[2]
    shown = text if raw else visible(last.decode(errors="backslashreplace")).encode()
    return who.encode() + shown + b"\n"


def log_line_json(
    run_id: str, host: str, attempt: int, rank: int, stream: str, text: bytes, time_ns: int | None
) -> bytes:
    """The same as one JSON object a line; `t_ns` null: the time was not recorded."""
    record = {
        "schema": "paceline.logs/2",
        "run_id": run_id,
        "host": host,
        "attempt": attempt,
        "rank": rank,
        "stream": {"out": "stdout", "err": "stderr"}.get(stream, stream),
        "t_ns": time_ns,
        "text": text.decode("utf-8", "replace"),
    }
    return visible(json.dumps(record)).encode() + b"\n"
