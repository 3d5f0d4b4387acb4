"""Keeps what was seen of a job as a run, for `why`, `stack`, `report`, `web` and a colleague. It is judged anew each time it is read."""

import errno
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from paceline import __version__
from paceline.attach.evidence import HostEvidence
from paceline.attach.judge import Judged, judge
from paceline.facts import Run, SecondaryStatus, Status
from paceline.findings import Cause
from paceline.recording.fact_json import fact_or_none, to_plain
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import create_run, read_document, register, runs_root, write_run
from paceline.recording.writer import EventLog, write_json
from paceline.user_folders import user_state_folder

_HOST_SCHEMA = "paceline.host/2"
_MOST_BYTES = 64 << 20
REASON = "it was looked at once, from outside: what became of the job is not known"


def recordings_root() -> Path:
    """Where such runs are kept: with the runs of this directory; root's in root's own folder, never in a directory of somebody else.

    Raises:  OSError: the folder cannot be made
    """
    if os.geteuid() != 0:
        return runs_root()
    root = user_state_folder() / "attached"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def record(hosts: Sequence[HostEvidence], command: Sequence[str], causes: Sequence[Cause], root: Path) -> Judged:
    """Write a run of what these hosts have seen, and judge it. `command`: what was typed.

    Raises:  OSError: it cannot be written
    """
    run_id = f"a-{os.urandom(3).hex()}"
    directory = create_run(root, run_id)
    run = Run(
        id=run_id,
        name=hosts[0].job,
        directory=str(directory.path.resolve()),
        command=tuple(command),
        started_ns=time.time_ns(),
        first_host=hosts[0].host,
        version=__version__,
    )
    write_run(run)
    judged = judge(hosts, run, causes)
    log = EventLog(directory.events_file)
    log.record("run_started", host=run.first_host, run=run_id, name=run.name, directory=run.directory)
    for event in judged.events:
        log.append(event)
    for finding in judged.diagnosis.findings:
        log.record("cause", attempt=0, finding=to_plain(finding))
    ended = {"status": str(Status.STOPPED), "secondary_status": str(SecondaryStatus.STOPPED)}
    log.record("run_finished", exit_code=None, reason=REASON, exits=[], **ended)
    log.close()
    if log.lost:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory.events_file))
    for one in hosts:
        directory.host(one.host).mkdir(parents=True)
        write_json(directory.host_file(one.host), {"schema": _HOST_SCHEMA, "host": one.host, "machine": one.host})
        write_json(directory.attached_file(one.host), to_plain(one))
    register(run_id, directory.path)
    return judged


def recorded(directories: Iterable[RunDirectory]) -> tuple[HostEvidence, ...]:
    """What hosts have seen, from one or more such recordings; empty: these are recordings of another kind. A damaged file is left out."""
    files = sorted(file for directory in directories for file in directory.path.glob("hosts/*/attached.json"))
    found = (fact_or_none(HostEvidence, read_document(file, _MOST_BYTES)) for file in files)
    return tuple(one for one in found if one is not None and one.rounds)


def judge_again(hosts: Sequence[HostEvidence], run: Run, causes: Sequence[Cause]) -> Judged:
    """The same judgement as when the job was looked at, or of several hosts' recordings together."""
    return judge(hosts, replace(run, status=Status.IN_PROGRESS), causes)
