"""Makes one run of a rehearsal: starts it, watches it until it has made enough steps, and stops it cleanly. No process remains."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.diagnosis.crash.missing_package import install_torch, lacks_torch
from paceline.diagnosis.slow.steady_step import LEAST_STEPS, WARMUP_STEPS
from paceline.errors import PacelineError, UsageError
from paceline.facts import Evidence, RankExit
from paceline.parts.plan.planner.observed import ObservedRun, observed, step_count
from paceline.recording.control import ask
from paceline.recording.evidence import evidence, read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.segments import rank_records
from paceline.terminal_text import write_line

LOOK_SECONDS = 0.1
# An option of `paceline run`: a stopped script has this long to end by itself.
GRACE_SECONDS = 10.0
# An agent that was told to stop has ended by then, or will not end.
_END_SECONDS = 60.0
_OUTPUT = "output.log"
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run at one size."""

    argv: tuple[str, ...]
    """Arguments of `paceline run`, after --run-dir."""
    ranks: int
    """Number of ranks that must make the steps."""
    steps: int
    """Steps after the warm-up."""
    first_step_seconds: float
    """Longest wait for one step."""


def try_size(asked: RunRequest, folder: Path, environ: Mapping[str, str]) -> ObservedRun:
    """Train a few steps and return the observations.

    Raises:  UsageError X05: the script failed, or made no or too few steps; the error has the reason
             KeyboardInterrupt, SystemExit: the user ended it; the run has ended too
    """
    with started(asked.argv, folder, environ) as child:
        stands_still = _watch(child, asked)
    run = child.run()
    if run is None:
        raise UsageError(
            "X05",
            "the job did not start",
            saw=child.last_words() or f"exit {child.code}",
            next=f"paceline run {shlex.join(asked.argv)}",
        )
    found = evidence(run)
    failed = _first_failure(found)
    if not child.stopped and child.code != 0:
        raise _failure(found, failed, child, asked)
    seen = observed(found)
    if seen is None or stands_still:
        raise _too_few(found, child, asked)
    return seen


def run_to_end(argv: Sequence[str], folder: Path, environ: Mapping[str, str], timeout_seconds: float) -> str:
    """Run one of paceline's programs to its end. Returns "" if it succeeded, else the reason why not."""
    with started(argv, folder, environ) as child:
        deadline = time.monotonic() + timeout_seconds
        while child.alive(LOOK_SECONDS):
            if time.monotonic() > deadline:
                return f"took more than {timeout_seconds:.0f} s"
    return "" if child.code == 0 else why_it_failed(child)


def why_it_failed(child: "RunProcess") -> str:
    """Why an ended run did not succeed: the first rank that failed and how, else the last output of the run."""
    failed = _failed_rank(child)
    return _reason(failed, child) if failed is not None else child.last_words() or f"exit {child.code}"


def next_command(child: "RunProcess", argv: Sequence[str]) -> str:
    """The command to type after an ended run that did not succeed. `argv`: of `paceline run`, which is typed if nothing was recorded."""
    run = child.run()
    return _next_command(_failed_rank(child), run.name) if run is not None else f"paceline run {shlex.join(argv)}"


def _failed_rank(child: "RunProcess") -> RankExit | None:
    run = child.run()
    return _first_failure(evidence(run)) if run is not None else None


# ------------------------------------------------------------------------------------------------------------------ the child


class RunProcess:
    """A `paceline run` child process. It has its own session, so that Ctrl-C reaches it through this process, in order."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process, self.folder, self.stopped = process, folder, False

    @property
    def code(self) -> int | None:
        return self.process.returncode

    def alive(self, seconds: float) -> bool:
        """Wait up to this long for its end. Returns whether it still runs."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def run(self) -> Path | None:
        """The run's recording, once it exists."""
        return next((path.parent for path in self.folder.glob("r-*/run.json")), None)

    def stop(self, *, now: bool = False) -> None:
        """Ask its agent to end the job. An agent that does not answer gets the signal itself."""
        self.stopped = True
        run = self.run()
        try:
            if run is None:
                raise ProcessLookupError
            ask(read_run((RunDirectory(run),))[0], {"command": "stop", "now": now})
        except (PacelineError, OSError):
            self.process.send_signal(signal.SIGINT if now else signal.SIGTERM)

    def last_words(self) -> str:
        """The last output of the run, in one line."""
        lines = self.lines()
        errors = [line for line in lines if line.startswith("error[")]
        return (errors or lines or [""])[-1]

    def lines(self) -> list[str]:
        """The last lines of the run's output, without empty lines."""
        with suppress(OSError), (self.folder / _OUTPUT).open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return []


@contextmanager
def started(argv: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Iterator[RunProcess]:
    """Start the run for the duration of the block. After the block the run has ended, also if this process is killed in between."""
    folder.mkdir(parents=True)
    lifeline, held = os.pipe()
    options = ("--run-dir", str(folder), "--set", "progress=off", "--stop-grace", f"{GRACE_SECONDS:.0f}")
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paceline.launch.programs.lifeline", str(lifeline), "run", *options, *argv],
            env=dict(environ),
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    os.close(lifeline)
    child = RunProcess(process, folder)
    try:
        with _ends_are_exceptions():
            yield child
    except (KeyboardInterrupt, SystemExit):
        write_line("paceline  stopping the ranks; Ctrl-C again kills them")
        raise
    finally:
        _end(child)
        os.close(held)


@contextmanager
def _ends_are_exceptions() -> Iterator[None]:
    """Make SIGTERM and SIGHUP leave the block as Ctrl-C does, so that the run is stopped in order."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(child: RunProcess) -> None:
    """Stop the run if it still runs. A second Ctrl-C stops it immediately. An agent that hangs is killed (its guardian ends the ranks)."""
    if not child.alive(0):
        return
    try:
        child.stop()
        child.process.wait(_END_SECONDS)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        child.stop(now=True)
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(_END_SECONDS / 4)
        if child.alive(0):
            child.process.kill()
            child.process.wait()


def _watch(child: RunProcess, asked: RunRequest) -> bool:
    """Wait for enough steps, or for the end of the run. Returns True if no step came for too long."""
    deadline = time.monotonic() + asked.first_step_seconds
    wanted, before = WARMUP_STEPS + asked.steps, 0
    while child.alive(LOOK_SECONDS):
        run = child.run()
        records, _ = rank_records((RunDirectory(run),), last_records=0) if run is not None else ((), [])
        done = step_count(records) if len(records) >= asked.ranks else 0
        if done >= wanted:
            return False
        if done > before:
            before, deadline = done, time.monotonic() + asked.first_step_seconds
        if time.monotonic() > deadline:
            return True
    return False


# ------------------------------------------------------------------------------------------------------------------ what went wrong


def _first_failure(found: Evidence) -> RankExit | None:
    """The first rank that failed, in the agent's order. If the agent died before it could record that, any other failed rank."""
    exits = {(one.attempt, one.rank): one.exit for one in found.ranks if one.exit is not None and one.exit.code != 0}
    ended: dict[str, Any] = next((one for one in reversed(found.events) if one["event"] == "run_finished"), {})
    for one in ended.get("exits") or ():
        if isinstance(one, dict) and (place := (one.get("attempt", -1), one.get("rank", -1))) in exits:
            return exits[place]
    return next(iter(exits.values()), None)


def _failure(found: Evidence, failed: RankExit | None, child: RunProcess, asked: RunRequest) -> UsageError:
    return UsageError(
        "X05",
        f"the script failed with {_ranks(asked.ranks)}",
        saw=_reason(failed, child)
        if failed is not None
        else found.run.reason or child.last_words() or f"exit {child.code}",
        next=_next_command(failed, found.run.id),
    )


def _next_command(failed: RankExit | None, run_id: str) -> str:
    """Install torch if the ranks' Python has none; otherwise let the run be explained."""
    if failed is not None and failed.error is not None and lacks_torch(failed.error):
        return install_torch(failed.error.python)
    return f"paceline why {run_id}"


def _reason(failed: RankExit | None, child: RunProcess) -> str:
    from paceline.views.headline import headline

    if failed is None:
        return child.last_words()
    said = headline([failed]).splitlines()
    tail = [line for line in failed.tail.splitlines() if line.strip()] if failed.error is None else []
    return "; ".join(line.strip() for line in (*said[:2], *tail[-1:]))


def _too_few(found: Evidence, child: RunProcess, asked: RunRequest) -> UsageError:
    made = step_count(found.ranks)
    records = [one for one in found.ranks if one.step_count is not None]
    if not records:
        # On a full disk, segments cannot be read although their steps were made.
        unread = next((text for text in found.not_judged if ".seg: " in text), "")
        what, saw = (
            f"no step was reported with {_ranks(asked.ranks)}",
            unread or "no torch optimizer stepped in a process that paceline watches",
        )
    elif child.stopped:
        behind = min(records, key=lambda one: one.step_count or 0)
        what = f"no further step within {asked.first_step_seconds:.0f} s with {_ranks(asked.ranks)}"
        saw = f"rank {behind.rank} on {behind.host} has made {behind.step_count or 0}, {_ranks(len(records))} reported steps"
    else:
        what, saw = (
            f"too few steps with {_ranks(asked.ranks)}",
            f"{made} were made; {WARMUP_STEPS} of warm-up and {LEAST_STEPS} more are needed",
        )
    look = f"paceline {'why' if child.stopped else 'logs'} {found.run.id}"
    again = "let the script train longer (its epochs, steps or data)"
    return UsageError("X05", what, saw=saw, next=look if child.stopped or not records else again)


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
