"""Prints one line about the findings of the source checks for a script that is about to run. A script that is not Python is refused.

The answer is cached under the hashes of its files, so a second run of the same files parses none of them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.atomic_write import write_whole
from paceline.errors import UsageError
from paceline.facts import Job
from paceline.user_folders import user_cache_folder

_NO_PYTHON = "K06"
_MOST_NAMED = 4
_MOST_BYTES = 1 << 20


def warning_line(job: Job, gpu_count: int | None, directory: Path) -> str:
    """The line to print; empty if there are no findings.

    Raises:  UsageError K06: Python cannot parse the script, or a file that it certainly imports
    """
    facts = _facts(job, gpu_count, directory)
    file = user_cache_folder() / "checks" / f"{_digest(facts)}.json"
    found = _kept(file, directory)
    if found is None:
        found = _looked(job, gpu_count, directory)
        _keep(file, found)
    for one in found["findings"]:
        if one["code"] == _NO_PYTHON:
            raise UsageError(_NO_PYTHON, one["what"], saw=one["saw"], next=one["next"])
    return _line(found["findings"], job)


def _facts(job: Job, gpu_count: int | None, directory: Path) -> list[Any]:
    """The inputs of the answer other than the files. Only their hash is stored: arguments and hyperparameters may be secret."""
    contract = job.contract
    own = [
        job.program.kind,
        job.program.target,
        list(job.program.arguments),
        job.max_hosts,
        job.ranks_per_host,
        gpu_count,
    ]
    return [__version__, str(directory), *own, contract.hyperparameters, contract.profile, contract.opt_ml]


def _looked(job: Job, gpu_count: int | None, directory: Path) -> dict[str, Any]:
    from paceline.rules.job_facts import BeforeRun, findings_of, source_verdicts
    from paceline.rules.sources import read_sources

    script, path, imported = read_sources(job.program, directory)
    if script is None:
        return {"files": {}, "findings": []}
    before = BeforeRun(
        hosts=job.max_hosts,
        ranks_per_host=job.ranks_per_host,
        gpus_per_host=gpu_count,
        launcher="torch_distributed",
        hyperparameters=job.contract.hyperparameters,
        profile=job.contract.profile,
        arguments=job.program.arguments,
        has_opt_ml=job.contract.opt_ml,
        script=script,
        script_path=path,
        imported=imported,
    )
    findings = [
        {"code": one.code, "severity": str(one.severity), "what": one.what, "saw": one.saw, "next": one.next}
        | {"place": f"{one.file}:{one.line}" if one.line else one.file}
        for one in findings_of(source_verdicts(before))
    ]
    return {"files": _hashes([path, *(file.path for file in imported)], directory), "findings": findings}


def _line(findings: list[Mapping[str, str]], job: Job) -> str:
    if not findings:
        return ""
    named = ", ".join(f"{one['code']} {one['place']}" for one in findings[:_MOST_NAMED])
    more = f" and {len(findings) - _MOST_NAMED} more" if len(findings) > _MOST_NAMED else ""
    ranks = f" --nproc-per-node {job.ranks_per_host}" if job.ranks_per_host > 1 else ""
    return f"paceline  check  {named}{more}: paceline check{ranks} {job.program.target}"


def _kept(file: Path, directory: Path) -> dict[str, Any] | None:
    """The cached answer, if each of its files is unchanged."""
    try:
        with file.open("rb") as stream:
            found: dict[str, Any] = json.loads(stream.read(_MOST_BYTES))
        return found if found["files"] and _hashes(found["files"], directory) == found["files"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(file: Path, found: Mapping[str, Any]) -> None:
    # If there is no space, or no home directory, the next run checks again.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, json.dumps(found), mode=0o600)


def _hashes(files: Iterable[str], directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in files}


def _digest(facts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(facts, default=str).encode(errors="replace")).hexdigest()[:24]
