"""A fake engine without hosts, for tests of code that uses engines. It keeps the job, plays a list of states, and fails on request.

Options: `states` (comma-separated, one for each observation: Pending, Training, Completed, Failed, Stopped, HostLost), `refuse` (a code:
`submit` refuses with it), `lose` (a code: the engine does not answer, with this error), `exit_code` (of a Failed job). For a look at its
hosts: `torch` (comma-separated versions, one for each host), `cut` (a host that cannot connect), `gone` (a host without an answer), `busy`
(no host is free).
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from paceline.errors import HostLost, UsageError
from paceline.facts import SecondaryStatus, Status
from paceline.findings import Unknown
from paceline.job_file import job_document
from paceline.part import Observation
from paceline.parts.engines.base import Engine, Handle, Request, Sent, known_options, nobody_asks
from paceline.parts.engines.host_check import StartedHost
from paceline.parts.engines.remote_program import ConnectionLost
from paceline.parts.engines.submission import Submission, host_file
from paceline.recording.runs import read_document
from paceline.recording.writer import write_json

_STATE_FILE = "fake.json"
_STATES = {
    "Pending": (Status.IN_PROGRESS, SecondaryStatus.PENDING),
    "Training": (Status.IN_PROGRESS, SecondaryStatus.TRAINING),
    "Completed": (Status.COMPLETED, SecondaryStatus.COMPLETED),
    "Failed": (Status.FAILED, SecondaryStatus.FAILED),
    "Stopped": (Status.STOPPED, SecondaryStatus.STOPPED),
    "HostLost": (Status.FAILED, SecondaryStatus.FAILED),
}
_EXIT_CODES = {"Completed": 0, "Stopped": 143, "HostLost": HostLost.exit_code}


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The fake engine, with the states of the options."""
    known_options("fake", options, ("states", "refuse", "lose", "exit_code", "torch", "cut", "gone", "busy"))
    return FakeEngine(options)


@dataclass(frozen=True, slots=True)
class FakeEngine:
    """An engine whose every observation gives the next state. The last state stays."""

    requeues: ClassVar[bool] = False
    """No host of it is ever lost."""
    options: Mapping[str, str]
    """The options of `--option`, as listed above."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "fake"

    def plan(self, job: Submission) -> Request:
        """One job file for each host."""
        files = [job_document(host_file(job, rank, "host-0", 29500)) for rank in range(job.hosts)]
        return Request(engine=self.name, job=job, document={"hosts": files})

    def submit(self, request: Request, run_dir: Path, sent: Sent = nobody_asks) -> Handle:
        """Accept the job, or refuse it with the code of the option `refuse`."""
        if code := self.options.get("refuse"):
            raise UsageError(code, "the fake engine refuses this job", saw=f"refuse={code}", next="leave refuse out")
        write_json(run_dir / _STATE_FILE, {"looks": 0, "cancelled": False})
        return {"job": request.job.run_id}

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """The next of the states."""
        played = self._played(run_dir)
        script = self.options.get("states", "Pending,Training,Completed").split(",")
        state = "Stopped" if played["cancelled"] else script[min(played["looks"], len(script) - 1)]
        write_json(run_dir / _STATE_FILE, {**played, "looks": played["looks"] + 1})
        status, secondary = _STATES[state]
        code = int(self.options.get("exit_code", "1")) if state == "Failed" else _EXIT_CODES.get(state)
        reason = "" if status is Status.IN_PROGRESS else f"played {state}"
        return Observation(status=status, secondary_status=secondary, own_word=state, reason=reason, exit_code=code)

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """One line for each observation so far."""
        looks = self._played(run_dir)["looks"]
        return [f"look {number}" for number in range(int(cursor or "0"), looks)], str(looks)

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """Let every further observation give Stopped, unless the job has ended."""
        script = self.options.get("states", "Pending,Training,Completed").split(",")
        played = self._played(run_dir)
        seen = script[min(max(played["looks"] - 1, 0), len(script) - 1)]
        if _STATES[seen][0] is Status.IN_PROGRESS:
            write_json(run_dir / _STATE_FILE, {**played, "cancelled": True})

    @asynccontextmanager
    async def start_on_hosts(self, job: Submission, wait_seconds: float) -> AsyncIterator[Sequence[StartedHost]]:
        """The hosts host-0, host-1, ... with the versions and faults of the options.

        Raises:  Unknown: the option `busy`; UsageError: the option `refuse`
        """
        if "busy" in self.options:
            raise Unknown(f"the hosts of the job: no {job.hosts} were free within {wait_seconds:g} s")
        if code := self.options.get("refuse"):
            raise UsageError(code, "the fake engine refuses this job", saw=f"refuse={code}", next="leave refuse out")
        versions = self.options.get("torch", "2.0").split(",")
        yield [
            StartedHost(
                name=f"host-{rank}",
                program=_PlayedHost(f"host-{rank}", versions[min(rank, len(versions) - 1)], self.options),
                address=f"host-{rank}",
                directory="",
                why_lost=lambda lost: HostLost("E17", str(lost), saw="gone", next="leave gone out"),
            )
            for rank in range(job.hosts)
        ]

    def _played(self, run_dir: Path) -> dict[str, int]:
        if code := self.options.get("lose"):
            raise HostLost(code, "the fake engine does not answer", saw=f"lose={code}", next="leave lose out")
        return read_document(run_dir / _STATE_FILE)


@dataclass(frozen=True, slots=True)
class _PlayedHost:
    """The answers of one host."""

    name: str
    torch: str
    options: Mapping[str, str]

    async def ask(self, do: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The played answer.

        Raises:  ConnectionLost: the option `gone` names this host
        """
        if self.options.get("gone") == self.name:
            raise ConnectionLost("", f"{self.name} is gone", None)
        cut = self.options.get("cut")
        links = [
            {"target": target["name"], "error": "No route to host" if cut in (self.name, target["name"]) else ""}
            for target in question.get("targets", ())
        ]
        answers: dict[str, dict[str, Any]] = {
            "host": {"name": self.name, "python": "3.12.0", "torch": self.torch, "paceline": "0"},
            "clock": {"time_ns": time.time_ns()},
            "listen": {"port": 1},
            "connect": {"links": links},
        }
        return answers[do]
