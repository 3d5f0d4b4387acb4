"""Holds a job on a Ray cluster: a try is one placement of all hosts; a lost host is answered by another try, a failed script is not."""

import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.errors import HostLost, PacelineError
from paceline.facts import SecondaryStatus, Status
from paceline.launch.engines.base import Observation
from paceline.launch.engines.detached import TAKEN_FILE
from paceline.launch.engines.jobs import note_end
from paceline.launch.engines.ray.cluster import joined
from paceline.launch.engines.ray.follow import JobFollower
from paceline.launch.engines.ray.options import RayOptions
from paceline.launch.engines.ray.placement import Asked, Cancelled, PlacementRequest, placed
from paceline.launch.engines.submission import Submission, as_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import make_next_try
from paceline.recording.writer import EventLog
from paceline.terminal_text import write_line

# A node that was lost may come back, or its successor may have to be started first.
RETRY_WAIT_SECONDS = 600.0


def hold(options: RayOptions, job: Submission, run_dir: Path, environ: Mapping[str, str]) -> int:
    """Run the job to its end on the cluster; its exit code, or 128 + the signal that ended it before it began.

    Raises:  UsageError E01, E20 to E25, E27: it was refused; HostLost E26: a host was lost, and no retry is left
    """
    code = Path(job.package.archive).read_bytes() if job.package is not None else None
    with ends_asked() as (asked, listen):
        try:
            with joined(options, environ, len(code or b"")) as ray:
                listen()  # again: Ray has put a handler of its own in place, which ends this process with SystemExit
                return _tries(ray, options, job, code, run_dir, asked)
        except (Cancelled, SystemExit):
            return 128 + (asked[0] if asked else signal.SIGTERM)


def _tries(ray: Any, options: RayOptions, job: Submission, code: bytes | None, run_dir: Path, asked: Asked) -> int:
    number = 1
    while True:
        this = job if number == 1 else as_run(job, f"{job.run_id}.{number}")
        directory = run_dir if number == 1 else run_dir.with_name(this.run_id)
        wait_seconds = options.wait_seconds if number == 1 else max(options.wait_seconds, RETRY_WAIT_SECONDS)
        wanted = PlacementRequest(options=options, hosts=job.hosts, code=code, wait_seconds=wait_seconds)
        lost: PacelineError | None = None
        try:
            exit_code = _one_try(ray, wanted, this, run_dir, directory, asked)
        except HostLost as error:
            exit_code, lost = error.exit_code, error
        if exit_code != HostLost.exit_code or asked or number > job.retries:
            if lost is not None and not asked:
                raise lost
            return exit_code if lost is None else 128 + asked[0]
        number += 1
        _note_retry(directory, job, number, lost)


def _one_try(ray: Any, wanted: PlacementRequest, job: Submission, run_dir: Path, directory: Path, asked: Asked) -> int:
    def waits(text: str) -> None:
        # Whoever submits it does not wait with us.
        (run_dir / TAKEN_FILE).touch()
        say(text)

    with placed(ray, wanted, asked, waits) as hosts:
        (run_dir / TAKEN_FILE).touch()
        make_next_try(directory, run_dir)
        say(f"run {job.run_id} on the Ray nodes " + ", ".join(host.node for host in hosts))
        following = JobFollower(ray, hosts, job.run_id, directory, asked)
        following.start(job, {**job.environment, "PACELINE_TOKEN": secrets.token_hex(16)})
        return following.to_the_end()


def _note_retry(directory: Path, job: Submission, number: int, lost: PacelineError | None) -> None:
    """In the recording of the try that was lost: which run follows it."""
    run_id = f"{job.run_id}.{number}"
    why = f"{lost.what}: {lost.saw}" if lost is not None else "a host was lost"
    say(f"{why}; retry {number - 1} of {job.retries} as {run_id}")
    recording = RunDirectory(directory)
    if not recording.run_file.exists():
        return
    log = EventLog(recording.events_file)
    log.record("notice", text=f"{why}; started again as {run_id} (retry {number - 1} of {job.retries})")
    log.close()
    # Where its first host was the one that was lost, no agent lived to say it.
    failed = SecondaryStatus.FAILED
    note_end(
        directory,
        Observation(status=Status.FAILED, secondary_status=failed, reason=why, exit_code=HostLost.exit_code),
    )


@contextmanager
def ends_asked() -> Iterator[tuple[list[int], Callable[[], None]]]:
    """The signals that ask for an end, as they come, for as long as the block lasts; and a call that listens anew."""
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


def say(text: str) -> None:
    """A line of the engine's own in the keeper's log."""
    write_line(f"paceline  {text}")
