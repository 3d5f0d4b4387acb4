"""A job as data: `job.json`, schema paceline.job/1. Whoever submits a job writes it, and `paceline run --job FILE` reads it on the host."""

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
    """What the program that starts an agent knows of the host. It goes from process to process of one machine and is never kept."""

    leash: int | None = None
    """A descriptor that ends when whoever started this agent is gone."""
    quiet: bool = False
    """The terminal is another agent's: only what went wrong is printed."""
    urls_are_checked: bool = False
    """Every URL of the job has been asked for already."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Name -> address of every host that shares this machine."""
    translated: bool = False
    """Nothing else resolves these names: ranks translate them themselves."""
    environment: dict[str, str] = field(default_factory=dict)
    """Further variables of every rank."""
    network_interface: str | None = None
    """The interface that leads to the other hosts."""
    events: tuple[dict[str, Any], ...] = ()
    """What happened before there was a recording; the first host records it."""
    relays: tuple[tuple[int, int], ...] = ()
    """Pipes that other agents' output comes from, each with the descriptor that it is written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One job as the agent of a host is given it. What only the host can know is filled in there."""

    job: Job
    """The job. Its `ranks_per_host` and `shutdown_timeout_seconds` are filled in on the host from the two fields below."""
    ranks_per_host: str = "1"
    """A number, or gpu, cpu, auto: counted on the host."""
    shutdown_timeout_seconds: float | None = None
    """Between SIGTERM and SIGKILL after a failure. None: TORCH_ELASTIC_SHUTDOWN_TIMEOUT of the host, else 30."""
    run_id: str | None = None
    """Id of the recording. None: a new one."""
    run_dir: str | None = None
    """The directory below which recordings go. None: .paceline/runs."""
    run_dir_mode: int | None = None
    """Permissions of the recording's directory. None: its user's alone."""
    token_file: str | None = None
    """The file with the secret that the agents share. None: PACELINE_TOKEN, else the user's own."""
    no_token: bool = False
    """Hosts are taken in without a token."""
    progress: str = "auto"
    """Status line: auto, plain or off."""
    color: str = "auto"
    """Colour of paceline's own lines: auto, always or never."""
    json: bool = False
    """paceline's own answer is printed as JSON."""
    command: tuple[str, ...] = ()
    """The command line that the job was described by, without secrets, for the recording."""
    setup: HostSetup = field(default_factory=HostSetup)
    """What the program that starts the agent knows of the host."""


def job_document(file: JobFile) -> dict[str, Any]:
    """The file as a JSON object; what is as its default is left out.

    Holds:   job_file_of(job_document(file), "") == file
    """
    document: dict[str, Any] = json.loads(job_text(file))
    return document


def job_text(file: JobFile) -> str:
    """The file as it is written. Python's own JSON keeps NaN and whole numbers of any length in hyperparameters."""
    return json.dumps({"schema": SCHEMA, **_without_defaults(file)}, indent=1) + "\n"


@contextmanager
def job_descriptor(file: JobFile) -> Iterator[tuple[int, list[str]]]:
    """The file in memory, for a process that is started within the block with this descriptor and, as its last arguments, these."""
    with os.fdopen(os.memfd_create("job.json"), "w") as memory:
        memory.write(job_text(file))
        memory.flush()
        yield memory.fileno(), ["run", *(["--json"] if file.json else []), "--job", f"/proc/self/fd/{memory.fileno()}"]


def read_job_file(path: str) -> JobFile:
    """The job that lies there.

    Raises:  UsageError U27: it cannot be read, or is no job file
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise _unusable(path, str(error.strerror), f"ls -l {path}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is no JSON: {error}") from error
    return job_file_of(document, path)


def job_file_of(document: object, source: str) -> JobFile:
    """The job that a JSON object describes. `source`: where it is from, for people.

    Raises:  UsageError U27: it is no job file
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
    """The first field that was told and that what was made of it does not have."""
    known = {one.name: getattr(made, one.name) for one in fields(made)} if is_dataclass(made) else {}
    for name, value in told.items():
        if name not in known:
            return name
        if is_dataclass(known[name]) and (deeper := _unknown(value, known[name])):
            return f"{name}.{deeper}"
    return None


def _unusable(source: str, saw: str, next: str = "paceline explain U27") -> UsageError:
    return UsageError("U27", f"{source} is no job that can be run", saw=saw, next=next)
