"""Runs jobs of engines without a service of their own, in a background process: the keeper.

The keeper is started at submission, outlives the submitting process, and runs the job to its end. It is this module as a program, in a
session of its own: `python -m paceline.parts.engines.detached RUN_DIR`. It calls the engine's `hold`, which lasts as long as the job.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import HostLost, PacelineError, UsageError
from paceline.facts import Run, SecondaryStatus, Status
from paceline.launch.agent.guardian import send
from paceline.part import Observation
from paceline.parts.engines.base import Engine, Handle, Request, Sent, load, nobody_asks
from paceline.parts.engines.jobs import note_end
from paceline.process_identity import start_ticks
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain
from paceline.recording.runs import newest_try, read_document
from paceline.recording.writer import write_json

KEEPER_LOG = "keeper.log"
REQUEST_FILE = "request.json"
REFUSED_FILE = "refused.json"
TAKEN_FILE = "taken"
_TAKEN_SECONDS = 60.0
_POLL_SECONDS = 0.05
# 128 + SIGINT and 128 + SIGTERM: the end was requested.
_STOPPED = (130, 143)


class DetachedEngine(Engine):
    """An engine whose job lasts as long as a call of `hold` in the keeper. `environ` belongs to the submitting process."""

    environ: Mapping[str, str]

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Run the job to its end and return its exit code. SIGTERM and SIGINT stop the job in order; a second signal stops it at once.

        `hold` touches `run_dir / TAKEN_FILE` when all checks that can refuse the job are done. A recording in `run_dir` means the same.

        Raises:  PacelineError: the job was refused before any rank started, or a host was lost
        """
        raise NotImplementedError

    def submit(self, request: Request, run_dir: Path, sent: Sent = nobody_asks) -> Handle:
        """Start the keeper."""
        return start_keeper(request, run_dir, self.environ)

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """The state of the job, from the recording in `run_dir` and from whether the keeper runs."""
        return observe_kept(handle, run_dir)

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """The output of the coordinator."""
        return logs_kept(run_dir, cursor)

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """Cancel through the coordinator, or through the keeper."""
        cancel_kept(handle, run_dir, now=now)


def start_keeper(request: Request, run_dir: Path, environ: Mapping[str, str]) -> Handle:
    """Start the keeper of this job, and return when the engine has accepted the job.

    Raises:  PacelineError: the engine refused the job
    """
    # URLs in the request may have a password.
    with os.fdopen(os.open(run_dir / REQUEST_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(_kept_request(request), file)
    told = {"environ": dict(environ), "environment": dict(request.job.environment)}
    pid = _spawn(
        [sys.executable, "-P", "-m", "paceline.parts.engines.detached", str(run_dir)],
        json.dumps(told),
        run_dir,
        environ,
    )
    ticks = start_ticks(pid)
    _wait_until_taken(pid, run_dir)
    return {"pid": pid, "start_ticks": ticks, "machine": os.uname().nodename}


def _spawn(argv: list[str], told: str, run_dir: Path, environ: Mapping[str, str]) -> int:
    """Start the process in a session of its own, without a subprocess object: this process never waits for it."""
    reading, writing = os.pipe()
    log = os.open(run_dir / KEEPER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    streams = [(os.POSIX_SPAWN_DUP2, descriptor, number) for descriptor, number in ((reading, 0), (log, 1), (log, 2))]
    try:
        pid = os.posix_spawn(argv[0], argv, dict(environ), file_actions=streams, setsid=True)
    finally:
        os.close(reading)
        os.close(log)
    # The environment may have secrets, so it is passed on stdin only.
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as stdin:
        stdin.write(told + "\n")
    return pid


def observe_kept(handle: Handle, run_dir: Path) -> Observation:
    """The state of the job, from the recording in `run_dir` and from whether the keeper runs."""
    last = newest_try(run_dir)
    run, events, _ = read_run((RunDirectory(last),))
    tries = 1 if last == run_dir else int(last.name.rpartition(".")[2])
    if run.finished_ns is not None and not _is_kept_here(handle):
        return _ended(run, tries)
    if is_kept(handle):
        nodes = {event["host"]: event["host"] for event in events if event["event"] == "host_joined"}
        word = SecondaryStatus.PENDING if not events else run.secondary_status
        if run.finished_ns is not None:
            # The keeper is still running: it copies the rest of the recording, or it starts the job again.
            word = SecondaryStatus.RESTARTING if _is_tried_again(run, run_dir, tries) else SecondaryStatus.UPLOADING
        return Observation(status=Status.IN_PROGRESS, secondary_status=word, own_word="kept", nodes=nodes, tries=tries)
    refused = read_document(run_dir / REFUSED_FILE)
    reason = refused.get("what") or f"the keeper of {run_dir.name} is gone: {run_dir / KEEPER_LOG}"
    return Observation(
        status=Status.FAILED,
        secondary_status=SecondaryStatus.FAILED,
        own_word="refused" if refused else "gone",
        reason=reason,
        exit_code=refused.get("exit_code", HostLost.exit_code),
        tries=tries,
    )


def _is_tried_again(run: Run, run_dir: Path, tries: int) -> bool:
    """Whether the job starts again: a host was lost and retries are left. The script's own failure is never retried."""
    job = read_document(run_dir / REQUEST_FILE).get("job")
    retries = job.get("retries", 0) if isinstance(job, dict) else 0
    return run.exit_code == HostLost.exit_code and tries <= retries


def logs_kept(run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
    """Complete lines of the keeper's output since the cursor, which is a position in the file."""
    begin = int(cursor or "0")
    with open_plain(run_dir / KEEPER_LOG) as file:
        file.seek(begin)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), str(begin + len(whole))


def cancel_kept(handle: Handle, run_dir: Path, *, now: bool = False) -> None:
    """Cancel through the coordinator's control socket if it is local, so that the run is recorded as stopped on request.

    Otherwise signal the keeper. It stops the job in order at the first SIGTERM, and at once at the second.
    """
    if not is_kept(handle) or _agent_told(run_dir, now):
        return
    for _ in range(2 if now else 1):
        if _is_here(handle) and _is_paceline(handle["pid"]):
            send(handle["pid"], handle["start_ticks"], signal.SIGTERM)
        # Two pending signals of the same kind would count as one.
        time.sleep(_POLL_SECONDS)


def _agent_told(run_dir: Path, now: bool) -> bool:
    run, _, _ = read_run((RunDirectory(newest_try(run_dir)),))
    if run.control_socket is None or not os.path.exists(run.control_socket):
        return False
    try:
        return ask(run, {"command": "stop", "now": now}).get("ok") is True
    except PacelineError:
        # The agent has just ended, or the path belongs to another machine and exists here by chance.
        return False


def is_kept(handle: Handle) -> bool:
    """Whether the keeper that was started still runs.

    Raises:  UsageError U19: the job was submitted on another machine
    """
    machine = os.uname().nodename
    if handle.get("machine") != machine:
        raise UsageError(
            "U19",
            f"this job is kept by a process on {handle.get('machine')}",
            saw=f"asked on {machine}",
            next=f"ssh {handle.get('machine')} paceline ps",
        )
    return _is_here(handle)


def _is_here(handle: Handle) -> bool:
    pid = handle["pid"]
    ticks = start_ticks(pid) if type(pid) is int else None
    return ticks is not None and ticks == handle["start_ticks"]


def _is_paceline(pid: int) -> bool:
    """Whether the process is a keeper, or `paceline run --hosts`, which is its own keeper, according to the command line."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(word).partition(b".")[0] == b"paceline" for word in argv)


def _is_kept_here(handle: Handle) -> bool:
    return handle.get("machine") == os.uname().nodename and is_kept(handle)


def _kept_request(request: Request) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(request, str_keys=True)
    plain["job"]["environment"] = {}
    return plain


def _wait_until_taken(keeper: int, run_dir: Path) -> None:
    deadline = time.monotonic() + _TAKEN_SECONDS
    while time.monotonic() < deadline:
        if any((run_dir / name).exists() for name in (TAKEN_FILE, "run.json")):
            return
        ended, status = os.waitpid(keeper, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if refused := read_document(run_dir / REFUSED_FILE):
                raise as_error(refused)
            if code == 0 or (run_dir / "run.json").exists():
                return
            raise _keeper_died(code, run_dir)
        time.sleep(_POLL_SECONDS)


def _keeper_died(code: int, run_dir: Path) -> UsageError:
    """The error of a keeper that died. The agent's refusal is at the end of the log, in its four parts."""
    lines = (run_dir / KEEPER_LOG).read_text(errors="replace").splitlines()
    return UsageError(
        "U19",
        f"the job was refused where it was to run, with exit code {code}",
        saw="\n".join(lines[-8:]) or "nothing was said",
        next="fix the reported problem and resubmit",
    )


def as_document(error: PacelineError) -> dict[str, Any]:
    """An error in the form that the keeper writes for the submitting process."""
    parts = {name: getattr(error, name) for name in ("code", "what", "saw", "next", "more", "exit_code")}
    return {**parts, "kind": type(error).__name__}


def as_error(document: Mapping[str, Any]) -> PacelineError:
    """The error from which `as_document` made the document."""
    kinds: dict[str, Callable[..., PacelineError]] = {kind.__name__: kind for kind in (UsageError, HostLost)}
    kind = kinds.get(document["kind"], PacelineError)
    error = kind(document["code"], document["what"], saw=document["saw"], next=document["next"], more=document["more"])
    error.exit_code = document["exit_code"]
    return error


def _ended(run: Run, tries: int) -> Observation:
    return Observation(
        status=run.status,
        secondary_status=run.secondary_status,
        own_word="ended",
        reason=run.reason,
        exit_code=run.exit_code,
        tries=tries,
    )


# --------------------------------------------------------------------------------------------------------- the keeper


def main(argv: list[str]) -> int:
    """Run the keeper: run the job to its end, and record how the job ended if no agent was left to record it.

    The process that starts the keeper writes one line of JSON to its stdin: its own environment and the ranks' environment.
    """
    run_dir = Path(argv[0])
    told = json.loads(sys.stdin.readline())
    request = msgspec.convert(json.loads((run_dir / REQUEST_FILE).read_bytes()), Request, str_keys=True)
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
    """Write the end of the run to the recording, if no agent was left to write it."""
    last = newest_try(run_dir)
    # If a job was refused before the engine accepted it, the submitting process removes its directory.
    if RunDirectory(last).run_file.exists() or (run_dir / TAKEN_FILE).exists():
        note_end(last, _end_of(code, reason))


def _end_of(code: int, reason: str) -> Observation:
    stopped = code in _STOPPED
    said = reason or f"the first host's agent ended with {code}, and left no end in the recording"
    return Observation(
        status=Status.STOPPED if stopped else Status.FAILED,
        secondary_status=SecondaryStatus.STOPPED if stopped else SecondaryStatus.FAILED,
        reason="stopped before a rank had started" if stopped and not reason else said,
        exit_code=code or HostLost.exit_code,
    )


if __name__ == "__main__":
    # Import this module by its own name: the engines import it too, and its classes must be the same objects.
    from paceline.parts.engines import detached

    raise SystemExit(detached.main(sys.argv[1:]))
