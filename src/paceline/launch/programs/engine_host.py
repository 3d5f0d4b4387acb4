"""The agent of one host that an engine reached over a connection: `python -m paceline.launch.programs.engine_host`. Not started by hand.

Its stdin begins with one line of JSON, {"environment": {...}, "job": {...}}: what the ranks find in their environment, and the job as a
job file has it. After that a line "stop", or "stop SIGNAL", asks for an end in order, a second "stop" for an end at once. The end of stdin
means that whoever started this host is gone: the ranks are ended at once. So does silence for longer than "silence_seconds", where the
first line has that: a connection that is cut need not end. Any other line breaks it.
"""

import json
import os
import runpy
import signal
import sys
import threading
from dataclasses import replace
from typing import IO

from paceline.job_file import job_descriptor, job_file_of


def main() -> None:
    """Be the host's agent until the job has ended, or the connection has."""
    told = json.loads(sys.stdin.readline())
    os.environ.update(told["environment"])
    leash, writing = os.pipe()
    held = os.fdopen(writing, "wb", buffering=0)
    heard = threading.Event()
    threading.Thread(target=_listen, args=(held, heard), daemon=True).start()
    if "silence_seconds" in told:
        threading.Thread(target=_watch, args=(told["silence_seconds"], heard, held), daemon=True).start()
    file = job_file_of(told["job"], "the job")
    file = replace(file, setup=replace(file.setup, leash=leash, quiet=file.job.node_rank != 0))
    with job_descriptor(file) as (_, argv):
        sys.argv[1:] = argv
        runpy.run_module("paceline", run_name="__main__", alter_sys=True)


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
    main()
