"""The interface between a job and the place that starts its agents: SSH hosts, Ray, Slurm, SageMaker, this machine.

An engine starts one `paceline run` per host and reports the job's state. The agent does all other work (supervision, contract,
recording, diagnosis), so this work is the same on every engine.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from paceline.clone import install_command
from paceline.errors import UsageError
from paceline.part import Observation
from paceline.parts.engines.submission import Submission
from paceline.spelling import nearest

ENGINES = ("local", "ssh", "ray", "slurm", "sagemaker", "fake")
"""All engines. Each is a folder of that name beside this file, or the folder `engine` of the part of that name; its `engine.py` has a
function `engine(environ, options)`."""

PLACES = tuple(name for name in ENGINES if name != "fake")
"""The engines that run jobs: all engines except the engine for tests."""

Handle = Mapping[str, Any]
"""The data with which an engine finds a submitted job: JSON values in the run's directory."""


Sent = Callable[[int, int], None]
"""Called with the bytes that are packed or uploaded and with those of all of it, as they grow."""


def nobody_asks(sent_bytes: int, total_bytes: int) -> None:
    """For `Sent`, where nobody wants to know how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request that an engine would send: JSON values that can be printed, kept and compared. It has no secrets."""

    engine: str
    """Name of the engine."""
    job: Submission
    """The job from which the request is made."""
    document: Mapping[str, Any]
    """The document that is sent to the engine."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of each file that is written with it, such as a batch script."""


class Engine(Protocol):
    """One place where a job can run. `run_dir` is the run's directory on the submitting machine. An engine may keep files there."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""

    @property
    def requeues(self) -> bool:
        """The engine starts the job again after a lost host or a preemption."""

    def plan(self, job: Submission) -> Request:
        """The request for this job. Pure: the method reads nothing and sends nothing.

        Raises:  UsageError: the engine cannot run such a job
        """

    def submit(self, request: Request, run_dir: Path, sent: Sent = nobody_asks) -> Handle:
        """Submit the job, and return as soon as the engine has accepted it. `sent`: called while the engine uploads the code, if it does.

        Raises:  PacelineError: the engine refused, is unreachable, or there are no credentials; nothing is left behind
        """

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """The state of the job. The call also updates the recording in `run_dir`, if the engine can do that."""

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Lines of the job that the engine itself has kept since `cursor` (None: from the beginning), and the next cursor."""

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """End the job, with SIGTERM and a grace for every rank; with `now`, at once. For a job that has ended, do nothing."""


def load(name: str, environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The engine of that name.

    Raises:  UsageError E01: there is no such engine, or its dependencies are not installed; U03: the engine has no such option
    """
    if name not in ENGINES:
        near = nearest(name, PLACES)
        there = f"the nearest one is {near}" if near else "engines are " + ", ".join(PLACES)
        raise UsageError(
            "E01",
            f"there is no engine {name!r}",
            saw=f"{there}; a pod of a Job or TrainJob can run `paceline run` (docs/howto/schedulers.md)"
            if name.lower() in ("kubernetes", "k8s", "kubeflow", "eks")
            else there,
            next=f"paceline submit --engine {near or 'local'} ...",
        )
    room = f"{__package__}.{name}"
    if not find_spec(room):
        room = f"paceline.parts.{name}.engine"
    found: Engine = importlib.import_module(f"{room}.engine").engine(environ, options)
    return found


def known_options(engine: str, options: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse an option that the engine does not have. An engine calls this first.

    Raises:  UsageError U03: there is no such option; the error names the most similar one
    """
    allowed = sorted(known)
    for name in options:
        if name not in allowed:
            near = nearest(name, allowed)
            raise UsageError(
                "U03",
                f"the engine {engine} has no option {name!r}",
                saw=f"the nearest one is {near}" if near else "options are " + (", ".join(allowed) or "none"),
                next=f"--option {near}={options[name]} instead of --option {name}={options[name]}"
                if near
                else f"leave --option {name}={options[name]} out",
            )


def missing_extra(engine: str, extra: str, error: ImportError) -> UsageError:
    """The error of an engine whose optional dependencies are not installed."""
    return UsageError(
        "E01",
        f"the engine {engine} needs packages that are not installed here",
        saw=str(error),
        next=install_command(extra),
    )
