"""`paceline report --format tensorboard`: writes event files from a recording, once or until the run ends."""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.atomic_write import atomic_write
from paceline.cli.parsing import find_directories
from paceline.errors import UsageError
from paceline.facts import Evidence
from paceline.option import Option
from paceline.part import ReportFormat
from paceline.parts.web.views.tensorboard import (
    Scalars,
    file_begin,
    host_scalars,
    pace_scalars,
    run_scalars,
    scalars_record,
)
from paceline.recording.evidence import evidence
from paceline.recording.follow import FollowedFiles
from paceline.recording.jsonl import ReadJsonLines, read_json_lines
from paceline.recording.layout import RunDirectory
from paceline.recording.step_columns import TimeAxis, step_columns
from paceline.views.pace import pace
from paceline.views.status import run_lasts

# TensorBoard shows a thousand points of a figure.
_MOST_COLUMNS = 2000
_FOLLOW_SECONDS = 10
_MOST_TELEMETRY_BYTES = 64 << 20
_NS = 1_000_000_000
_RUN = "run"


_FOLDER = "tensorboard"


def write(args: argparse.Namespace) -> int:
    """Write the event files and print their folder.

    Raises:  as write_event_files and find_directories
    """
    directories = find_directories(args, "paceline report --format tensorboard")
    print(write_event_files(directories, Path(args.save or _FOLDER), follow=args.follow))
    return 0


def write_event_files(directories: Sequence[Path], folder: Path, *, follow: bool) -> Path:
    """Write the event files of a run and return their folder. With `follow`, add to them every 10 s until the run has ended.

    A second call writes the same files anew.

    Raises:  UsageError U22: the folder cannot be written
    """
    read: ReadJsonLines = FollowedFiles().read_json_lines if follow else read_json_lines
    found = evidence(*directories, recent=True, telemetry_bytes=_MOST_TELEMETRY_BYTES, read=read)
    place = folder / found.run.id
    try:
        end_ns = _end_ns(found)
        _begin(place, found, _moments(directories, found, _whole(found, end_ns)))
        while follow and run_lasts(found.run):
            time.sleep(_FOLLOW_SECONDS)
            before, from_ns = found, end_ns
            found = evidence(*directories, recent=True, read=read)
            end_ns = max(_end_ns(found), from_ns + 1)
            _append(place, found, _new_moments(found, before, TimeAxis(from_ns, end_ns, 1)))
    except OSError as error:
        raise UsageError(
            "U22",
            f"the event files cannot be written to {folder}",
            saw=f"{error.filename or place}: {error.strerror}",
            next="-o /tmp/tensorboard",
        ) from error
    return place


def _end_ns(found: Evidence) -> int:
    return found.run.finished_ns or time.time_ns()


def _whole(found: Evidence, end_ns: int) -> TimeAxis:
    begin_ns = found.run.started_ns or end_ns - _NS
    seconds = (end_ns - begin_ns) // _NS
    return TimeAxis(begin_ns, max(end_ns, begin_ns + 1), min(max(seconds, 1), _MOST_COLUMNS))


def _moments(directories: Sequence[Path], found: Evidence, axis: TimeAxis) -> dict[str, list[Scalars]]:
    """Folder of each file -> the moments of the whole run."""
    steps, _ = step_columns([RunDirectory(path) for path in directories], axis)
    return {_RUN: list(run_scalars(steps, axis, _started_ns(found, axis))), **_of_hosts(found, axis)}


def _new_moments(found: Evidence, before: Evidence, axis: TimeAxis) -> dict[str, list[Scalars]]:
    """Folder of each file -> what came since the look before, without reading old steps again."""
    of_run = list(pace_scalars(pace(found.ranks, before.ranks), axis, _started_ns(found, axis)))
    return {_RUN: of_run, **_of_hosts(found, axis)}


def _started_ns(found: Evidence, axis: TimeAxis) -> int:
    return found.run.started_ns or axis.from_ns


def _of_hosts(found: Evidence, axis: TimeAxis) -> dict[str, list[Scalars]]:
    moments = {}
    for host, lines in found.telemetry.items():
        inside = [line for line in lines if axis.from_ns < (line.get("t_ns") or 0) <= axis.to_ns]
        moments[host] = list(host_scalars(host, inside, axis, _started_ns(found, axis)))
    return moments


def _begin(place: Path, found: Evidence, moments: dict[str, list[Scalars]]) -> None:
    for name, of_one in moments.items():
        path = _file(place, name, found)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(file_begin(found.run.started_ns) + _records(of_one))


def _append(place: Path, found: Evidence, moments: dict[str, list[Scalars]]) -> None:
    for name, of_one in moments.items():
        path = _file(place, name, found)
        if not path.exists():
            _begin(place, found, {name: of_one})
        elif of_one:
            # One write, so that a reader never sees half of a record.
            with path.open("ab", buffering=0) as file:
                file.write(_records(of_one))


def _file(place: Path, name: str, found: Evidence) -> Path:
    return place / name / f"events.out.tfevents.{found.run.started_ns // _NS:010d}.paceline"


def _records(moments: Iterable[Scalars]) -> bytes:
    return b"".join(map(scalars_record, moments))


FORMAT = ReportFormat(
    about="""\
Event files of the machines' and the run's figures, below the directory of `-o`. The axis of steps is seconds since the start of the
run; nothing of the script's own is in them.""",
    options=(Option("follow", "Add to the files every 10 s until the run ends.", letter="f"),),
    write=write,
)
