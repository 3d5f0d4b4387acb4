"""Decides what follows from the end of one attempt of a Slurm job. The job's script runs it on the first node, with the agents' Python.

    python -m paceline.parts.engines.slurm.attempt_end RUN_DIR RUN ASKED CODE LEFT

ASKED: what ended the attempt from outside ("cancelled", "time limit" or ""). CODE: srun's exit code. LEFT: number of attempts that are
left. The answer on stdout is "CODE NEXT": the run's exit code, and `end` or `requeue`.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.facts import SecondaryStatus
from paceline.parts.engines.slurm.script import CANCELLED, FOLDER
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import read_plain

HOST_LOST, NEVER_CAME, STOPPED = 200, 201, 204
# Exit codes of an agent that was told to end: 128 + the signal's number, or the code of a stop or a limit.
_TOLD_TO_END = (137, 143, STOPPED)
_NO_SUCH_COMMAND = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """How one attempt ended, according to its files and its script."""

    asked: str
    """What ended the attempt from outside: "cancelled", "time limit", or empty."""
    srun_code: int
    """Exit code of srun."""
    first_code: int | None
    """Exit code of the first host's agent; None: the agent died before it could write its code."""
    failed_code: int | None
    """Exit code of an agent that failed before the first host's agent, so that srun ended the others; None: there was none."""
    left: int
    """Number of attempts that are left."""
    is_cancelled: bool
    """The job was cancelled."""
    ran_out_of_time: bool
    """The job's own time limit was reached."""


def decide(end: AttemptFacts) -> tuple[int, str]:
    """The run's exit code, and `end` or `requeue`. Pure.

    Holds:   a job ends if it was cancelled, if no attempt is left, or if its script failed
    """
    code, again = _judged(end)
    again = again or code == HOST_LOST
    if code == STOPPED:
        # Without a time limit and without a request, the stop was a preemption.
        again = end.asked == "time limit" or (not end.asked and not end.ran_out_of_time)
    return code, "requeue" if again and end.left > 0 and not end.is_cancelled else "end"


def _judged(end: AttemptFacts) -> tuple[int, bool]:
    """The exit code, and whether a host ended the attempt and not the script."""
    first, failed = end.first_code, end.failed_code
    if end.asked and first in (None, 143):
        return STOPPED, False
    if not end.asked and first in _TOLD_TO_END:
        return failed if failed is not None else first, False
    if not end.asked and first is None:
        if end.srun_code == _NO_SUCH_COMMAND:
            return end.srun_code, False
        return failed if failed is not None else NEVER_CAME, True
    # If the first agent succeeded, another agent may have failed after it.
    return first or end.srun_code, False


def read_facts(run_dir: Path, run: str, asked: str, srun_code: int, left: int) -> AttemptFacts:
    """The facts from the files that the agents of this attempt left beside the recording, and from the script."""
    folder = run_dir / FOLDER
    recorded, _, _ = read_run((RunDirectory(run_dir.parent / run),))
    return AttemptFacts(
        asked=asked,
        srun_code=srun_code,
        first_code=_code_in((folder / f"{run}.0.end",)),
        failed_code=_code_in(sorted(folder.glob(f"{run}.*.failed"))),
        left=left,
        is_cancelled=(folder / CANCELLED).exists(),
        ran_out_of_time=recorded.secondary_status is SecondaryStatus.MAX_RUNTIME_EXCEEDED,
    )


def _code_in(files: Iterable[Path]) -> int | None:
    for file in files:
        try:
            text = read_plain(file).strip()
        except FileNotFoundError:
            continue
        if text:
            return int(text)
    return None


def main(argv: list[str]) -> int:
    """Print the answer for the job's script."""
    run_dir, run, asked, code, left = argv
    exit_code, what_next = decide(read_facts(Path(run_dir), run, asked, int(code), int(left)))
    sys.stdout.write(f"{exit_code} {what_next}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
