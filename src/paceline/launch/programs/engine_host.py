"""The agent of one host that an engine reached over a connection: `python -m paceline.launch.programs.engine_host`. Only engines start it.

Its stdin begins with one line of JSON, {"environment": {...}, "job": {...}}: the ranks' environment variables, and the job in the form
of a job file. A later line "stop", or "stop SIGNAL", asks for an orderly end. A second "stop" asks for an end at once. The end of stdin
means that the engine has died: the agent ends the ranks at once. If the first line has "silence_seconds", silence for longer than that
means the same, because a connection that is cut need not end. Any other line counts as a sign of life.
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
    """Run the host's agent until the job or the connection ends."""
    told = json.loads(sys.stdin.readline())
    os.environ.update(told["environment"])
    lifeline, writing = os.pipe()
    held = os.fdopen(writing, "wb", buffering=0)
    heard = threading.Event()
    threading.Thread(target=_listen, args=(held, heard), daemon=True).start()
    if "silence_seconds" in told:
        threading.Thread(target=_watch, args=(told["silence_seconds"], heard, held), daemon=True).start()
    file = job_file_of(told["job"], "the job")
    file = replace(file, setup=replace(file.setup, leash=lifeline, quiet=file.job.node_rank != 0))
    with job_descriptor(file) as (_, argv):
        sys.argv[1:] = argv
        runpy.run_module("paceline", run_name="__main__", alter_sys=True)


def _listen(held: IO[bytes], heard: threading.Event) -> None:
    # For the agent, the end of this pipe means that the engine has died.
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
