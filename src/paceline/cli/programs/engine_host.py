"""The agent of one host that an engine reached over a connection: `python -m paceline.cli.programs.engine_host`. Not started by hand.

Its stdin begins with one line of JSON, {"environment": {...}, "words": [...]}: what the ranks find in their environment, and the words of
`paceline run`. After that a line "stop", or "stop SIGNAL", asks for an end in order, a second "stop" for an end at once. The end of stdin
means that whoever started this host is gone: the ranks are ended at once. So does silence for longer than "silence_seconds", where the
first line has that: a connection that is cut need not end. Any other line breaks it.
"""

import json
import os
import signal
import sys
import threading
from typing import IO

from paceline.cli import guarded


def main() -> int:
    """Be the host's agent until the job has ended, or the connection has."""
    told = json.loads(sys.stdin.readline())
    os.environ.update(told["environment"])
    argv: list[str] = told["words"]
    leash, writing = os.pipe()
    held = os.fdopen(writing, "wb", buffering=0)
    heard = threading.Event()
    threading.Thread(target=_listen, args=(held, heard), daemon=True).start()
    if "silence_seconds" in told:
        threading.Thread(target=_watch, args=(told["silence_seconds"], heard, held), daemon=True).start()
    return guarded(lambda: _run(argv, leash), argv)


def _run(argv: list[str], leash: int) -> int:
    from dataclasses import replace

    from paceline.cli.run import verb

    args = verb.parse(argv)
    job, config = verb.prepare(args, os.environ)
    return verb.run_here(job, replace(config, leash=leash), args, quiet=job.node_rank != 0)


def _listen(held: IO[bytes], heard: threading.Event) -> None:
    # The agent takes the end of this pipe for the loss of whoever started it.
    for line in sys.stdin:
        heard.set()
        match line.split():
            case ["stop", name]:
                os.kill(os.getpid(), signal.Signals[name])
            case ["stop"]:
                os.kill(os.getpid(), signal.SIGINT)
    held.close()


def _watch(seconds: float, heard: threading.Event, held: IO[bytes]) -> None:
    while heard.wait(seconds):
        heard.clear()
    held.close()


if __name__ == "__main__":
    raise SystemExit(main())
