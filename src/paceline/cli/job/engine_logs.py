"""Prints the output that an engine itself keeps of a job, for jobs whose recording cannot be read while they run."""

import os
import sys
import time
from pathlib import Path

from paceline.part import Observation
from paceline.recording.submitted import submitted_job
from paceline.terminal_text import visible

_POLL_SECONDS = 0.5


def print_logs(run_dir: Path, *, follow: bool, raw: bool) -> Observation:
    """Print the lines so far; with `follow`, also later lines until the job has ended. Returns the job's last observation.
    Control characters are shown as text unless `raw`.

    Raises:  PacelineError: the engine cannot be asked
    """
    job = submitted_job(run_dir, os.environ)
    cursor: str | None = None
    sys.stdout.flush()
    while True:
        seen = job.observe()
        lines, cursor = job.logs(cursor)
        for line in lines:
            sys.stdout.buffer.write(((line if raw else visible(line)) + "\n").encode(errors="backslashreplace"))
        sys.stdout.flush()
        if seen.ended or not follow:
            return seen
        time.sleep(_POLL_SECONDS)
