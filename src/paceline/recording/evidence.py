"""Turns a recording into facts: complete or partial, of a run that ended, that runs, or whose agent is gone.

Never raises on what it finds in a file: what could not be read is listed, in words, in `Evidence.not_judged`.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from paceline.facts import Evidence, RankError, RankExit, RankRecord, Run, SecondaryStatus, Status, host_key
from paceline.recording.clocks import HostClocks
from paceline.recording.jsonl import RECENT_BYTES, ReadJsonLines, read_json_lines
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.liveness import agent_gone, can_be_seen
from paceline.recording.peer_steps import brought_forward
from paceline.recording.rank_sets import spell_ranks
from paceline.recording.runs import find_run, id_in, read_document
from paceline.recording.segments import from_progress, rank_records, segments
from paceline.recording.shipped import with_own_file
from paceline.recording.telemetry_rollup import read_minutes
from paceline.spelling import plural

__all__ = ["evidence"]

_Word = TypeVar("_Word", bound=StrEnum)
RECENT_TELEMETRY_BYTES = 64 * 1024
# Records per read, of all ranks together and at least of each rank: those of hundreds of ranks are read in a tenth of a second.
RECENT_RECORDS_IN_ALL = 16384
RECENT_RECORDS = 64
# Of 16,384 ranks it has 8 MB.
_MOST_TIMING_BYTES = 32 << 20


def evidence(
    run: str | Path,
    *more_directories: str | Path,
    recent: bool = False,
    telemetry_bytes: int | None = None,
    read: ReadJsonLines = read_json_lines,
) -> Evidence:
    """Everything in the recording of one run, wherever its parts are.

    `run` is an id, the beginning of one, or a directory; `more_directories` are those of its other hosts. `recent` reads only
    the ends of the long files: the last minute of telemetry, the last steps; totals are whole either way. `telemetry_bytes`, of all
    hosts together, then reads more of the telemetry, and of the time before that the means of each minute. `read`: what reads JSON
    lines; who asks again and again hands in one that follows.

    Raises:  UsageError: there is no such run
    """
    paths = (run if isinstance(run, Path) else find_run(run), *(Path(directory) for directory in more_directories))
    directories = tuple(RunDirectory(path) for path in paths)
    found, events, complaints = read_run(directories, read, recent=recent)
    events = _with_step_timings(directories, events)
    hosts = _hosts(directories, events)
    ranks, rank_complaints = rank_records(directories, last_records=_recent_records(directories) if recent else None)
    of_each = max(RECENT_TELEMETRY_BYTES, (telemetry_bytes or 0) // max(len(hosts), 1)) if recent else None
    telemetry, telemetry_complaints = _telemetry(directories, found.first_host, hosts, of_each, read)
    exits = {key: with_own_file(exit, directories[0].path) for key, exit in _exits(events).items()}
    clocks = HostClocks(events)
    measured = tuple(clocks.rank(record) for record in _with_progress(ranks, telemetry))
    telemetry = {host: tuple(clocks.line(host, line) for line in lines) for host, lines in telemetry.items()}
    known = _with_events(measured, events, exits)
    return Evidence(
        run=found,
        hosts=hosts,
        ranks=known,
        events=events,
        telemetry=telemetry,
        not_judged=(
            *complaints,
            *_missing_sensors(events),
            *_unwatched(events),
            *rank_complaints,
            *_missing_ranks(known, measured),
            *telemetry_complaints,
        ),
    )


def _recent_records(directories: Sequence[RunDirectory]) -> int:
    """The fewer ranks there are, the more of each."""
    return max(RECENT_RECORDS, RECENT_RECORDS_IN_ALL // max(len(segments(directories)), 1))


def read_run(
    directories: Sequence[RunDirectory],
    read: ReadJsonLines = read_json_lines,
    *,
    recent: bool = False,
) -> tuple[Run, tuple[dict[str, Any], ...], tuple[str, ...]]:
    """The run's identity and end, its events, and what of the two could not be read. `recent`: of many events the first and the newest.

    Holds: a run whose agent is gone without a run_finished event is Failed, with a reason that begins "agent gone"
    """
    complaints: list[str] = []
    events: list[dict[str, Any]] = []
    for directory in directories:
        path = directory.events_file
        records, bad = read(path, most_bytes=RECENT_BYTES) if recent else read(path)
        events += [record for record in records if isinstance(record.get("event"), str)]
        complaints += bad
    run = _identity(directories, events, complaints)
    if not events:
        complaints.append("events.jsonl is missing or empty: status, exits, stalls and snapshots")
    run = _with_end(run, events)
    if run.status in (Status.IN_PROGRESS, Status.STOPPING):
        gone = agent_gone(run)
        if gone is not None:
            run = replace(
                run, status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason=f"agent gone: {gone}"
            )
        elif not can_be_seen(run):
            complaints.append(f"whether the agent still runs: it was started on {run.machine or 'another machine'}")
    return run, tuple(events), tuple(complaints)


def _with_step_timings(
    directories: Sequence[RunDirectory], events: tuple[dict[str, Any], ...]
) -> tuple[dict[str, Any], ...]:
    """The events, with the newest step timing of each attempt where its event would be: the event has only the ranks that stand out."""
    found: dict[int, dict[str, Any]] = {}
    for directory in directories:
        for path in directory.path.glob("step_timing_*.json"):
            timing = read_document(path, _MOST_TIMING_BYTES)
            attempt, at_ns = timing.get("attempt", 0), timing.get("at_ns")
            if isinstance(attempt, int) and isinstance(at_ns, int):
                found[attempt] = {"t_ns": at_ns, "event": "tempo", "attempt": attempt, "tempo": timing}
    for attempt, event in found.items():
        ends = [
            place
            for place, one in enumerate(events)
            if (one["event"] == "attempt_ended" and one.get("attempt") == attempt)
            or (one["event"] == "attempt_started" and isinstance(one.get("attempt"), int) and one["attempt"] > attempt)
        ]
        place = min(ends, default=len(events))
        events = (*events[:place], event, *events[place:])
    return events


def listed_ranks(directories: Sequence[RunDirectory], events: Sequence[dict[str, Any]]) -> tuple[RankRecord, ...]:
    """The ranks of a run as a list of runs needs them: totals, exits and how long the last steps were, no telemetry.

    Holds:   these are the steps that `evidence(recent=True)` reads
    """
    ranks, _ = rank_records(directories, last_records=_recent_records(directories), only_lengths=True)
    return _with_events(ranks, events, _exits(events))


# -------------------------------------------------------------------------------------------------------------- the run


def _identity(directories: Sequence[RunDirectory], events: list[dict[str, Any]], complaints: list[str]) -> Run:
    for directory in directories:
        document = read_document(directory.run_file)
        if document:
            return _run_from(document, directory)
        if directory.run_file.exists():
            complaints.append("run.json cannot be read: name, command and start")
    first = directories[0]
    if submitted := read_document(first.path / SUBMISSION_FILE):
        return _submitted(submitted, first)
    if not any(directory.run_file.exists() for directory in directories):
        complaints.append("run.json is missing: name, command and start")
    started = next((event["t_ns"] for event in events if isinstance(event.get("t_ns"), int)), 0)
    host = next((event["host"] for event in events if isinstance(event.get("host"), str)), "")
    return Run(
        id=first.path.resolve().name,
        name="",
        directory=str(first.path),
        command=(),
        started_ns=started,
        first_host=host,
    )


def _submitted(document: dict[str, Any], directory: RunDirectory) -> Run:
    """A job that an engine has and that no agent has recorded yet."""
    # submission/1 had the name within the job.
    job = document.get("job")
    name = _text(document, "name") or (_text(job, "name") if isinstance(job, dict) else None)
    return Run(
        id=directory.path.resolve().name,
        name=name or "",
        directory=str(directory.path),
        command=(),
        started_ns=_number(document, "submitted_ns") or 0,
        first_host="",
    )


def _run_from(document: dict[str, Any], directory: RunDirectory) -> Run:
    command = document.get("command")
    wanted = document.get("hosts_wanted")
    return Run(
        id=id_in(document) or directory.path.resolve().name,
        name=_text(document, "name") or "",
        # Where it was found, not where it was written: recordings are copied.
        directory=str(directory.path),
        command=tuple(str(part) for part in command) if isinstance(command, list) else (),
        started_ns=_number(document, "started_ns") or 0,
        first_host=_text(document, "first_host") or "",
        agent_pid=_number(document, "agent_pid"),
        agent_start_ticks=_number(document, "agent_start_ticks"),
        machine=_text(document, "machine"),
        boot_id=_text(document, "boot_id"),
        pid_namespace=_text(document, "pid_namespace"),
        hosts_wanted=_pair(wanted),
        version=_text(document, "paceline_version"),
        control_socket=_text(document, "control_socket"),
    )


def _with_end(run: Run, events: Iterable[dict[str, Any]]) -> Run:
    status, secondary_status, finished = run.status, run.secondary_status, None
    for event in events:
        if event["event"] in ("status", "run_finished"):
            status = _word(Status, event.get("status"), status)
            secondary_status = _word(SecondaryStatus, event.get("secondary_status"), secondary_status)
            finished = event if event["event"] == "run_finished" else finished
    run = replace(run, status=status, secondary_status=secondary_status)
    if finished is None:
        return run
    return replace(
        run,
        finished_ns=_number(finished, "t_ns"),
        exit_code=_number(finished, "exit_code"),
        reason=_text(finished, "reason") or "",
    )


# ---------------------------------------------------------------------------------------------------- hosts and telemetry


def _hosts(directories: Sequence[RunDirectory], events: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    names = {event["host"] for event in events if isinstance(event.get("host"), str)}
    for event in events:
        placements = event.get("hosts") if event["event"] == "attempt_started" else None
        for placement in placements if isinstance(placements, list) else ():
            if isinstance(placement, dict) and isinstance(placement.get("host"), str):
                names.add(placement["host"])
    for directory in directories:
        names.update(path.name for path in directory.path.glob("hosts/*") if path.is_dir())
        names.update(path.name.split(".telemetry.jsonl")[0] for path in _peer_files(directory))
    return tuple(sorted(names, key=host_key))


def _peer_files(directory: RunDirectory) -> Iterable[Path]:
    return directory.path.glob("hosts/*/peers/*.telemetry.jsonl")


def _telemetry(
    directories: Sequence[RunDirectory],
    first_host: str,
    hosts: Iterable[str],
    tail_bytes: int | None,
    read: ReadJsonLines,
) -> tuple[dict[str, tuple[dict[str, Any], ...]], list[str]]:
    complaints: list[str] = []
    series: dict[str, tuple[dict[str, Any], ...]] = {}
    for host in hosts:
        own = [directory.telemetry_file(host) for directory in directories]
        streamed = [directory.peer_file(first_host, host, "telemetry") for directory in directories]
        # A name of a host can be one that no file has.
        path = next((path for path in (*own, *streamed) if os.path.exists(path)), None)
        if path is None:
            complaints.append(f"telemetry of {host}: none in this recording")
            continue
        if path in streamed:
            complaints.append(f"{host}: complete logs and single steps are on that host: give its directory too")
        records, bad = read(path, tail_bytes=tail_bytes)
        if tail_bytes is not None and tail_bytes > RECENT_TELEMETRY_BYTES:
            records = [*_minutes_before(directories, host, records, tail_bytes), *records]
        series[host] = tuple(records)
        complaints += [f"{host}: {complaint}" for complaint in bad]
    return series, complaints


def _minutes_before(
    directories: Sequence[RunDirectory], host: str, samples: Sequence[dict[str, Any]], tail_bytes: int
) -> list[dict[str, Any]]:
    """The means of the minutes before the oldest of the samples, as far as the host has summed them up."""
    first_ns = next((line["t_ns"] for line in samples if isinstance(line.get("t_ns"), int)), None)
    for directory in directories:
        minutes, _ = read_minutes(directory.telemetry_roll_file(host), tail_bytes=tail_bytes)
        if minutes:
            return [line for line in minutes if first_ns is None or line["t_ns"] < first_ns]
    return []


def _missing_sensors(events: Iterable[dict[str, Any]]) -> list[str]:
    """One line for each sensor and reason, however many hosts say the same."""
    hosts: dict[str, dict[str, None]] = {}
    for event in events:
        if event["event"] == "sensor_missing":
            what = f"{event.get('sensor', '?')}: {event.get('reason', 'no reason recorded')}"
            hosts.setdefault(what, {})[str(event.get("host", "?"))] = None
    return [f"{', '.join(names) if len(names) < 4 else f'{len(names)} hosts'} {what}" for what, names in hosts.items()]


def _unwatched(events: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"steps and waits of process {event.get('pid', '?')} on {event.get('host', '?')}: "
        f"paceline could not start in it: {event.get('reason') or 'no reason kept'}"
        for event in events
        if event["event"] == "process_unwatched"
    ]


# ---------------------------------------------------------------------------------------------------------------- ranks

_Key = tuple[int, int, str]


def _key(record: RankRecord | RankExit) -> _Key:
    return (record.attempt, record.rank, record.host)


def _exits(events: Iterable[dict[str, Any]]) -> dict[_Key, RankExit]:
    exits = (_exit(event) for event in events if event["event"] == "rank_exited")
    return {_key(exit): exit for exit in exits if exit is not None}


def _exit(event: dict[str, Any]) -> RankExit | None:
    host, rank, code = _text(event, "host"), _number(event, "rank"), _number(event, "code")
    if host is None or rank is None or code is None:
        return None
    time_ns = _number(event, "time_ns") or _number(event, "t_ns") or 0
    return RankExit(
        host=host,
        rank=rank,
        attempt=_number(event, "attempt") or 0,
        code=code,
        time_ns=time_ns,
        error=_error(event.get("error"), time_ns),
        note=_text(event, "note") or "",
        signalled_by_us=event.get("signalled_by_us") is True,
        tail=_text(event, "tail") or "",
    )


def _error(value: Any, time_ns: int) -> RankError | None:
    if not isinstance(value, dict):
        return None
    return RankError(
        type=_text(value, "type") or "an exception",
        message=_text(value, "message") or "",
        time_ns=_number(value, "time_ns") or time_ns,
        file=_text(value, "file"),
        line=_number(value, "line"),
        function=_text(value, "function"),
        source=_text(value, "source"),
        python=_text(value, "python"),
    )


def _with_progress(
    ranks: Sequence[RankRecord], telemetry: dict[str, tuple[dict[str, Any], ...]]
) -> tuple[RankRecord, ...]:
    """Adds ranks whose segments lie elsewhere, from the totals that their host streamed with its telemetry."""
    have = {_key(record) for record in ranks}
    streamed: dict[_Key, RankRecord] = {}
    for host, lines in telemetry.items():
        # Totals only grow, so the newest line that names a rank of an attempt has everything about it.
        for line in reversed(lines):
            progress = line.get("progress")
            for plain in progress.values() if isinstance(progress, dict) else ():
                key = (plain.get("attempt"), plain.get("rank"), host) if isinstance(plain, dict) else None
                if key is None or key in have or key in streamed:
                    continue
                if (record := from_progress(plain, host)) is not None:
                    streamed[_key(record)] = record
    return (*ranks, *(brought_forward(one, reversed(telemetry[one.host])) for one in streamed.values()))


def _with_events(
    ranks: Iterable[RankRecord], events: Iterable[dict[str, Any]], exits: dict[_Key, RankExit]
) -> tuple[RankRecord, ...]:
    """Ranks in order of attempt, rank and host; ranks that only events mention have no measurements."""
    records = {_key(record): record for record in ranks}
    for event in events:
        host, rank = _text(event, "host"), _number(event, "rank")
        if event["event"] in ("rank_started", "rank_exited") and host is not None and rank is not None:
            attempt, pid = _number(event, "attempt") or 0, _number(event, "pid")
            known = records.get((attempt, rank, host))
            if known is None:
                records[attempt, rank, host] = RankRecord(host=host, rank=rank, attempt=attempt, pid=pid)
            elif known.pid is None and pid is not None:
                records[attempt, rank, host] = replace(known, pid=pid)
    for key, exit in exits.items():
        records[key] = replace(records[key], exit=exit)
    return tuple(sorted(records.values(), key=lambda record: (record.attempt, record.rank, host_key(record.host))))


def _missing_ranks(known: Iterable[RankRecord], recorded: Iterable[RankRecord]) -> list[str]:
    have = {_key(record) for record in recorded}
    missing: dict[tuple[int, str], list[int]] = {}
    for record in known:
        if _key(record) not in have:
            missing.setdefault((record.attempt, record.host), []).append(record.rank)
    return [
        f"steps of {plural(len(ranks), 'rank')} {spell_ranks(ranks)} on {host}, attempt {attempt}: "
        "none in this recording"
        for (attempt, host), ranks in missing.items()
    ]


# --------------------------------------------------------------------------------------------------------------- values


def _text(document: dict[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None


def _number(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return value[0], value[1]
    return None


def _word(kind: type[_Word], value: Any, otherwise: _Word) -> _Word:
    try:
        return kind(value)
    except ValueError:
        return otherwise
