"""Finds mistakes in a script and a command line that are about to run, for a few lines. A script that is not Python is refused.

The last answer for a script is cached, with the hashes of its files, so a second run of the same files parses none of them.
"""

import gc
import hashlib
import json
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.atomic_write import write_whole
from paceline.errors import UsageError
from paceline.facts import Job, ProgramKind
from paceline.probes.torch_version import read_torch
from paceline.user_folders import user_cache_folder

_NO_PYTHON = "K06"
_MOST_NAMED = 2
_LONGEST_WHAT = 160
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What was found before the run."""

    text: str = ""
    """The lines to print; empty if there are no findings."""
    findings: tuple[Mapping[str, str], ...] = ()
    """All findings, for the recording: `code`, `place` (FILE:LINE; empty: it is about the command line) and `what`."""


def check_source(job: Job, gpu_count: int | None, directory: Path, *, master_addr: str | None = None) -> SourceCheck:
    """Look at the script and the command line. `master_addr`: where the command line lets hosts meet.

    Holds:   one line for each mistake in the command line, with the change; for mistakes in the files two, and one with the command

    Raises:  UsageError K06: Python cannot parse the script, or a file that it certainly imports
    """
    file = user_cache_folder() / "checks" / f"{_digest([str(directory), job.program.kind, job.program.target])}.json"
    facts = _digest(_facts(job, gpu_count, master_addr))
    found = _kept(file, facts, directory)
    if found is None:
        try:
            with _without_collections():
                found = {"facts": facts, **_looked(job, gpu_count, directory, master_addr)}
        except Exception as error:
            # Only a K06 may keep a job from starting, so a mistake in a check must not.
            return SourceCheck(
                f"paceline  check  could not look at {job.program.target}: {type(error).__name__}: {error}"
            )
        _keep(file, found)
    for one in found["findings"]:
        if one["code"] == _NO_PYTHON:
            raise UsageError(_NO_PYTHON, one["what"], saw=one["saw"], next=one["next"])
    of_the_command = [one for one in found["findings"] if not one["place"]]
    lines = [f"paceline  check  {one['code']}: {one['what']}; {one['next']}" for one in of_the_command]
    in_files = [one for one in found["findings"] if one["place"]]
    return SourceCheck(
        "\n".join([*lines, *(_lines_of_files(in_files, job) if in_files else ())]),
        tuple({"code": one["code"], "place": one["place"], "what": _what(one)} for one in found["findings"]),
    )


def own_name_text(
    job: Job, gpu_count: int | None, environ: Mapping[str, str], own_address: Callable[[], str | None]
) -> str:
    """A line for a host whose own name is no address for the others, where gloo would tell it to them; else empty."""
    from paceline.probes.ports import is_loopback
    from paceline.rules.host_facts import HostFacts, HostsBefore
    from paceline.rules.hosts import k32_own_name

    # NCCL asks the interfaces and not the name. Agents that meet on a loopback address are on one machine.
    if gpu_count or "GLOO_SOCKET_IFNAME" in environ or is_loopback(job.master_addr):
        return ""
    host = HostFacts(name=socket.gethostname(), own_address=own_address())
    found = k32_own_name.find(HostsBefore(hosts=(host,), host_count=job.max_hosts))
    return "\n".join(f"paceline  check  {one.code}: {one.what}; {one.next}" for one in found)


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection in the block. The nodes of a syntax tree are many, and none is garbage before the check has ended."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _facts(job: Job, gpu_count: int | None, master_addr: str | None) -> list[Any]:
    """The inputs of the answer other than the files. Only their hash is stored: arguments and hyperparameters may be secret."""
    contract = job.contract
    shape = [job.max_hosts, job.ranks_per_host, gpu_count, master_addr]
    own = [list(job.program.arguments), contract.hyperparameters, contract.profile, read_torch().version]
    return [__version__, *shape, *own, contract.opt_ml or contract.shown_at_opt_ml]


def _looked(job: Job, gpu_count: int | None, directory: Path, master_addr: str | None) -> dict[str, Any]:
    from paceline.findings import judge
    from paceline.rules import script as parsed
    from paceline.rules.checks import k20_option_behind_script, k21_loopback_master
    from paceline.rules.job_facts import BeforeRun, findings_of, source_verdicts
    from paceline.rules.sources import read_sources

    script, path, imported = read_sources(job.program, directory)
    if script is None:
        return {"files": {}, "findings": []}
    before = BeforeRun(
        hosts=job.max_hosts,
        ranks_per_host=job.ranks_per_host,
        gpus_per_host=gpu_count,
        master_addr=master_addr,
        launcher="torch_distributed",
        torch_version=read_torch().version,
        hyperparameters=job.contract.hyperparameters,
        profile=job.contract.profile,
        arguments=job.program.arguments,
        has_opt_ml=job.contract.opt_ml or job.contract.shown_at_opt_ml,
        script=script,
        script_path=path,
        imported=imported,
    )
    of_the_command = judge((k20_option_behind_script.RULE, k21_loopback_master.RULE), before)
    findings = [
        {"code": one.code, "severity": str(one.severity), "what": one.what, "saw": one.saw, "next": one.next}
        | {"place": f"{one.file}:{one.line}" if one.line else one.file or ""}
        for one in findings_of((*of_the_command, *source_verdicts(before)))
    ]
    # The launcher lives as long as the job, and needs none of the parsed files again.
    parsed.parse.cache_clear()
    return {"files": _hashes([path, *(file.path for file in imported)], directory), "findings": findings}


def _what(finding: Mapping[str, str]) -> str:
    """What a finding says, without the place that it begins with."""
    return finding["what"].removeprefix(f"{finding['place']}: ")


def _lines_of_files(findings: list[Mapping[str, str]], job: Job) -> Iterator[str]:
    """What the first ones are, and the command that says the rest."""
    for one in findings[:_MOST_NAMED]:
        yield f"paceline  check  {one['code']} {one['place']}: {_what(one)[:_LONGEST_WHAT]}"
    more = len(findings) - _MOST_NAMED
    ranks = ("--nproc-per-node", str(job.ranks_per_host)) if job.ranks_per_host > 1 else ()
    hosts = ("--nnodes", str(job.max_hosts)) if job.max_hosts > 1 else ()
    module = ("-m",) if job.program.kind is ProgramKind.MODULE else ()
    command = ["paceline", "check", *hosts, *ranks, *module, job.program.target, *job.program.arguments]
    yield f"paceline  check  {f'and {more} more' if more > 0 else 'what to do'}: {shlex.join(command)}"


def _kept(file: Path, facts: str, directory: Path) -> dict[str, Any] | None:
    """The cached answer, if it was given for these facts and each of its files is unchanged."""
    try:
        with file.open("rb") as stream:
            found: dict[str, Any] = json.loads(stream.read(_MOST_BYTES))
        is_current = found["facts"] == facts and found["files"] and _hashes(found["files"], directory) == found["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if is_current else None


def _keep(file: Path, found: Mapping[str, Any]) -> None:
    if not found["files"]:
        return
    # If there is no space, or no home directory, the next run checks again.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, json.dumps(found), mode=0o600)


def _hashes(files: Iterable[str], directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in files}


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts, default=str).encode(errors="replace")).hexdigest()[:24]
