"""A submitted job: the request to the engine, and its acceptance."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paceline.spelling import plural
from paceline.storage.urls import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A job that an engine has accepted, as the user sees it."""

    run_id: str
    """Id of the run."""
    engine: str
    """Name of the engine."""
    hosts: int
    """Number of hosts."""
    ranks_per_host: str
    """Ranks on each host, as for --nproc-per-node."""
    directory: str
    """The run's directory."""
    code_directory: str = ""
    """The directory whose code was shipped."""
    code_file_count: int | None = None
    """Number of files that were shipped."""
    code_bytes: int | None = None
    """Their size."""
    commit: str | None = None
    """Git's commit of the code."""
    dirty: tuple[str, ...] = ()
    """Files that differ from that commit."""


def request_text(engine: str, document: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The request as it would be sent, then the files beside it."""
    parts = [f"# {engine}: the request", json.dumps(_written(dict(document)), indent=2)]
    for name, text in files.items():
        parts += [f"# {name}", shown(text.rstrip("\n"))]
    return "\n".join(parts)


def request_facts(run_id: str, engine: str, document: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """The same for a program."""
    return {
        "schema": "paceline.request/2",
        "run_id": run_id,
        "engine": engine,
        "document": dict(document),
        "files": dict(files),
    }


def submitted_text(taken: Taken) -> str:
    """What was shipped where, and what to type next."""
    hosts = f"{taken.hosts} {plural(taken.hosts, 'host')} x {taken.ranks_per_host} rank{'' if taken.ranks_per_host == '1' else 's'}"
    lines = [f"submitted  {taken.run_id}  {taken.engine}  {hosts}"]
    if taken.code_file_count is not None:
        lines.append(f"  code     {_code(taken)}")
    lines.append(f"  logs     paceline logs -f {taken.run_id}   {taken.directory}")
    return "\n".join(lines)


def submitted_facts(taken: Taken) -> dict[str, Any]:
    """The same for a program."""
    return {"schema": "paceline.submitted/2", **asdict(taken)}


def _written(value: Any) -> Any:
    """Command lines as a user types them, URLs without user and password."""
    if isinstance(value, dict):
        return {name: shown(shlex.join(item)) if name == "argv" else _written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return shown(value) if isinstance(value, str) else value


def _code(taken: Taken) -> str:
    size = taken.code_bytes or 0
    written = f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"
    text = f"{taken.code_file_count} {plural(taken.code_file_count, 'file')}, {written} of {taken.code_directory}"
    if taken.commit is None:
        return text
    changed = f", {len(taken.dirty)} changed since" if taken.dirty else ""
    return f"{text} (git {taken.commit[:10]}{changed})"
