"""The seam between a job and the place that starts its agents: SSH hosts, Ray, Slurm, SageMaker, this machine.

An engine starts one `paceline run` per host and says what became of it. Everything else (supervision, contract, recording, diagnosis) is
the agent's work, and therefore the same everywhere.
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from paceline.errors import UsageError
from paceline.facts import SecondaryStatus, Status
from paceline.launch.engines.submission import Submission

ENGINES = ("local", "ssh", "ray", "slurm", "sagemaker", "fake")
"""Every engine there is: a folder of that name beside this file, whose `engine.py` has a function `engine(environ, options)`."""

PLACES = tuple(name for name in ENGINES if name != "fake")
"""Those that a job can run in: without the one for tests."""

Handle = Mapping[str, Any]
"""How an engine finds a job that it was given: JSON values, kept in the run's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do, for whoever chooses one."""

    gang: bool
    """It gives all hosts or none."""
    requeues: bool
    """It starts the job anew after a lost host or a preemption."""
    warning_seconds: float | None
    """Between the warning and the end at a time limit or a preemption; None: no warning."""
    shared_files: bool
    """Its hosts see the directories of the submitting machine."""
    outlives_submitter: bool
    """The job goes on without any process of ours on the submitting machine."""
    live_recording: bool
    """The recording can be read here while the job runs."""
    extra: str = ""
    """The optional dependencies to install; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an engine would be asked: JSON values, so that it can be printed, kept and compared. It holds no secrets."""

    engine: str
    """Name of the engine."""
    job: Submission
    """The job that it is made from."""
    document: Mapping[str, Any]
    """What is sent to the engine."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of what is written beside it, such as a batch script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What became of a job, in SageMaker's words whatever the engine."""

    status: Status
    """Status in SageMaker's words."""
    secondary_status: SecondaryStatus
    """Secondary status in SageMaker's words."""
    own_word: str = ""
    """The engine's own state."""
    reason: str = ""
    """Why, in words."""
    exit_code: int | None = None
    """None: not ended, or not known."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The job's hosts -> the engine's."""
    tries: int = 1
    """How often the engine has started it."""

    @property
    def ended(self) -> bool:
        """Whether nothing can follow."""
        return self.status in (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class Engine(Protocol):
    """One place that a job can run. `run_dir` is the run's directory on the submitting machine; an engine may keep files there."""

    @property
    def name(self) -> str:
        """As --engine has it."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def plan(self, job: Submission) -> Request:
        """What would be asked for this job. Pure: reads nothing, sends nothing.

        Raises:  UsageError: the engine cannot run such a job
        """

    def submit(self, request: Request, run_dir: Path) -> Handle:
        """Ask for it, and return as soon as the engine has taken it.

        Raises:  PacelineError: refused, unreachable, no credentials; nothing is left behind
        """

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """What became of it; brings the recording below `run_dir` up to date where the engine can."""

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Lines that the engine itself kept of the job since `cursor` (None: from the beginning), and the next cursor."""

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """End it: SIGTERM and grace for every rank, with `now` at once. A job that has ended is left alone."""


def load(name: str, environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The engine of that name.

    Raises:  UsageError E01: there is none, or what it needs is not installed; U03: an option it does not have
    """
    if name not in ENGINES:
        near = difflib.get_close_matches(name, PLACES, n=1)
        raise UsageError(
            "E01",
            f"there is no engine {name!r}",
            saw=f"the nearest one is {near[0]}" if near else "engines are " + ", ".join(PLACES),
            next=f"paceline submit --engine {near[0] if near else 'local'} ...",
        )
    found: Engine = importlib.import_module(f"paceline.launch.engines.{name}.engine").engine(environ, options)
    return found


def known_options(engine: str, options: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse an option that the engine does not have; an engine calls this first.

    Raises:  UsageError U03: with the nearest spelling
    """
    allowed = sorted(known)
    for name in options:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            raise UsageError(
                "U03",
                f"the engine {engine} has no option {name!r}",
                saw=f"the nearest one is {near[0]}" if near else "options are " + (", ".join(allowed) or "none"),
                next=f"--option {near[0] if near else 'NAME'}={options[name]}",
            )


def missing_extra(engine: str, extra: str, error: ImportError) -> UsageError:
    """What an engine says where its optional dependencies are not installed."""
    return UsageError(
        "E01",
        f"the engine {engine} needs packages that are not installed here",
        saw=str(error),
        next=f"pip install 'paceline[{extra}]'",
    )
