"""The contract of every engine, as checks that you can also run on your own engine. Our engines and the shipped fake engine pass them.

Each function raises an AssertionError with the broken promise. The checks need a job that ends by itself and a job that does not.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.errors import PacelineError
from paceline.facts import Status
from paceline.part import Observation
from paceline.parts.engines import jobs
from paceline.parts.engines.base import Engine
from paceline.parts.engines.host_check import HostStarter, SeenHosts, chosen_pairs, look_at
from paceline.parts.engines.submission import Submission

_POLL_SECONDS = 0.2


def check_plan(engine: Engine, job: Submission) -> None:
    """A plan is pure, the same each time, made of JSON values, without secrets, and agrees with the job."""
    first, second = engine.plan(job), engine.plan(job)
    assert first == second, "planned twice, the same job gave two requests"
    text = json.dumps(msgspec.to_builtins(first.document), sort_keys=True) + "".join(first.files.values())
    assert first.engine == engine.name, f"the request names {first.engine}, the engine is {engine.name}"
    assert isinstance(engine.requeues, bool), "it does not say whether it starts a job again"
    for secret in job.environment.values():
        assert len(secret) < 8 or secret not in text, "the value of an environment variable is in the request"


def check_ends(engine: Engine, job: Submission, root: Path, *, seconds: float, code: int = 0) -> Observation:
    """A job is accepted, is seen running, ends with its own exit code, and can be observed again afterwards.

    `job` has no package, or a package whose archive is not removed. `code` is the job's exit code.
    """
    run_dir = jobs.make_run_dir(root, job.run_id)
    jobs.submit_job(job, engine, run_dir)
    noted = jobs.submitted(run_dir)
    assert noted is not None, "nothing says where the job went"
    assert noted.engine == engine.name, f"{noted.engine} is noted, the engine is {engine.name}"
    json.dumps(dict(noted.handle))
    seen = _until(engine, run_dir, lambda observed: observed.ended, seconds)
    assert seen.exit_code == code, f"it ended with {seen.exit_code} ({seen.reason}), {code} was wanted"
    assert (seen.status is Status.COMPLETED) == (code == 0), f"exit code {code} and status {seen.status}"
    assert code == 0 or seen.reason, "it failed without a reason"
    again = engine.observe(noted.handle, run_dir)
    assert again.ended and again.exit_code == code, "a second look at the end saw something else"
    engine.cancel(noted.handle, run_dir)
    assert engine.observe(noted.handle, run_dir).exit_code == code, "an end was changed by cancelling what had ended"
    check_logs(engine, run_dir)
    return seen


def check_cancel(engine: Engine, job: Submission, root: Path, *, seconds: float, now: bool = False) -> Observation:
    """A job that would run forever is cancelled. Its status is then Stopped, or Failed if the platform has no other word."""
    run_dir = jobs.make_run_dir(root, job.run_id)
    jobs.submit_job(job, engine, run_dir)
    noted = jobs.submitted(run_dir)
    assert noted is not None
    _until(engine, run_dir, lambda observed: observed.ended or observed.secondary_status == "Training", seconds)
    engine.cancel(noted.handle, run_dir, now=now)
    seen = _until(engine, run_dir, lambda observed: observed.ended, seconds)
    assert seen.status is not Status.COMPLETED, "a cancelled job is said to be completed"
    assert seen.exit_code != 0, "a cancelled job has exit code 0"
    return seen


def check_refused(engine: Engine, job: Submission, root: Path, code: str) -> PacelineError:
    """A refused job gives an error in four parts and leaves nothing behind."""
    run_dir = jobs.make_run_dir(root, job.run_id)
    try:
        jobs.submit_job(job, engine, run_dir)
    except PacelineError as error:
        assert error.code == code, f"refused with {error.code} ({error.what}), {code} was wanted"
        assert error.what and error.saw and error.next, (
            f"a part of the refusal is missing: {error.what}; {error.saw}; {error.next}"
        )
        assert not run_dir.exists(), f"{run_dir} was left behind"
        return error
    raise AssertionError("the job was taken")


def check_hosts(engine: Engine, job: Submission) -> SeenHosts:
    """Before the job, the hosts are looked at: each says what it is and connects to the others, or the engine says why it cannot be.

    The engine has what the job asks for, or starts no programs before a job.
    """
    assert isinstance(engine, HostStarter), "the engine cannot start a program on the job's hosts"
    seen = look_at(engine, job)
    if seen.unknown:
        assert not (seen.hosts or seen.links or seen.refused), "hosts that are not known were looked at"
        return seen
    assert not seen.refused, f"a host or the job was refused: {seen.refused[0].what}"
    names = [host.name for host in seen.hosts]
    assert 1 <= len(names) <= job.hosts and len(set(names)) == len(names), f"{names} are the hosts of {job.hosts}"
    for host in seen.hosts:
        assert host.python is not None and host.clock_offset_seconds is not None, f"{host.name} says too little"
    tried = {(link.source, link.target) for link in seen.links if not link.error}
    wanted = {(names[a], names[b]) for a, others in enumerate(chosen_pairs(len(names))) for b in others}
    assert tried == wanted, f"no connection was tried, or it failed: {wanted - tried}"
    return seen


def check_logs(engine: Engine, run_dir: Path) -> None:
    """Each line comes once: no line follows the last cursor, and reading again from the beginning gives the same lines."""
    noted = jobs.submitted(run_dir)
    assert noted is not None
    lines, cursor = engine.logs(noted.handle, run_dir, None)
    rest, _ = engine.logs(noted.handle, run_dir, cursor)
    assert not rest, f"after the last line came {rest[0]!r}"
    again, _ = engine.logs(noted.handle, run_dir, None)
    assert list(again) == list(lines), "read twice, the logs were different"


def _until(engine: Engine, run_dir: Path, reached: Callable[[Observation], bool], seconds: float) -> Observation:
    noted = jobs.submitted(run_dir)
    assert noted is not None
    deadline = time.monotonic() + seconds
    while True:
        seen = engine.observe(noted.handle, run_dir)
        if reached(seen):
            return seen
        assert time.monotonic() < deadline, f"after {seconds:.0f} s it is {seen.status} {seen.own_word}: {seen.reason}"
        time.sleep(_POLL_SECONDS)
