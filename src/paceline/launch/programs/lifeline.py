"""Runs `paceline WORDS...` on a lifeline: `python -m paceline.launch.programs.lifeline DESCRIPTOR WORDS...`. A user never types it.

The lifeline is a pipe. When no process holds the other end of the descriptor any more, the job is ended as on SIGTERM.
"""

import os
import runpy
import signal
import sys
import threading


def hold(lifeline: int) -> None:
    """Wait for the end of the lifeline, then end this process in an orderly way."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=hold, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("paceline", run_name="__main__", alter_sys=True)
