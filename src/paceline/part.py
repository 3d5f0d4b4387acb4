"""What the kernel knows of its parts. A part is a folder below `paceline.parts`, whose `part.py` has a `PART`, or comes with another
package under the entry point `paceline.parts` (an example: examples/dataset_part.py).

The kernel names no part: it asks all that are there, in alphabetical order. A hook returns values; what acts on them is in the kernel.

A `part.py` is loaded where `paceline --help` lists the verbs and while the options of `paceline run` are made. What only a hook needs is
imported in the hook, and so is all of `cli`.
"""

import importlib
import itertools
import pkgutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from paceline.errors import UsageError
from paceline.option import Option

__all__ = ["Companion", "Host", "HostPart", "Part"]

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from paceline.facts import Job, Placement, Run, SecondaryStatus, Status
    from paceline.findings import Rule, Verdict
    from paceline.job_file import JobFile

GROUP = f"{__package__}.parts"
"""The group of entry points by which other packages ship parts; each names a `Part`."""
_T = TypeVar("_T")
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

    job: "Job"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a job, in SageMaker's words for every engine."""

    status: "Status"
    """Status in SageMaker's words."""
    secondary_status: "SecondaryStatus"
    """Secondary status in SageMaker's words."""
    own_word: str = ""
    """The state in the engine's own word."""
    reason: str = ""
    """The reason, for people."""
    exit_code: int | None = None
    """The run's exit code; None: the job has not ended, or the code is not known."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Name of a host in the job -> its name on the engine."""
    tries: int = 1
    """How many times the engine has started the job."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended and its state cannot change any more."""
        from paceline.facts import Status

        return self.status in (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class SubmittedJob(Protocol):
    """A job that was given to an engine. Each method raises PacelineError where the engine cannot be asked."""

    def observe(self) -> Observation:
        """The state of the job. The call also brings the recording up to date, as far as the engine can do that."""

    def logs(self, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Lines that the engine itself has kept since `cursor` (None: from the beginning), and the next cursor."""

    def cancel(self, *, now: bool = False) -> None:
        """End the job, with SIGTERM and a grace for every rank; with `now`, at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """What a part does for one `paceline run`. Each field may be left out."""

    elsewhere: Callable[[], int] | None = None
    """Runs the job in place of this process, which then prepares nothing, and returns the exit code.

    Raises:  UsageError: refused before anything was started
    """
    start_hosts: Callable[["JobFile", Mapping[str, str]], int] | None = None
    """Starts all hosts of the job from this process, with these environment variables, and returns the exit code."""
    beside: Callable[[Path], None] | None = None
    """Starts something beside the run on its first host, and does not wait for it. The directory of the recording is not yet there."""


class HostPart:
    """What a part does on one host. Each hook may be left out."""

    def begins(self, attempt: int, placements: Sequence["Placement"]) -> Iterable[str]:
        """An attempt is prepared. Returns lines for the user.

        Raises:  UsageError: the attempt would fail
        """
        return ()

    def variables(self, placements: Sequence["Placement"], rank: int) -> Mapping[str, str]:
        """Further environment variables of a rank.

        Raises:  UsageError: the job does not fit these hosts
        """
        return {}

    def companion(self, placements: Sequence["Placement"]) -> Companion | None:
        """A process that the ranks of this host need beside them, started before them; None: they need none.

        Raises:  UsageError: the job does not fit these hosts
        """
        return None

    def kept_state(
        self, placements: Sequence["Placement"], resume_step: int | None, hash_seed: int | None, *, keeps_state: bool
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltJobs:
    """The jobs that a file builds, where it is no job itself."""

    lines: Sequence[str]
    """What the user is told of each."""
    verdicts: Sequence["Verdict"]
    """The checks of all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Where a job that is checked is to run, if not on this machine."""

    engine: str
    """Its engine, by which the checks of a job judge."""
    machine: str | None
    """The machine type of every host; None: nobody has said it."""
    hosts: Callable[["JobFile"], Sequence["Verdict"]]
    """Looks at the hosts that the job would get."""


class ExpectedLength(Protocol):
    """What the kernel reads of a plan. Checks of a part may know the whole of it."""

    @property
    def hours(self) -> float | None:
        """Of the whole job; None: not known."""


class CheckPart:
    """What a part does in `paceline check`. Each hook may be left out; `args`: the options of the command line."""

    def built_by(self, path: Path, name: str) -> BuiltJobs | None:
        """The jobs that a file builds, which exists and which messages call `name`; None: it builds none.

        Raises:  UsageError: the file can be no job, and builds none
        """
        return None

    def elsewhere(self, args: Mapping[str, Any], environ: Mapping[str, str]) -> Elsewhere | None:
        """Where the job is to run; None: here.

        Raises:  UsageError: there is no such place
        """
        return None

    def plan(self, args: Mapping[str, Any], job: "Job", machine: str | None) -> ExpectedLength | None:
        """The plan of the job on hosts of this machine type, which the checks of parts read too; None: nobody asks for one.

        Raises:  UsageError: it cannot be asked so
        """
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVerb:
    """A verb of the command line that a part brings."""

    about: str
    """What it does, for the list of verbs."""
    module: str
    """Its module, with a `VERB` and `run(args)`; or the package whose `verb.py` is that module."""
    reads_recordings: bool = False
    """What it answers comes from recordings, which anybody may have written: a value that cannot be read is said, with a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """A form in which `paceline report` writes a run, besides its page."""

    about: str
    """What is written, for the help: Markdown."""
    options: Sequence[Option]
    """The options of `report` that only this format takes."""
    write: Callable[[Namespace], int]
    """Writes the run that the command line names to its `save` (None: the format's own place), and returns the exit code.

    Raises:  UsageError: a value of an option, or the file cannot be written; as find_directories
    """


class Part:
    """A part. Each hook may be left out."""

    def verbs(self) -> Mapping[str, PartVerb]:
        """The part's verbs by their names."""
        return {}

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        """The part's options of a verb: name of the verb's own option -> those behind it. Of `run`, rows that are keys of --set too."""
        return {}

    def job_fields(self, args: Namespace) -> Mapping[str, Any]:
        """Fields of `facts.Job` that the part's options and keys of `run` set.

        Raises:  UsageError: they do not fit together, or not beside others
        """
        return {}

    def on_run(self, args: Namespace) -> RunPart:
        """What the part does for a command line of `paceline run`.

        Raises:  UsageError: the options of the part do not fit together, or not beside others
        """
        return RunPart()

    def report_formats(self) -> Mapping[str, ReportFormat]:
        """The part's words for `paceline report --format`."""
        return {}

    def wrong(self, file: "JobFile") -> Iterable[tuple[str, object]]:
        """Fields of a job file, each with its value, that no job can have.

        Raises:  UsageError: a value of the part, with more to say about it than that
        """
        return ()

    def ports(self, job: "Job") -> tuple[int, ...]:
        """Ports of each host that are kept free for servers of its ranks, in the order of `Placement.ports`; 0: any port.

        Only one part of a job may ask for ports.
        """
        return ()

    def beginning(
        self, job: "Job", run_id: str | None, environ: Mapping[str, str], runs_root: Path
    ) -> Beginning | None:
        """What a run of the job begins with on this host; None: this part does not resume jobs. No process has been started.

        Only one part may resume jobs. `run_id`: None: the run will be given one. `environ`: of the agent. `runs_root`: where runs are
        recorded.

        Raises:  UsageError: the saved state that the job names cannot be used; what a storage raises
        """
        return None

    def goes_on(self, run: "Run", directory: Path) -> GoesOn | None:
        """How a run that broke off goes on; None: not by this part. `directory`: of the recording."""
        return None

    def lines(self) -> Mapping[str, Line]:
        """The part's events, each with what a run prints of it; an empty text: nothing."""
        return {}

    def checks(self) -> Sequence["Rule"]:
        """Checks of a job before it starts; each is asked about a `rules.job_facts.BeforeRun`."""
        return ()

    def in_rank(self) -> str | None:
        """The module of the part inside a rank: below our package, as "parts.comm.in_rank", or another package's own; None: it has none.

        `before_instruments()` and `after_instruments()` of it, where they are there, return patches: module -> what runs right after it was
        executed. `before_program(argv)`, where it is there, is called in a fork right before its program: a script, or "-m" and a module,
        with arguments. It returns the code of the script; None: as Python compiles it. What it raises, the program raises.
        A folder `instruments` beside it has its instruments, a file each.
        `before_forks()`, where it is there, loads in the fork server what ranks need that keep their state.
        A module inside a rank may import the standard library, torch, and by relative imports `worker` and the part's own modules.
        """
        return None

    def submitted(self, run_dir: Path, environ: Mapping[str, str]) -> SubmittedJob | None:
        """The job that was submitted with this directory; None: not by this part."""
        return None

    def command_on(self, place: str, argv: Sequence[str]) -> Sequence[str] | None:
        """The command here that runs a program on another host of a job that something else started; None: not by this part.

        Raises:  UsageError: this part knows such places, and it is none
        """
        return None

    def on_check(self) -> CheckPart:
        """What the part does in `paceline check`."""
        return CheckPart()

    def on_host(self, host: Host) -> HostPart | None:
        """What the part does on a host; None: nothing."""
        return None


def first_answer(answers: Iterable[_T | None]) -> _T | None:
    """The first answer of the parts that is one; the parts behind it are not asked."""
    return next((answer for answer in answers if answer is not None), None)


def rank_modules() -> str:
    """The parts' modules inside a rank, as PACELINE_PARTS has them: in a rank nothing is discovered."""
    return ",".join(name for part in parts() if (name := part.in_rank()) is not None)


def with_options_of_parts(verb: str, options: Sequence[Option]) -> tuple[Option, ...]:
    """The options of a verb, each with those of the parts behind it, which have the part's name as their section where they have none."""
    behind: dict[str, list[Option]] = {}
    for part in parts():
        title = f"of the part {_name(part)}"
        for name, rows in part.options(verb).items():
            behind.setdefault(name, []).extend(replace(row, section=row.section or title) for row in rows)
    return tuple(row for own in options for row in (own, *behind.get(own.name, ())))


def _name(part: Part) -> str:
    """The folder or the module of a part."""
    return type(part).__module__.removesuffix(".part").rpartition(".")[2]


def refuse_wrong(file: "JobFile") -> None:
    """Ask all parts whether a job file has values that no job can have.

    Raises:  UsageError U27, or what a part raises
    """
    for part in parts():
        for name, value in part.wrong(file):
            raise no_job_has(name, value)


def no_job_has(name: str, value: object) -> UsageError:
    """The refusal of a field of a job file."""
    return UsageError(
        "U27", f"no job has {name} {value!r}", saw="job.json", next="paceline help U27; correct the field"
    )


@cache
def parts() -> tuple[Part, ...]:
    """All parts that are there: ours in alphabetical order of their folders, then those that other packages ship.

    Raises:  UsageError E01: a part of another package cannot be loaded
    """
    names = sorted(found.name for found in pkgutil.iter_modules([str(_FOLDER)]) if found.ispkg)
    ours = (importlib.import_module(f"paceline.parts.{name}.part").PART for name in names)
    return (*ours, *_of_other_packages(sys.path))


def _of_other_packages(folders: Iterable[str]) -> Iterator[Part]:
    """The parts that packages in these folders ship. `importlib.metadata` takes longer to load than all of paceline's start, so the
    files are looked through for the group first.
    """
    files = itertools.chain.from_iterable(Path(folder).glob("*-info/entry_points.txt") for folder in folders)
    if not any(_has_our_group(file) for file in files):
        return
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            part = entry.load()
        except Exception as error:
            # Somebody else's code is imported: whatever it raises is said, with the name of its package.
            raise _unusable(entry, f"{type(error).__name__}: {error}") from error
        if not isinstance(part, Part):
            raise _unusable(entry, f"{entry.value} is no paceline.part.Part")
        yield part


def _has_our_group(file: Path) -> bool:
    try:
        return f"[{GROUP}]" in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _unusable(entry: "EntryPoint", saw: str) -> UsageError:
    package = entry.dist.name if entry.dist is not None else "its package"
    return UsageError(
        "E01", f"the part {entry.name} of {package} cannot be used", saw=saw, next=f"pip uninstall {package}"
    )
