"""Looks at jobs of this host and writes what it has seen to stdout, as JSON: `python -m paceline.attach.look_here REQUEST`.

It is a process of its own, which whoever asked gives up after a while, because what it reads may keep it for ever.
"""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from paceline.attach.collect import collect, identity_of
from paceline.attach.evidence import HostEvidence
from paceline.attach.jobs import FoundJob, FoundJobs, find_jobs
from paceline.attach.no_job import NoJob, why_no_job
from paceline.probes.blocking_reads import BoundedReader

_READ_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHere:
    """A job on this host, in short."""

    name: str
    """Its script."""
    pid: int
    """Its launcher, or its first rank: a number with which it can be asked for."""
    launcher: str
    """What started it; empty: not known."""
    ranks: int
    """Ranks here."""
    world_size: int | None
    """Ranks of the job; None: not known."""
    user: int
    """Uid of its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedHere:
    """What a look at this host has given."""

    jobs: tuple[JobHere, ...] = ()
    """The jobs that were asked for."""
    evidence: tuple[HostEvidence, ...] = ()
    """What was seen of each."""
    none: tuple[NoJob, ...] = ()
    """Of each number that belongs to no job, why."""
    notes: tuple[str, ...] = ()
    """What could not be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """What is asked for."""

    pids: tuple[int, ...] = ()
    """Of these processes; empty: all jobs."""
    everybody: bool = False
    """Also those of other users."""
    is_listed: bool = False
    """Name the jobs only, if they are several."""
    only_others: bool = False
    """Leave out those that paceline has started."""
    like: tuple[str, ...] = ()
    """Of the job that has one of these in its identity; empty: whatever it is."""
    host: str = ""
    """What this host is called; empty: as it calls itself."""


def look_here(request: LookRequest) -> LookedHere:
    """Find the jobs, and look at them one after the other."""
    with BoundedReader() as reader:

        def read(path: str, most_bytes: int) -> bytes:
            return reader.read(path, most_bytes, _READ_SECONDS)

        found = find_jobs(request.pids, everybody=request.everybody, read=read)
        if request.like:
            wanted = set(request.like)
            found = FoundJobs(tuple(job for job in found.jobs if wanted.intersection(identity_of(job))), found.notes)
        if request.only_others:
            found = FoundJobs(tuple(job for job in found.jobs if job.launcher != "paceline"), found.notes)
        none = tuple(why_no_job(pid, read=read) for pid in request.pids) if not found.jobs else ()
        is_listed = request.is_listed and len(found.jobs) > 1
        evidence = (
            () if is_listed else tuple(collect(job, request.host or socket.gethostname(), reader) for job in found.jobs)
        )
        return LookedHere(jobs=tuple(map(_in_short, found.jobs)), evidence=evidence, none=none, notes=found.notes)


def _in_short(job: FoundJob) -> JobHere:
    first = next(iter(job.ranks.values()))
    return JobHere(
        name=job.name,
        pid=job.launcher_pid or first.pid,
        launcher=job.launcher,
        ranks=len(job.ranks),
        world_size=job.world_size,
        user=first.user,
    )


def main(argv: Sequence[str]) -> None:
    """One argument: the request, as JSON."""
    request = msgspec.json.decode(argv[0], type=LookRequest)
    sys.stdout.buffer.write(msgspec.json.encode(look_here(request)))
    sys.stdout.buffer.flush()
    # A thread that is kept by what it reads must not keep this process.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
