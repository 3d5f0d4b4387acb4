"""Runs `paceline WORDS...` on a leash: `python -m paceline.launch.programs.leashed DESCRIPTOR WORDS...`. A user never types it.

The leash is a pipe. When no process holds the other end of the descriptor any more, the job is ended as on SIGTERM.
"""

import os
import runpy
import signal
import sys
import threading


def hold(leash: int) -> None:
    """Wait for the end of the leash, then end this process in an orderly way."""
    os.read(leash, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=hold, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("paceline", run_name="__main__", alter_sys=True)
