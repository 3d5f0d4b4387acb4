"""Keeps a job that no service keeps: `python -m paceline.launch.engines.keeper PLACE`. Started at submission, in a session of its own.

Whoever starts it writes one line of JSON to its stdin: the environment of the submitting process, and that of the ranks.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from paceline.errors import HostLost, PacelineError
from paceline.facts import SecondaryStatus, Status
from paceline.launch.engines.base import Observation, Request, load
from paceline.launch.engines.detached import REFUSED_FILE, REQUEST_FILE, TAKEN_FILE, DetachedEngine, as_document
from paceline.launch.engines.jobs import note_end
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import newest_try
from paceline.recording.writer import write_json

# 128 + SIGINT and SIGTERM: somebody asked for the end.
_STOPPED = (130, 143)


def main(argv: list[str]) -> int:
    """Hold the job to its end, and say in its recording how it ended where no agent lived to say it."""
    run_dir = Path(argv[0])
    told = json.loads(sys.stdin.readline())
    request = msgspec.json.decode((run_dir / REQUEST_FILE).read_bytes(), type=Request)
    request = replace(request, job=replace(request.job, environment=told["environment"]))
    engine: DetachedEngine = load(request.engine, told["environ"], request.job.engine_options)  # type: ignore[assignment]
    try:
        code, reason = engine.hold(request, run_dir, told["environ"]), ""
    except PacelineError as error:
        write_json(run_dir / REFUSED_FILE, as_document(error))
        code, reason = error.exit_code, f"{error.what}: {error.saw}"
    say_end(run_dir, code, reason)
    return code


def say_end(run_dir: Path, code: int, reason: str = "") -> None:
    """Put the end into the recording, where no agent lived to do so."""
    last = newest_try(run_dir)
    # Whoever submitted a job that was refused before the engine took it removes its directory.
    if RunDirectory(last).run_file.exists() or (run_dir / TAKEN_FILE).exists():
        note_end(last, _end(code, reason))


def _end(code: int, reason: str) -> Observation:
    stopped = code in _STOPPED
    said = reason or f"the first host's agent ended with {code}, and left no end in the recording"
    return Observation(
        status=Status.STOPPED if stopped else Status.FAILED,
        secondary_status=SecondaryStatus.STOPPED if stopped else SecondaryStatus.FAILED,
        reason="stopped before a rank had started" if stopped and not reason else said,
        exit_code=code or HostLost.exit_code,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
