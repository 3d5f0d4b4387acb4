"""A job as data: `job.json`, schema paceline.job/1. The submitting program writes it; `paceline run --job FILE` reads it on the host."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import UsageError
from paceline.facts import Job

SCHEMA = "paceline.job/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSetup:
    """The facts about the host from the program that starts the agent. They pass between processes of one machine and are never stored."""

    leash: int | None = None
    """The lifeline: a descriptor that reaches end of file when the process that started this agent has ended."""
    quiet: bool = False
    """Whether another agent owns the terminal: then only failures are printed."""
    urls_are_checked: bool = False
    """Whether the existence of every URL of the job has already been checked."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Name -> address of every host that shares this machine."""
    translated: bool = False
    """Whether ranks must translate these names themselves, because nothing else resolves them."""
    environment: dict[str, str] = field(default_factory=dict)
    """Additional environment variables of every rank."""
    network_interface: str | None = None
    """The network interface that leads to the other hosts."""
    own_mounts: bool = False
    """Whether the agent has mounts of its own, so that nothing on the machine sees what the agent mounts."""
    events: tuple[dict[str, Any], ...] = ()
    """Events from before there was a recording. The first host records them."""
    relays: tuple[tuple[int, int], ...] = ()
    """Pipes with the output of other agents, each with the descriptor to write the output to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One job in the form for the agent of a host. The agent fills in what only the host can know."""

    job: Job
    """The job. On the host, its `ranks_per_host` and `shutdown_timeout_seconds` are filled in from the two fields below."""
    ranks_per_host: str = "1"
    """A number, or gpu, cpu, auto, which the host counts."""
    shutdown_timeout_seconds: float | None = None
    """Time between SIGTERM and SIGKILL after a failure. None: the host's TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30 s."""
    run_id: str | None = None
    """Id of the recording. None: a new id."""
    run_dir: str | None = None
    """The directory that contains the recordings. None: .paceline/runs."""
    run_dir_mode: int | None = None
    """Permissions of the recording's directory. None: only its user has access."""
    token_file: str | None = None
    """The file with the secret that the agents share. None: PACELINE_TOKEN, else the user's own file."""
    no_token: bool = False
    """Whether hosts may join without a token."""
    progress: str = "auto"
    """Status line: auto, plain or off."""
    color: str = "auto"
    """Colour of paceline's own lines: auto, always or never."""
    json: bool = False
    """Whether paceline prints its own answer as JSON."""
    json_file: str | None = None
    """The file to which the first host's agent writes that answer as well. None: no file."""
    plan: dict[str, Any] | None = None
    """What `paceline plan --json` said of the job, kept with its recording. None: there is no plan."""
    command: tuple[str, ...] = ()
    """The command line that described the job, without secrets, for the recording."""
    setup: HostSetup = field(default_factory=HostSetup)
    """The facts about the host from the program that starts the agent."""


def job_document(file: JobFile) -> dict[str, Any]:
    """The file as a JSON object. Fields with their default are left out.

    Holds:   job_file_of(job_document(file), "") == file
    """
    document: dict[str, Any] = json.loads(job_text(file))
    return document


def job_text(file: JobFile) -> str:
    """The text of the file. Python's own JSON keeps NaN and whole numbers of any length in hyperparameters."""
    return json.dumps({"schema": SCHEMA, **_without_defaults(file)}, indent=1) + "\n"


@contextmanager
def job_descriptor(file: JobFile) -> Iterator[tuple[int, list[str]]]:
    """The file in memory, for a process that is started within the block with this descriptor and with these last arguments."""
    with os.fdopen(os.memfd_create("job.json"), "w") as memory:
        memory.write(job_text(file))
        memory.flush()
        yield memory.fileno(), ["run", *(["--json"] if file.json else []), "--job", f"/proc/self/fd/{memory.fileno()}"]


def read_job_file(path: str) -> JobFile:
    """The job in the file at `path`.

    Raises:  UsageError U27: the file cannot be read, or is not a job file
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise _unusable(path, str(error.strerror), f"ls -l {path}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is not valid JSON: {error}") from error
    return job_file_of(document, path)


def job_file_of(document: object, source: str) -> JobFile:
    """The job that a JSON object describes. `source`: where the object comes from, for messages.

    Raises:  UsageError U27: it is not a job file
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise _unusable(source, f"its schema is {found!r}; {SCHEMA!r} is wanted")
    told = {name: value for name, value in document.items() if name != "schema"}
    try:
        file = msgspec.convert(told, JobFile, str_keys=True)
    except msgspec.ValidationError as error:
        raise _unusable(source, str(error)) from error
    if unknown := _unknown(told, file):
        raise _unusable(source, f"there is no field {unknown!r} in it")
    return file


def _without_defaults(value: Any) -> Any:
    if not is_dataclass(value):
        return msgspec.to_builtins(value, str_keys=True)
    return {
        one.name: _without_defaults(said)
        for one in fields(value)
        if (said := getattr(value, one.name)) != _default(one)
    }


def _default(one: "Field[Any]") -> object:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _unknown(told: Mapping[str, Any], made: object) -> str | None:
    """The first field of the document that the object made from it does not have."""
    known = {one.name: getattr(made, one.name) for one in fields(made)} if is_dataclass(made) else {}
    for name, value in told.items():
        if name not in known:
            return name
        if is_dataclass(known[name]) and (deeper := _unknown(value, known[name])):
            return f"{name}.{deeper}"
    return None


def _unusable(source: str, saw: str, next: str = "paceline help U27") -> UsageError:
    return UsageError("U27", f"{source} is not a job file that paceline can run", saw=saw, next=next)
