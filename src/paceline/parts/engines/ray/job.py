"""Runs a job on a Ray cluster. An attempt is one placement of all hosts. A lost host leads to another attempt, a failed script does not."""

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.errors import HostLost, PacelineError
from paceline.parts.engines.attempts import JobAttempt, attempts_of, note_retry, say, tell_of_lost_steps
from paceline.parts.engines.detached import TAKEN_FILE
from paceline.parts.engines.ray.cluster import joined
from paceline.parts.engines.ray.follow import JobFollower
from paceline.parts.engines.ray.options import EMBEDDED, RayOptions
from paceline.parts.engines.ray.placement import Asked, Cancelled, PlacementRequest, placed
from paceline.parts.engines.submission import Submission
from paceline.recording.layout import STATE_FOLDER
from paceline.recording.runs import make_next_try

RETRY_WAIT_SECONDS = 600.0


def hold(options: RayOptions, job: Submission, run_dir: Path, environ: Mapping[str, str]) -> int:
    """Run the job to its end on the cluster. Returns its exit code, or 128 + the signal that ended the job before its start.

    Raises:  UsageError E01, E10, E11, E33, U22: the job was refused; HostLost E17: a host was lost, and no retry is left
    """
    code = Path(job.package.archive).read_bytes() if job.package is not None else None
    job = _with_state_here(options, job, run_dir)
    tell_of_lost_steps(job)
    with ends_asked() as (asked, listen):
        try:
            with joined(options, environ, len(code or b"")) as ray:
                listen()  # again: Ray has installed its own handler, which ends this process with SystemExit
                return _attempts(ray, options, job, code, run_dir, asked)
        except (Cancelled, SystemExit):
            return 128 + (asked[0] if asked else signal.SIGTERM)


def _with_state_here(options: RayOptions, job: Submission, run_dir: Path) -> Submission:
    """The job, whose saved steps outlive the actors' directories where every node is this machine."""
    own = job.file.job
    if options.address != EMBEDDED or not own.resume or own.checkpoint_url is not None:
        return job
    state_dir = str(run_dir.absolute() / STATE_FOLDER)
    return replace(job, file=replace(job.file, job=replace(own, state_dir=state_dir)))


def _attempts(ray: Any, options: RayOptions, job: Submission, code: bytes | None, run_dir: Path, asked: Asked) -> int:
    for attempt in attempts_of(job, run_dir):
        # A lost node may come back, or a new node may have to start first.
        patience = options.wait_seconds if attempt.number == 1 else max(options.wait_seconds, RETRY_WAIT_SECONDS)
        wanted = PlacementRequest(options=options, hosts=job.hosts, code=code, wait_seconds=patience)
        lost: PacelineError | None = None
        try:
            exit_code = _one_attempt(ray, wanted, attempt, run_dir, asked)
        except HostLost as error:
            exit_code, lost = error.exit_code, error
        if exit_code == HostLost.exit_code and not asked and not attempt.is_last:
            note_retry(attempt, f"{lost.what}: {lost.saw}" if lost is not None else "a host was lost")
            continue
        if lost is not None and not asked:
            raise lost
        return exit_code if lost is None else 128 + asked[0]
    raise AssertionError("the last attempt ends the job")


def _one_attempt(ray: Any, wanted: PlacementRequest, attempt: JobAttempt, run_dir: Path, asked: Asked) -> int:
    job, directory = attempt.job, attempt.directory

    def waits(text: str) -> None:
        # The submitting process does not wait for the cluster.
        (run_dir / TAKEN_FILE).touch()
        say(text)

    with placed(ray, wanted, asked, waits) as hosts:
        (run_dir / TAKEN_FILE).touch()
        make_next_try(directory, run_dir)
        say(f"run {job.run_id} on the Ray nodes " + ", ".join(host.node for host in hosts))
        following = JobFollower(ray, hosts, job.run_id, directory, asked)
        following.start(job, {**job.environment, "PACELINE_TOKEN": secrets.token_hex(16)})
        return following.to_the_end()


@contextmanager
def ends_asked() -> Iterator[tuple[list[int], Callable[[], None]]]:
    """During the block, the list of the stop signals that have arrived, and a function that installs the handlers again."""
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    def listen() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, note)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    listen()
    try:
        yield asked, listen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
