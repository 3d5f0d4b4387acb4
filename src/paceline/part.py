"""What the kernel knows of its parts. A part is a folder below `paceline.parts`, whose `part.py` has a `PART`.

The kernel names no part: it asks all that are there, in alphabetical order. A hook returns values; what acts on them is in the kernel.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from paceline.errors import UsageError
from paceline.facts import Job, Placement, Run
from paceline.job_file import JobFile

_FOLDER = Path(__file__).parent / "parts"
Line = Callable[[Mapping[str, Any]], str]
"""What a run prints of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a run begins with. A part may have a class of its own below this one, with more for its `on_host`."""

    step: int | None = None
    """The saved step from which the ranks go on; None: they begin at the start of the script."""
    is_named: bool = True
    """The user named the saved state, and does not want to train from the start instead."""
    hash_seed: int | None = None
    """PYTHONHASHSEED of the ranks that had the saved state; None: not known."""
    notices: tuple[str, ...] = ()
    """What has to be said about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of a job, for its parts."""

    job: Job
    """The job."""
    run_id: str
    """Id of the run."""
    command: tuple[str, ...]
    """The command line that started the job, without secrets."""
    begins: Beginning
    """What the run begins with."""
    directory: Path
    """The run's recording on this host."""
    name: str
    """Name of the host in the run."""
    shares_machine: bool
    """Other hosts of the job run on this machine too."""
    environ: Mapping[str, str]
    """Environment variables of the agent, which ranks inherit."""
    addresses: Mapping[str, str]
    """Host name -> address, for names that the resolver does not know; empty: the resolver knows all names."""
    python: str
    """The Python interpreter of the ranks."""
    lasting: set[int]
    """Process ids that are no leftovers of an attempt and get no signals. A part adds a process of its own that it ends itself."""
    say: Callable[[str], None]
    """Tells the user a line, at any time until `HostPart.ended` returns."""


class KeptState(Protocol):
    """The state of a host's ranks, kept outside of them. Ranks are named by their number on this host where nothing else is said."""

    def descriptor(self, local_rank: int) -> int:
        """The descriptor of the memory in which a rank keeps its state."""
        ...

    def may_go_on(self, step_counts: Mapping[int, int]) -> bool:
        """Whether every rank keeps its state, or may still begin to.

        `step_counts`: local rank -> the steps that it has made in this attempt.
        """
        ...

    def stopped(self, local_rank: int) -> bool:
        """Whether the rank stopped because what it found is not what was kept."""
        ...

    def not_put_back(self, local_rank: int) -> bool:
        """Whether the rank has said in this attempt that its kept state cannot be put back."""
        ...

    def first_step_ns(self, resume_step: int) -> int | None:
        """When the last rank had made its first step after the resume, in Unix ns; None: a rank has not made it yet."""
        ...

    def kept(self, first_rank: int) -> dict[int, list[int]] | None:
        """Global rank -> the steps whose state is kept, the newest first; None: a rank keeps none. No rank may be alive."""
        ...

    def damaged(self, first_rank: int) -> list[tuple[int, int]]:
        """Global rank and step of each state that is there and damaged. No rank may be alive."""
        ...

    def step_count(self) -> int:
        """The greatest number of steps that a rank has made, those before a resume included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A process beside the ranks of a host. If it ends before the ranks have ended, the host has failed."""

    name: str
    """What it is, such as "parameter server". Its output goes to a file of this name beside the logs of the attempt."""
    argv: Sequence[str]
    """Its command line."""
    environment: Mapping[str, str]
    """Its variables, beside those of the first rank of the host that do not name a rank."""
    serves_until: str = ""
    """If it is needed when the ranks of its host have ended: until when, as in "rank 0 has ended"; "": it ends with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoesOn:
    """How a run that broke off goes on."""

    step: int
    """From which step."""
    command: str
    """By which command line."""


class HostPart:
    """What a part does on one host. Each hook may be left out."""

    def begins(self, attempt: int, placements: Sequence[Placement]) -> Iterable[str]:
        """An attempt is prepared. Returns lines for the user.

        Raises:  UsageError: the attempt would fail
        """
        return ()

    def variables(self, placements: Sequence[Placement], rank: int) -> Mapping[str, str]:
        """Further environment variables of a rank.

        Raises:  UsageError: the job does not fit these hosts
        """
        return {}

    def companion(self, placements: Sequence[Placement]) -> Companion | None:
        """A process that the ranks of this host need beside them, started before them; None: they need none.

        Raises:  UsageError: the job does not fit these hosts
        """
        return None

    def kept_state(
        self, placements: Sequence[Placement], resume_step: int | None, hash_seed: int | None, *, keeps_state: bool
    ) -> KeptState | None:
        """Where the ranks of an attempt that starts now keep their state; None: not by this part. No rank is alive.

        Only one part may keep the state of a job. `resume_step`: the kept step at which the ranks go on; None: they begin at the start of
        the script. `hash_seed`: their PYTHONHASHSEED. `keeps_state`: False: neither this attempt nor a later one keeps any.

        Raises:  OSError: memory cannot be given back; LookupError: a rank has not kept `resume_step`
        """
        return None

    def argv(self, argv: Sequence[str]) -> Sequence[str]:
        """What a rank executes that is a new process, not a fork. `argv`: the same without this part."""
        return argv

    def ranks_started(self) -> None:
        """The ranks of an attempt have been started."""

    def end_is_near(self) -> None:
        """Ranks are asked to end, or the job will be ended soon: what is to be saved is saved now. It may not wait."""

    async def ended(self, exit_code: int) -> None:
        """The job has ended, and no rank is left. `exit_code`: the job's."""


class Part:
    """A part. Each hook may be left out."""

    def wrong(self, file: JobFile) -> Iterable[tuple[str, object]]:
        """Fields of a job file, each with its value, that no job can have.

        Raises:  UsageError: a value of the part, with more to say about it than that
        """
        return ()

    def ports(self, job: Job) -> tuple[int, ...]:
        """Ports of each host that are kept free for servers of its ranks, in the order of `Placement.ports`; 0: any port.

        Only one part of a job may ask for ports.
        """
        return ()

    def beginning(self, job: Job, run_id: str | None, environ: Mapping[str, str], runs_root: Path) -> Beginning | None:
        """What a run of the job begins with on this host; None: this part does not resume jobs. No process has been started.

        Only one part may resume jobs. `run_id`: None: the run will be given one. `environ`: of the agent. `runs_root`: where runs are
        recorded.

        Raises:  UsageError: the saved state that the job names cannot be used; what a storage raises
        """
        return None

    def goes_on(self, run: Run, directory: Path) -> GoesOn | None:
        """How a run that broke off goes on; None: not by this part. `directory`: of the recording."""
        return None

    def lines(self) -> Mapping[str, Line]:
        """The part's events, each with what a run prints of it; an empty text: nothing."""
        return {}

    def in_rank(self) -> str | None:
        """The module of the part inside a rank, below our package, as "parts.comm.in_rank"; None: it has none.

        `before_instruments()` and `after_instruments()` of it, where they are there, return patches: module -> what runs right after it was
        executed. It may import the standard library, torch, and by relative imports `worker` and the part's own modules.
        """
        return None

    def on_host(self, host: Host) -> HostPart | None:
        """What the part does on a host; None: nothing."""
        return None


def rank_modules() -> str:
    """The parts' modules inside a rank, as PACELINE_PARTS has them: in a rank nothing is discovered."""
    return ",".join(name for part in parts() if (name := part.in_rank()) is not None)


def refuse_wrong(file: JobFile) -> None:
    """Ask all parts whether a job file has values that no job can have.

    Raises:  UsageError U27, or what a part raises
    """
    for part in parts():
        for name, value in part.wrong(file):
            raise no_job_has(name, value)


def no_job_has(name: str, value: object) -> UsageError:
    """The refusal of a field of a job file."""
    return UsageError(
        "U27", f"no job has {name} {value!r}", saw="job.json", next="paceline explain U27; correct the field"
    )


@cache
def parts() -> tuple[Part, ...]:
    """All parts that are there, in alphabetical order of their folders."""
    names = sorted(found.name for found in pkgutil.iter_modules([str(_FOLDER)]) if found.ispkg)
    return tuple(importlib.import_module(f"paceline.parts.{name}.part").PART for name in names)
