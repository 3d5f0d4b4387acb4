"""One line of a rank's output with the name of the rank."""

import json

import msgspec

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


class LogLineDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="paceline.logs/2"):
    """One line of a rank, for programs."""

    run_id: str
    """Id of the run."""
    host: str
    """Name of the host in the job."""
    attempt: int
    """The attempt, from 0."""
    rank: int
    """Global rank."""
    stream: str
    """`stdout` or `stderr`."""
    t_ns: int | None
    """When the line came, Unix time in ns, to a second; None: not recorded."""
    text: str
    """The line."""


def log_line_json(
    run_id: str, host: str, attempt: int, rank: int, stream: str, text: bytes, time_ns: int | None
) -> bytes:
    """The same as one JSON object a line."""
    document = LogLineDocument(
        run_id=run_id,
        host=host,
        attempt=attempt,
        rank=rank,
        stream={"out": "stdout", "err": "stderr"}.get(stream, stream),
        t_ns=time_ns,
        text=text.decode("utf-8", "replace"),
    )
    return visible(json.dumps(msgspec.to_builtins(document))).encode() + b"\n"
