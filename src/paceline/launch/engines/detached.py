"""Jobs that no service keeps: a process of ours, the keeper, is started at submission, outlives it, and holds the job to its end.

It is this module as a program, in a session of its own: `python -m paceline.launch.engines.detached RUN_DIR`. It calls the engine's `hold`,
which lasts as long as the job.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import HostLost, PacelineError, UsageError
from paceline.facts import Run, SecondaryStatus, Status
from paceline.launch.engines.base import Engine, Handle, Observation, Request, load
from paceline.launch.engines.jobs import note_end
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
# 128 + SIGINT and SIGTERM: somebody asked for the end.
_STOPPED = (130, 143)


class DetachedEngine(Engine):
    """An engine whose job lasts as long as a call of `hold`, in its keeper. `environ`: of the process that submits."""

    environ: Mapping[str, str]

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Run the job to its end and return its exit code; SIGTERM and SIGINT stop it in order, the second one at once.

        Touches `run_dir / TAKEN_FILE` once nothing of what can be refused is left to look at; a recording that appears in `run_dir` says
        the same.

        Raises:  PacelineError: refused before any rank started, or a host was lost
        """
        raise NotImplementedError

    def submit(self, request: Request, run_dir: Path) -> Handle:
        """Start the keeper."""
        return start_keeper(request, run_dir, self.environ)

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """What the recording in `run_dir` says, and whether the keeper is there."""
        return observe_kept(handle, run_dir)

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """What the first host's agent printed."""
        return logs_kept(run_dir, cursor)

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """Tell the first host's agent, or the keeper."""
        cancel_kept(handle, run_dir, now=now)


def start_keeper(request: Request, run_dir: Path, environ: Mapping[str, str]) -> Handle:
    """Start the keeper of this job, and return once the engine has taken it.

    Raises:  PacelineError: what the engine refused it for
    """
    # URLs in it may carry a password.
    with os.fdopen(os.open(run_dir / REQUEST_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(_kept_request(request), file)
    told = {"environ": dict(environ), "environment": dict(request.job.environment)}
    pid = _spawn(
        [sys.executable, "-P", "-m", "paceline.launch.engines.detached", str(run_dir)],
        json.dumps(told),
        run_dir,
        environ,
    )
    ticks = start_ticks(pid)
    _wait_until_taken(pid, run_dir)
    return {"pid": pid, "start_ticks": ticks, "machine": os.uname().nodename}


def _spawn(argv: list[str], told: str, run_dir: Path, environ: Mapping[str, str]) -> int:
    """Start it in a session of its own; nothing of this process waits for it, as an object of subprocess would."""
    reading, writing = os.pipe()
    log = os.open(run_dir / KEEPER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    streams = [(os.POSIX_SPAWN_DUP2, descriptor, number) for descriptor, number in ((reading, 0), (log, 1), (log, 2))]
    try:
        pid = os.posix_spawn(argv[0], argv, dict(environ), file_actions=streams, setsid=True)
    finally:
        os.close(reading)
        os.close(log)
    # On its stdin and nowhere else: the environment may hold secrets.
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as stdin:
        stdin.write(told + "\n")
    return pid


def observe_kept(handle: Handle, run_dir: Path) -> Observation:
    """What the recording in `run_dir` and the keeper's being there say together."""
    last = newest_try(run_dir)
    run, events, _ = read_run((RunDirectory(last),))
    tries = 1 if last == run_dir else int(last.name.rpartition(".")[2])
    if run.finished_ns is not None and not _is_kept_here(handle):
        return _ended(run, tries)
    if is_kept(handle):
        nodes = {event["host"]: event["host"] for event in events if event["event"] == "host_joined"}
        word = SecondaryStatus.PENDING if not events else run.secondary_status
        if run.finished_ns is not None:
            # The keeper ends once it has brought everything here, or starts the job again.
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
    """After a lost host, while retries are left; never after the script's own failure."""
    job = read_document(run_dir / REQUEST_FILE).get("job")
    retries = job.get("retries", 0) if isinstance(job, dict) else 0
    return run.exit_code == HostLost.exit_code and tries <= retries


def logs_kept(run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
    """Whole lines of the keeper's output since the cursor, a place in the file."""
    begin = int(cursor or "0")
    with open_plain(run_dir / KEEPER_LOG) as file:
        file.seek(begin)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").splitlines(), str(begin + len(whole))


def cancel_kept(handle: Handle, run_dir: Path, *, now: bool = False) -> None:
    """Stop through the coordinator's control socket if it is local, so that the run is recorded as stopped on request; else by the keeper.

    The keeper stops the job in order at a SIGTERM, and at once at a second one.
    """
    if not is_kept(handle) or _agent_told(run_dir, now):
        return
    with _keeper(handle) as keeper:
        for _ in range(2 if now else 1):
            if keeper is not None and _is_paceline(handle["pid"]):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(keeper, signal.SIGTERM)
            # Two signals of one kind that are pending at once are one.
            time.sleep(_POLL_SECONDS)


def _agent_told(run_dir: Path, now: bool) -> bool:
    run, _, _ = read_run((RunDirectory(newest_try(run_dir)),))
    if run.control_socket is None or not os.path.exists(run.control_socket):
        return False
    try:
        return ask(run, {"command": "stop", "now": now}).get("ok") is True
    except PacelineError:
        # Gone in this moment, or another machine's path that happens to be here too.
        return False


def is_kept(handle: Handle) -> bool:
    """Whether the keeper is there, and is the one that was started.

    Raises:  UsageError E05: the job was submitted on another machine
    """
    machine = os.uname().nodename
    if handle.get("machine") != machine:
        raise UsageError(
            "E05",
            f"this job is kept by a process on {handle.get('machine')}",
            saw=f"asked on {machine}",
            next=f"ssh {handle.get('machine')} paceline ps",
        )
    with _keeper(handle) as keeper:
        return keeper is not None


@contextmanager
def _keeper(handle: Handle) -> Iterator[int | None]:
    """The keeper's pidfd, so that whoever gets its number later is never meant; None where it is gone."""
    pid = handle["pid"]
    try:
        keeper = os.pidfd_open(pid)
    except (OSError, TypeError, OverflowError):
        yield None
        return
    try:
        yield keeper if start_ticks(pid) == handle["start_ticks"] else None
    finally:
        os.close(keeper)


def _is_paceline(pid: int) -> bool:
    """Whether its command line is the keeper's, or that of `paceline run --hosts`, which keeps its job itself."""
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
    """What the agent refused is the last that it said, and stands in the log in its four parts."""
    lines = (run_dir / KEEPER_LOG).read_text(errors="replace").splitlines()
    return UsageError(
        "E05",
        f"the job was refused where it was to run, with exit code {code}",
        saw="\n".join(lines[-8:]) or "nothing was said",
        next="fix the reported problem and resubmit",
    )


def as_document(error: PacelineError) -> dict[str, Any]:
    """An error as the keeper leaves it for whoever submitted the job."""
    parts = {name: getattr(error, name) for name in ("code", "what", "saw", "next", "more", "exit_code")}
    return {**parts, "kind": type(error).__name__}


def as_error(document: Mapping[str, Any]) -> PacelineError:
    """The error that `as_document` made the document of."""
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
    """The keeper: hold the job to its end, and say in its recording how it ended where no agent lived to say it.

    Whoever starts it writes one line of JSON to its stdin: the environment of the submitting process, and that of the ranks.
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
    """Put the end into the recording, where no agent lived to do so."""
    last = newest_try(run_dir)
    # Whoever submitted a job that was refused before the engine took it removes its directory.
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
    # Under its own name: engines that it loads import this module, and its classes shall be the same ones.
    from paceline.launch.engines import detached

    raise SystemExit(detached.main(sys.argv[1:]))
