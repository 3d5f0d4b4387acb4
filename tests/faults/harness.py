"""Runs one fault for real, watches what the job says of itself, ends it, and asks `paceline why`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from build_fake_gpu import nccl_environment
from catalogue import Fault, Trial
from install_torch import python_of
from scoring import Answer, Outcome, is_judgement, score

from paceline.parts.lab.emulate.cleanup import remove_group, sweep

REPOSITORY = Path(__file__).resolve().parent.parent.parent
_BROKEN = re.compile(r"^\W*(?:\[[^\]]*\]:?\s*)?broken at (\d+)", re.MULTILINE)
_POLL_SECONDS = 0.1
# A finding may be followed by a better one when the snapshots of the suspects are in.
_SETTLE_SECONDS = 2.0
_ANSWER_SECONDS = 30.0
# For ranks to import torch and to come to the step at which they break.
_START_SECONDS = 60.0


@dataclass
class Watched:
    """One job under observation: its process, what it recorded so far, and when its fault was injected. `python`: the one that runs it."""

    process: subprocess.Popen[bytes]
    directory: Path
    environment: Mapping[str, str]
    started_ns: int
    python: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    injected_ns: int | None = None
    _read: dict[Path, int] = field(default_factory=dict)

    def poll(self) -> None:
        """Read what was appended since the last time."""
        for path in self.recorded("events.jsonl"):
            self.events += self._new_lines(path)
        self.events.sort(key=lambda event: int(event.get("t_ns") or 0))
        if self.injected_ns is None:
            self.injected_ns = self._injection()

    def recorded(self, name: str) -> list[Path]:
        """Files of this name in the recordings below the job's directory, whichever host wrote them."""
        return sorted(self.directory.glob(f"**/.paceline/runs/*/{name}"))

    def run_directory(self) -> Path | None:
        """The recording of the first host, the one with the events."""
        return next((path.parent for path in self.recorded("events.jsonl")), None)

    def _new_lines(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            whole = file.read().rpartition(b"\n")[0]
        self._read[path] = self._read.get(path, 0) + len(whole) + bool(whole)
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event

    def _injection(self) -> int | None:
        logs = [*self.recorded("hosts/*/attempt_*/rank_*.out"), self.directory / "out.txt"]
        stamps = [
            int(match[1]) for log in logs if log.exists() for match in _BROKEN.finditer(log.read_text(errors="replace"))
        ]
        return min(stamps, default=None)


def observe(fault: Fault, trial: Trial, directory: Path, *, number: int = 0, kind: str = "") -> Outcome:
    """One trial of one fault, from its start until nothing of it is left. A decoy runs to its end or to its budget."""
    directory.mkdir(parents=True, exist_ok=True)
    python = interpreter(fault)
    job = start(command(fault, trial, python), directory, environment_of(fault), python)
    problem, answer = "", None
    try:
        problem = _watch(job, fault)
        ended_ns = time.time_ns()
        exit_code = job.process.poll()
        # As people ask: while it hangs, where it does. What the recording of the stopped job still says is noted beside it.
        answer, lack = why(job)
        stop(job)
        job.poll()
        afterwards, _ = why(job) if exit_code is None else (answer, lack)
        problem = problem or lack
    finally:
        clear_away(job)
    return score(
        fault,
        trial,
        number=number,
        kind=kind or ("decoy" if fault.is_decoy else "fault"),
        events=job.events,
        answer=answer,
        afterwards=afterwards,
        started_ns=job.started_ns,
        injected_ns=job.injected_ns,
        ended_ns=ended_ns,
        exit_code=exit_code,
        problem=problem,
    )


def interpreter(fault: Fault) -> Path:
    """The Python that runs a fault.

    Raises:  LookupError: the torch that it asks for is not installed
    """
    if not fault.torch:
        return Path(sys.executable)
    if (python := python_of(fault.torch)) is None:
        raise LookupError(f"torch {fault.torch} is not installed: make torch-{fault.torch}")
    return python


def environment_of(fault: Fault) -> dict[str, str]:
    """What a fault's job finds in its environment, beside a person's.

    Raises:  LookupError: it is for NCCL, and nothing can stand in for that here
    """
    return {**fault.environment, **(nccl_environment(fault.torch) if fault.nccl else {})}


def command(fault: Fault, trial: Trial, python: Path) -> list[str]:
    """The command that starts a trial. A job that is not broken is one that paceline would be free to end."""
    if fault.starts_itself:
        return [str(python), str(fault.script), *fault.argv(trial)]
    size = ["--nproc-per-node", str(trial.world_size // trial.hosts)]
    if trial.hosts > 1:
        size = ["--local-hosts", str(trial.hosts), *size]
    may_end = ["--on-hang", "stop"] if fault.is_decoy else []
    return [
        str(python),
        "-m",
        "paceline",
        "run",
        *fault.command,
        *may_end,
        *size,
        str(fault.script),
        *fault.argv(trial),
    ]


def start(argv: list[str], directory: Path, more: Mapping[str, str], python: Path) -> Watched:
    """Start a job with an environment of its own and `more`; by its mark the job's processes are found again."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_", "SM_"))
    }
    source = str(REPOSITORY / "src")
    paths = os.pathsep.join(entry for entry in (source, more.get("PYTHONPATH", os.environ.get("PYTHONPATH"))) if entry)
    environment.update(
        **{"OMP_NUM_THREADS": "1", **more, "PYTHONPATH": paths},
        XDG_STATE_HOME=str(directory / "state"),
        PYTHONUNBUFFERED="1",
        PACELINE_FAULT=f"{directory.name}-{os.getpid()}-{time.monotonic_ns()}",
    )
    with (directory / "out.txt").open("wb") as out, (directory / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env=environment,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return Watched(process, directory, environment, time.time_ns(), python)


def stop(job: Watched) -> None:
    """Ask the run to end as a person would, at once."""
    if job.process.poll() is None and (run := job.run_directory()) is not None:
        try:
            _paceline(job, "stop", str(run), "--now")
            job.process.wait(10)
        except subprocess.TimeoutExpired:
            return


def why(job: Watched) -> tuple[Answer | None, str]:
    """What `paceline why --json` says, and which rules failed; None and the reason where it has no answer."""
    run = job.run_directory()
    if run is None:
        return None, "nothing was recorded: " + _last_line(job.directory / "err.txt")
    try:
        done = _paceline(job, "why", str(run), "--json")
    except subprocess.TimeoutExpired:
        return None, f"why did not answer within {_ANSWER_SECONDS:g} s"
    try:
        answer = json.loads(done.stdout)
        failed = [text for text in answer["not_judged"] if "its rule failed" in text]
        return Answer(tuple(answer["findings"]), tuple(answer["not_judged"])), "; ".join(failed)
    except (ValueError, KeyError, TypeError):
        return None, f"why ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}"


def clear_away(job: Watched) -> None:
    """End every process of the job, wherever it hides, and what its scripts made of control groups and hosts."""
    deadline = time.monotonic() + 15
    groups = _groups_named_after(job)
    while (left := marked(job.environment["PACELINE_FAULT"])) and time.monotonic() < deadline:
        for directory in groups | _groups_of(left):
            _thaw(directory)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    job.process.wait(10)
    for directory in groups:
        remove_group(directory)
    if os.geteuid() == 0:
        sweep()


def marked(mark: str) -> list[int]:
    """Processes that carry a job's mark in their environment, zombies left out."""
    needle = f"PACELINE_FAULT={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and needle in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                continue
    return found


def _watch(job: Watched, fault: Fault) -> str:
    """Wait for a judgement, the job's own end, or the end of its budget; what is wrong with the trial itself, or nothing."""
    started = time.monotonic()
    enough: float | None = None
    while time.monotonic() < started + budget_seconds(fault, job.started_ns, job.injected_ns):
        ended = job.process.poll() is not None
        job.poll()
        if ended:
            return ""
        if (
            not (fault.is_decoy or fault.to_its_end)
            and enough is None
            and any(_is_after(job, event, fault) for event in job.events)
        ):
            enough = time.monotonic() + _SETTLE_SECONDS
        if enough is not None and time.monotonic() >= enough:
            return ""
        time.sleep(_POLL_SECONDS)
    return "" if fault.is_decoy else f"no judgement within {fault.budget_seconds:.0f} s"


def budget_seconds(fault: Fault, started_ns: int, injected_ns: int | None) -> float:
    """How long a trial may last from its start.

    Holds:   the time that ranks take to start is not taken from the time for a judgement; a decoy has its budget and no more
    """
    if fault.is_decoy:
        return fault.budget_seconds
    before = _START_SECONDS if injected_ns is None else (injected_ns - started_ns) / 1e9
    return fault.budget_seconds + before


def _is_after(job: Watched, event: Mapping[str, Any], fault: Fault) -> bool:
    return is_judgement(event, fault) and int(event.get("t_ns") or 0) >= (job.injected_ns or job.started_ns)


def _paceline(job: Watched, *argv: str) -> subprocess.CompletedProcess[str]:
    # Not the job's own environment: its mark would make this one of its processes.
    environment = {name: value for name, value in job.environment.items() if name != "PACELINE_FAULT"}
    return subprocess.run(
        [job.python, "-m", "paceline", *argv],
        cwd=job.directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_ANSWER_SECONDS,
    )


def _groups_named_after(job: Watched) -> set[Path]:
    """Control groups that a script made for its rank: their names end in the rank's pid."""
    pids = {str(event.get("pid")) for event in job.events if event["event"] in ("rank_started", "rank_joined")}
    # os.walk, because other groups come and go meanwhile.
    return {
        Path(top, name)
        for top, inner, _ in os.walk("/sys/fs/cgroup")
        for name in inner
        if name.startswith("paceline-") and name.rpartition("-")[2] in pids
    }


def _groups_of(pids: Iterable[int]) -> set[Path]:
    """Freezer groups of version 1 and groups of version 2, below the topmost one, that these processes are in."""
    found = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            _, names, path = line.split(":", 2)
            if path != "/" and "paceline" in path and names in ("", "freezer"):
                top = Path("/sys/fs/cgroup/freezer" if names else "/sys/fs/cgroup")
                found.add(top / path.lstrip("/"))
    return found


def _thaw(directory: Path) -> None:
    """A frozen process cannot even be killed."""
    for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (directory / name).exists():
            try:
                (directory / name).write_text(value)
            except OSError:
                continue


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no output"
