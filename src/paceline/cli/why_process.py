"""`paceline why PID` and `--all`: jobs that run on this machine and that paceline did not start."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec

from paceline.attach.evidence import HostEvidence
from paceline.attach.judge import Judged, judge
from paceline.attach.look_here import JobHere, LookedHere, LookRequest
from paceline.attach.look_there import argv_of, look_there
from paceline.attach.no_job import NoJob, NoJobReason
from paceline.attach.permission import Refusal, refusal_of, typed_again
from paceline.attach.record import record, recordings_root
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import ascii_only, room, use_color
from paceline.errors import UsageError
from paceline.facts import Run
from paceline.findings import CauseFinding
from paceline.launch.disk import refused_by_disk
from paceline.part import first_answer, parts
from paceline.recording.runs import list_runs
from paceline.rules import all_causes
from paceline.spelling import plural
from paceline.user_names import user_name
from paceline.views.documents import json_text
from paceline.views.why import WhyPage, why_json, why_text

# Twice what it takes on a machine that is very busy.
LOOK_SECONDS = 20.0
_MOST_LISTED = 8


def answer_processes(args: argparse.Namespace) -> Sequence[CauseFinding]:
    """Print why the job of a process, or every job, is in trouble. Returns the findings.

    Raises:  UsageError U03: options that do not fit together; U09: a run has the process's number as its id; U59: there is no such job, or
             there are several; they did not answer in time
    """
    if args.all:
        _stands_alone("--all", [*args.runs, *_given(args, "hosts", "directories")], "paceline why --all")
        return _answer_all(args)
    text = args.runs[0]
    _stands_alone(text, [*args.runs[1:], *_given(args, "directories", "everybody")], f"paceline why {text}")
    if not text.startswith("pid:"):
        _refuse_if_a_run(text, Path(args.run_dir) if args.run_dir else None)
    return _answer_process(args, int(text.removeprefix("pid:")))


def _stands_alone(what: str, beside: Sequence[str], next_: str) -> None:
    if beside:
        raise UsageError(
            "U03",
            f"{what} is about jobs that run here, and {beside[0]} is given beside it",
            saw=" ".join(beside),
            next=next_,
        )


def _given(args: argparse.Namespace, *names: str) -> list[str]:
    spelled = {"directories": "--dir"}
    return [spelled.get(name, f"--{name}") for name in names if getattr(args, name)]


def _refuse_if_a_run(text: str, root: Path | None) -> None:
    known = next((run for run in list_runs(root) if run.id == text), None)
    if known is not None:
        raise UsageError(
            "U09",
            f"{text} is a run and may be a process",
            saw=str(known.path),
            next=f"paceline why pid:{text}, or paceline why {known.path}",
        )


def _answer_process(args: argparse.Namespace, pid: int) -> Sequence[CauseFinding]:
    here = _look(LookRequest(pids=(pid,), is_listed=True), shown=not args.json)
    if not here.jobs:
        _refuse(here.none[0])
    if len(here.jobs) > 1:
        _several(here.jobs, f"below process {pid} run {len(here.jobs)} training jobs")
    return _show(args, _with_others(here, args.hosts) if args.hosts else here)


def _answer_all(args: argparse.Namespace) -> Sequence[CauseFinding]:
    here = _look(LookRequest(everybody=args.everybody), shown=not args.json)
    if not here.jobs:
        raise UsageError(
            "U59",
            "no training job runs here",
            saw="; ".join(here.notes) or "no process has torch in its memory and the number of a rank",
            next="paceline run train.py starts one"
            if args.everybody
            else "sudo paceline why --all --everybody: those of other users",
        )
    return _show(args, here)


def answer_only_job(args: argparse.Namespace) -> Sequence[CauseFinding] | None:
    """The same where no run is recorded: of the one job of this user that something else started; None: there is none.

    Raises:  UsageError U59: there are several
    """
    here = _look(LookRequest(is_listed=True, only_others=True), shown=not args.json)
    if not here.jobs:
        return None
    if len(here.jobs) > 1:
        _several(here.jobs, f"{len(here.jobs)} training jobs run here, and no run is recorded in this directory")
    return _show(args, here)


def _look(request: LookRequest, *, shown: bool) -> LookedHere:
    """What a process of its own sees. It is given up after 20 s: what it reads may keep it for ever."""
    words = [sys.executable, "-P", "-m", "paceline.attach.look_here", msgspec.json.encode(request).decode()]
    with ProgressLine("looking at the ranks", shown=shown):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            # It is not waited for: nothing ends a process that a file system keeps.
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            raise UsageError(
                "U59",
                "the ranks could not be looked at in time",
                saw=f"no answer within {LOOK_SECONDS:.0f} s: the machine is very busy, or a file system does not answer",
                next="again, or for one rank: paceline why PID",
            ) from None
    if process.returncode:
        raise RuntimeError(f"the look has failed: {err.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(out, type=LookedHere)


def _with_others(here: LookedHere, places: str) -> LookedHere:
    """The same job with what its other hosts have seen.

    Raises:  UsageError U05: a place is none; U59: nothing tells this job from another one there
    """
    (own,) = here.evidence
    if not own.identity:
        raise UsageError(
            "U59",
            "which job of the other hosts is the same as this one cannot be told",
            saw="its ranks meet at an address of this machine alone",
            next="paceline why PID --record on each host, then paceline why DIRECTORY DIRECTORY",
        )
    argv = argv_of(LookRequest(like=own.identity, everybody=True))
    names = [name.strip() for name in places.split(",") if name.strip()]
    commands = [(name, first_answer(part.command_on(name, argv) for part in parts())) for name in names]
    if unknown := [name for name, command in commands if command is None]:
        raise UsageError(
            "U05", f"no part of paceline reaches {unknown[0]!r}", saw="--hosts", next="paceline why --help"
        )
    with ProgressLine(f"looking at {len(names)} other {plural(len(names), 'host')}", shown=False):
        there = look_there([(name, command) for name, command in commands if command is not None])
    seen, evidence, notes = {rank.rank for rank in own.ranks}, [], list(there.notes)
    for one in there.evidence:
        if seen.isdisjoint(rank.rank for rank in one.ranks):
            evidence.append(one)
            seen |= {rank.rank for rank in one.ranks}
        else:
            notes.append(f"{one.host}: its ranks were looked at already")
    first = replace(own, notes=(*own.notes, *notes))
    return replace(here, evidence=(first, *evidence))


def _show(args: argparse.Namespace, here: LookedHere) -> Sequence[CauseFinding]:
    # Of one job, further evidence is of its other hosts.
    hosts = [here.evidence] if len(here.jobs) == 1 else [(one,) for one in here.evidence]
    refusals = [_refusal_here(seen[0]) for seen in hosts]
    judged = [_judged(args, *one) for one in zip(hosts, here.jobs, refusals, strict=True)]
    if args.json:
        documents = [why_json(found.diagnosis, found.case) for found in judged]
        print(json_text(documents[0] if len(documents) == 1 else documents))
    else:
        page = WhyPage(
            width=room(sys.stdout), color=use_color(args.color, sys.stdout), ascii_only=ascii_only(sys.stdout)
        )
        print("\n\n".join(_page(*one, page) for one in zip(hosts, judged, refusals, strict=True)))
        for found in judged if args.record else ():
            run = found.case.run
            print(f"\nrecorded as {run.id}: paceline stack {run.id}, paceline report {run.id}; {run.directory}")
    return [finding for found in judged for finding in found.diagnosis.findings]


def _judged(args: argparse.Namespace, hosts: Sequence[HostEvidence], job: JobHere, refusal: Refusal | None) -> Judged:
    if args.record:
        with refused_by_disk("the recording of what was seen", f"paceline why {job.pid}, without --record"):
            found = record(hosts, ("paceline", "why", str(job.pid), "--record"), all_causes(), recordings_root())
    else:
        now_ns, first = time.time_ns(), hosts[0].host
        run = Run(id=f"pid:{job.pid}", name=job.name, directory="", command=(), started_ns=now_ns, first_host=first)
        found = judge(hosts, run, all_causes())
    if refusal is None:
        return found
    not_judged = (f"lines and collectives: {refusal.saw}; {refusal.next}", *found.diagnosis.not_judged)
    return replace(found, diagnosis=replace(found.diagnosis, not_judged=not_judged))


def _page(hosts: Sequence[HostEvidence], found: Judged, refusal: Refusal | None, page: WhyPage) -> str:
    one = hosts[0]
    by = f", started by {one.launcher}" + (f" ({one.launcher_pid})" if one.launcher_pid else "") if one.launcher else ""
    ranks = [rank for each in hosts for rank in each.ranks]
    size = f"{len(ranks)} of {one.world_size or '?'} {plural(one.world_size or len(ranks), 'rank')}"
    where = one.host if len(hosts) == 1 else f"{len(hosts)} hosts"
    sources = [name for name in ("recorder", "stacks") if all(name in rank.sources for rank in ranks)]
    took = f"looked at for {max(each.seconds for each in hosts):.1f} s; {', '.join(sources) or 'the kernel alone'}"
    lines = [f"{size} of {one.job} on {where}{by}: {took}"]
    if refusal is not None:
        lines += [f"  refused   {refusal.saw}", f"  without   {refusal.without}", f"  next      {refusal.next}"]
    if found.moves and not found.diagnosis.findings:
        lines.append("the job moves: collectives were completed while it was looked at")
    return "\n".join([*lines, "", why_text(found.diagnosis, found.case, page)])


def _refusal_here(one: HostEvidence) -> Refusal | None:
    """What the permission does not allow on this host."""
    return refusal_of(one.ranks[0].pid, _again(one.launcher_pid or one.ranks[0].pid)) if one.ranks else None


def _again(pid: int) -> list[str]:
    return typed_again(["why", str(pid)])


def _refuse(none: NoJob) -> NoReturn:
    """Say in four parts why a process belongs to no job."""
    who = "" if none.user is None else f"it is {user_name(none.user)}'s"
    what, saw, next_ = {
        NoJobReason.GONE: (
            f"there is no process {none.pid}",
            "it may be of another host or container",
            "paceline why --all",
        ),
        NoJobReason.INNER: (
            f"process {none.pid} is in another container",
            f"it is {', '.join(map(str, none.here))} here",
            f"paceline why {next(iter(none.here), 'PID')}",
        ),
        NoJobReason.ZOMBIE: (f"process {none.pid} has ended", "its parent has not waited for it", "paceline why --all"),
        NoJobReason.REFUSED: (
            f"process {none.pid} may not be read",
            who,
            # What root may not read, no other user may.
            f"sudo {' '.join(_again(none.pid))}" if os.geteuid() else "paceline why --all --everybody",
        ),
        NoJobReason.LAUNCHER: (
            f"{none.launcher} ({none.pid}) has started no rank yet",
            f"{none.below} {'process' if none.below == 1 else 'processes'} below it, {none.age_seconds or 0:.0f} s old",
            "again in some seconds",
        ),
        NoJobReason.NO_RANK: (
            f"process {none.pid} is no rank of a training job, and has none below it",
            "no process there has torch in its memory and the number of a rank",
            "paceline why --all",
        ),
    }[none.reason]
    raise UsageError("U59", what, saw=saw, next=next_)


def _several(jobs: Sequence[JobHere], what: str) -> NoReturn:
    listed = [
        f"{job.pid} {job.name} ({job.launcher or 'started by hand'}, {job.ranks} {plural(job.ranks, 'rank')})"
        for job in jobs
    ]
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    raise UsageError(
        "U59",
        what,
        saw=", ".join(listed[:_MOST_LISTED]) + more,
        next=f"paceline why {jobs[0].pid}, or paceline why --all",
    )
