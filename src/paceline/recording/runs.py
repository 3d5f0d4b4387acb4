"""Where runs are, and how a run is found by the text that a user types. Reads identities only, never the records of ranks."""

import errno
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.facts import Run
from paceline.process_identity import start_ticks
from paceline.recording.jsonl import json_object
from paceline.recording.layout import SUBMISSION_FILE, RunDirectory
from paceline.recording.liveness import this_machine
from paceline.recording.plain_files import read_plain
from paceline.recording.writer import write_json
from paceline.spelling import nearest
from paceline.user_folders import user_state_folder
from paceline.user_names import user_name

RUN_SCHEMA = "paceline.run/2"
KNOWN_RUN_SCHEMA = "paceline.known_run/1"
PRIVATE = 0o700
# The folder of the short runs that `paceline bench --rehearse` makes, beside the folder of the runs: rehearsals/rh-3f91ab/2x1/r-7f3a91.
REHEARSALS = "rehearsals"
_FORGET_AFTER_SECONDS = 7 * 24 * 3600
_MOST_LISTED = 5
# A command line and the fields of a job; a longer text is cut and is then no JSON.
_MOST_DOCUMENT_BYTES = 4 << 20
_MEASUREMENTS, _MEASUREMENT = (REHEARSALS, "bench"), re.compile(r"[\w-]+-[0-9a-f]{6}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that can be found from here."""

    id: str
    """Its id."""
    path: Path
    """Its directory."""
    document: dict[str, Any]
    """Content of run.json; empty if it cannot be read."""

    @property
    def started_ns(self) -> int:
        started = self.document.get("started_ns")
        return started if isinstance(started, int) else 0


def new_run_id() -> str:
    """ "r-" and six hex digits, short enough to be typed."""
    return f"r-{os.urandom(3).hex()}"


def is_run_id(text: str) -> bool:
    """Whether a text can be the id of a run."""
    return _ID.match(text) is not None


def runs_root(cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for new runs of this directory: $PACELINE_HOME/runs, else ./.paceline/runs."""
    home = environ.get("PACELINE_HOME")
    return Path(home) / "runs" if home else (cwd or Path.cwd()) / ".paceline" / "runs"


def create_run(root: Path, run_id: str, mode: int | None = None) -> RunDirectory:
    """A new run directory, kept out of version control by a .gitignore beside `runs`. That of a submitted job may be there already.

    Raises:  OSError: it holds a recording already, or cannot be made
    """
    _make_shared(root)
    ignore = root.parent / ".gitignore"
    if root.parent.name == ".paceline" and not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    directory = RunDirectory(root / run_id)
    make_run_directory(directory.path, mode)
    if directory.run_file.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory.run_file))
    return directory


def make_run_directory(path: Path, mode: int | None = None) -> None:
    """The directory of one run, its user's alone unless `mode` says otherwise; one of the user's own that is there stays as it is.

    Raises:  OSError: it cannot be made, or is a link or another user's: what is written would be another user's to lead elsewhere
    """
    try:
        path.mkdir(mode=PRIVATE)
    except FileExistsError:
        there = os.lstat(path)
        if there.st_uid != os.geteuid():
            text = (
                f"it belongs to another user, {user_name(there.st_uid)}; another --set run_id makes another directory"
            )
            raise FileExistsError(errno.EEXIST, text, str(path)) from None
        if not path.is_dir():
            raise
        return
    if mode is not None:
        # Keep the setgid bit of a directory.
        path.chmod(mode | path.stat().st_mode & stat.S_ISGID)


def make_next_try(path: Path, before: Path) -> None:
    """The directory of a further try of the job that was recorded in `before`, for the same readers.

    Raises:  OSError: it cannot be made
    """
    _make_shared(path.parent)
    make_run_directory(path, stat.S_IMODE(before.stat().st_mode))


def _make_shared(folder: Path) -> None:
    """A folder to which other users may add runs if the umask allows it; they cannot rename the runs of others."""
    for missing in (folder, *folder.parents):
        if missing.is_dir():
            break
        if not missing.parent.is_dir():
            _make_shared(missing.parent)
        missing.mkdir(mode=0o1777, exist_ok=True)


def write_run(run: Run) -> None:
    """Writes run.json, with the identity of the agent (this process unless the run names another), to see later whether it is alive.

    Raises:  OSError: the disk refused it
    """
    machine = this_machine()
    pid = run.agent_pid or os.getpid()
    document = {
        "schema": RUN_SCHEMA,
        "run_id": run.id,
        "name": run.name,
        "command": list(run.command),
        "started_ns": run.started_ns,
        "first_host": run.first_host,
        "hosts_wanted": list(run.hosts_wanted) if run.hosts_wanted else None,
        "agent_pid": pid,
        "agent_start_ticks": run.agent_start_ticks or start_ticks(pid),
        "machine": run.machine or machine.hostname,
        "boot_id": run.boot_id or machine.boot_id,
        "pid_namespace": run.pid_namespace or machine.pid_namespace,
        "control_socket": run.control_socket,
        "paceline_version": run.version,
        "directory": str(Path(run.directory).resolve()),
    }
    write_json(RunDirectory(Path(run.directory)).run_file, document)


def register(run_id: str, directory: Path, index: Path | None = None) -> str | None:
    """Add the run to this user's index, so that `paceline ps` finds it from any directory; returns the reason if that failed.

    Entries whose directory has been gone for a week are dropped on the way.
    """
    try:
        folder = index or index_folder()
        write_json(
            folder / f"{run_id}.json",
            {"schema": KNOWN_RUN_SCHEMA, "run_id": run_id, "directory": str(directory.resolve())},
        )
        _forget_old(folder)
    except (OSError, RuntimeError) as error:
        return f"the run index could not be written: {error}"
    return None


def forget(directory: Path, index: Path | None = None) -> None:
    """Remove a run from this user's index.

    Raises:  OSError: the entry cannot be removed
    """
    entry = (index or index_folder()) / f"{directory.name}.json"
    if read_document(entry).get("directory") == str(directory):
        entry.unlink(missing_ok=True)


def index_folder() -> Path:
    """The index: one small file per run that this user started on this machine. It can be deleted without loss."""
    return user_state_folder() / "runs"


def list_runs(root: Path | None = None, index: Path | None = None) -> list[KnownRun]:
    """Every run that can be found from here, the newest first; each directory once."""
    return _newest_first((*_directories(root or runs_root()), *_indexed(index)))


@dataclass(slots=True)
class KnownRuns:
    """The list of runs, asked for again and again: what names a run is read once, and folders that have not changed are not listed."""

    root: Path | None = None
    """The folder of runs; None: that of the current directory."""
    index: Path | None = None
    """The index of this user's runs; None: where it always is."""
    _entries: dict[str, Path | None] = field(default_factory=dict)
    _known: dict[str, KnownRun] = field(default_factory=dict)
    _folders: tuple[int, ...] = ()
    _found: list[KnownRun] = field(default_factory=list)

    def newest_first(self) -> list[KnownRun]:
        """As `list_runs`.

        Holds:   equal to list_runs(root, index), unless the run.json of a run was written anew
        """
        root, index = self.root or runs_root(), self.index or index_folder()
        folders = (*_changed_ns(root), *_changed_ns(index))
        # A folder that changed just now may have changed once more at the same time of its clock.
        is_settled = folders and max(folders) < time.time_ns() - 2_000_000_000
        if is_settled and folders == self._folders and all(id_in(run.document) is not None for run in self._found):
            return self._found
        found: dict[Path, KnownRun] = {}
        real_root = os.path.realpath(root)
        for entry in _folder_entries(root):
            path = entry.path if entry.is_symlink() else os.path.join(real_root, entry.name)
            if entry.is_dir() and (known := self._run(path)) is not None:
                found.setdefault(known.path, known)
        for indexed in self._indexed(index):
            if os.path.exists(indexed) and (known := self._run(str(indexed))) is not None:
                found.setdefault(known.path, known)
        self._folders = folders
        self._found = sorted(found.values(), key=lambda known: known.started_ns, reverse=True)
        return self._found

    def _run(self, path: str) -> KnownRun | None:
        known = self._known.get(path)
        if known is None or id_in(known.document) is None:
            known = _known(Path(os.path.realpath(path)))
            if known is not None:
                self._known[path] = known
        return known

    def _indexed(self, index: Path) -> Iterator[Path]:
        for name in [entry.name for entry in _folder_entries(index) if entry.name.endswith(".json")]:
            if name not in self._entries:
                directory = read_document(index / name).get("directory")
                self._entries[name] = Path(directory) if isinstance(directory, str) else None
            if (path := self._entries[name]) is not None:
                yield path


def _folder_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except (OSError, ImportError):
        return []


def _changed_ns(folder: Path) -> tuple[int, ...]:
    try:
        return (folder.stat().st_mtime_ns,)
    except OSError:
        return (0,)


def runs_below(root: Path) -> list[KnownRun]:
    """The runs of one folder of runs, the newest first. A run that is only linked from there has its real path."""
    return _newest_first(_directories(root))


def newest_try(path: Path) -> Path:
    """The recording of the last try of the job of `path`; `path` itself if there was one try.

    What another user has laid beside it is none of its tries.

    Holds:   beside r-7f3a91 and r-7f3a91.2, newest_try(r-7f3a91) is the latter
    """
    newest = path
    for number in itertools.count(2):
        later = path.with_name(f"{path.name}.{number}")
        if not _is_recording(later) or not _has_same_owner(path, later):
            break
        newest = later
    return newest


def _has_same_owner(path: Path, other: Path) -> bool:
    """Whether both are of one user; a link is of who made it."""
    try:
        return os.stat(path).st_uid == os.lstat(other).st_uid == os.stat(other).st_uid
    except OSError:
        return False


def first_try(path: Path) -> Path:
    """The directory of the first try of the job of a recording; `path` itself if it is the first, or the run was not submitted.

    Holds:   beside the submission r-7f3a91, first_try(r-7f3a91.2) is r-7f3a91
    """
    base, dot, number = path.name.rpartition(".")
    return (
        path.with_name(base)
        if dot and number.isdecimal() and (path.with_name(base) / SUBMISSION_FILE).exists()
        else path
    )


def earlier_tries(path: Path) -> list[Path]:
    """The recordings of the tries of the same job before this one, the first one first.

    Holds:   beside the submission r-7f3a91, earlier_tries(r-7f3a91.3) is [r-7f3a91, r-7f3a91.2]
    """
    first = first_try(path)
    if first == path:
        return []
    number = int(path.name.rpartition(".")[2])
    tries = [first, *(first.with_name(f"{first.name}.{before}") for before in range(2, number))]
    return [one for one in tries if _is_recording(one) and _has_same_owner(path, one)]


def attempt_of(run_id: str, submission_id: str) -> tuple[str, int]:
    """The run id of the first attempt of a submitted job, and the number of the attempt `run_id`, counted from 1.

    Holds:   of r-7f3a91 and its attempts, ("r-7f3a91", 1) and ("r-7f3a91", 2) for r-7f3a91.2; of task 3 of an array ("r-7f3a91-3", 2) for
             r-7f3a91-3.2
    """
    beyond = run_id.removeprefix(submission_id)
    task, dot, number = beyond.rpartition(".")
    return (submission_id + task, int(number)) if dot and number.isdecimal() else (run_id, 1)


def is_submitted(path: Path) -> bool:
    """Whether the recording is a try of a submitted job."""
    return (first_try(path) / SUBMISSION_FILE).exists()


_STOP = "paceline stop"


def find_run(
    text: str | None, root: Path | None = None, index: Path | None = None, *, verb: str = "paceline why"
) -> Path:
    """The directory of the run that `text` names: a path, an id or the beginning of one; None is the newest run of this directory.

    A run of another directory is found by its id and never without one. `verb` is the command that asks, as a refusal names it.

    Raises:  UsageError: no such run, or more than one
    """
    if text is not None and (os.sep in text or _is_recording(Path(text))):
        return at_path(Path(text))
    root = root or runs_root()
    if text is None:
        return _newest(root, index, verb)
    if not _ID.match(text):
        raise UsageError("U09", f"{text!r} is no run id", saw="an id looks like r-7f3a91", next="paceline ps")
    if os.path.isdir(root / text):
        return newest_try(root / text)
    known = list_runs(root, index)
    matches = [run for run in known if run.id == text] or [run for run in known if run.id.startswith(text)]
    if len(matches) == 1:
        return newest_try(matches[0].path)
    if matches:
        raise UsageError(
            "U09",
            f"{len(matches)} runs begin with {text!r}",
            saw=_list([run.id for run in matches[:_MOST_LISTED]], len(matches)),
            next="type more of the id, or give the directory",
        )
    near = nearest(text, [run.id for run in known])
    saw = f"the nearest one is {near}" if near else _what_is_here(root, known)
    raise UsageError("U09", f"no run {text!r}", saw=saw, next="paceline ps --all")


def _newest(root: Path, index: Path | None, verb: str) -> Path:
    here = runs_below(root)
    if here:
        return here[0].path
    elsewhere = [run for run in list_runs(root, index) if not is_of_a_measurement(run.path)]
    if not elsewhere:
        raise UsageError(
            "U09", "no run has been recorded", saw=_what_is_here(root, elsewhere), next="paceline run train.py"
        )
    listed = [f"{run.id} of {_started_in(run.path)}" for run in elsewhere[:_MOST_LISTED]]
    raise UsageError(
        "U09",
        "no run of this directory has been recorded",
        saw=f"no runs below {root}; elsewhere: {_list(listed, len(elsewhere))}",
        # A command that acts names its run itself: the newest one elsewhere is a guess.
        next="paceline ps" if verb == _STOP else f"{verb} {elsewhere[0].id}",
    )


def is_of_a_measurement(path: Path) -> bool:
    """Whether `paceline bench` made the run for itself. It is found by its id, and is never the newest run."""
    parts = path.parts[-4:]
    return len(parts) == 4 and parts[0] in _MEASUREMENTS and _MEASUREMENT.fullmatch(parts[1]) is not None


def is_below(path: Path, root: Path) -> bool:
    """Whether a run is recorded in this folder of runs, and not only linked from it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def found_elsewhere(path: Path, text: str | None, root: Path | None = None) -> Path | None:
    """The directory of the run that `text` found, if it is another one than the current directory and was not typed."""
    typed = text is not None and (os.sep in text or _is_recording(Path(text)))
    return None if typed or is_below(path, root or runs_root()) else _started_in(path)


def _started_in(path: Path) -> Path:
    """The directory whose run this is; the recording itself if it is in no directory's own folder of runs."""
    own = path.parent.name == "runs" and path.parent.parent.name == ".paceline"
    return path.parent.parent.parent if own else path


def at_path(path: Path) -> Path:
    """`path`, where a recording lies.

    Raises:  UsageError U09: there is none, or none that can be read
    """
    if _is_recording(path):
        return path
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
        shared = f"ls -ld {path}; its owner shares a run with --set run_dir_mode=0750"
        raise UsageError("U09", f"{path} cannot be read", saw="permission denied", next=shared)
    saw = (
        "the directory has neither run.json nor hosts/" if os.path.isdir(path) else "there is no such directory to read"
    )
    raise UsageError("U09", f"{path} is no recording", saw=saw, next="paceline ps")


def of_one_run(paths: list[Path]) -> list[Path]:
    """`paths`, if no two of them belong to different runs; a directory of another host may leave it open.

    Raises:  UsageError U09: two runs, whose ranks would be judged as those of one
    """
    named = {path: run_id for path in paths if (run_id := id_in(read_document(path / "run.json"))) is not None}
    ids = list(dict.fromkeys(named.values()))
    if len(ids) > 1:
        other = next(path for path, run_id in named.items() if run_id != ids[0])
        raise UsageError(
            "U09",
            f"{other} is a recording of another run",
            saw=f"{ids[1]}, beside {ids[0]}; several directories are those of one run from its hosts",
            next=f"paceline why {other}",
        )
    return paths


def _is_recording(path: Path) -> bool:
    # Path.exists raises where os.path.exists does not: on a directory that is locked, or on a server that is gone.
    names = ("run.json", "hosts", SUBMISSION_FILE)
    return any(os.path.exists(path / name) for name in names)


def _what_is_here(root: Path, known: list[KnownRun]) -> str:
    if not known:
        return f"no runs below {root}, none in this user's index"
    return "runs that can be found: " + _list([run.id for run in known[:_MOST_LISTED]], len(known))


def _list(texts: Sequence[str], count: int) -> str:
    return ", ".join(texts) + (", ..." if count > len(texts) else "")


def _newest_first(paths: Iterable[Path]) -> list[KnownRun]:
    seen: dict[Path, KnownRun] = {}
    for path in paths:
        resolved = Path(os.path.realpath(path))
        if resolved not in seen and (known := _known(resolved)) is not None:
            seen[resolved] = known
    return sorted(seen.values(), key=lambda known: known.started_ns, reverse=True)


def _directories(root: Path) -> Iterator[Path]:
    try:
        yield from (Path(entry.path) for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return


def _indexed(index: Path | None) -> Iterator[Path]:
    try:
        entries = list((index or index_folder()).glob("*.json"))
    except (OSError, ImportError):
        return
    for entry in entries:
        directory = read_document(entry).get("directory")
        if isinstance(directory, str):
            yield Path(directory)


def _known(path: Path) -> KnownRun | None:
    if not _is_recording(path) and not os.path.exists(path / "events.jsonl"):
        return None
    # A job that an engine has, and no agent has recorded yet, is as old as its submission.
    document = read_document(path / "run.json") or _as_submitted(path)
    return KnownRun(id_in(document) or path.name, path, document)


def _as_submitted(path: Path) -> dict[str, Any]:
    submitted_ns = read_document(path / SUBMISSION_FILE).get("submitted_ns")
    return {"started_ns": submitted_ns} if submitted_ns else {}


def id_in(document: Mapping[str, Any]) -> str | None:
    """The id of a run in the content of its run.json; in paceline.run/1 the key was `id`."""
    run_id = document.get("run_id", document.get("id"))
    return run_id if isinstance(run_id, str) else None


def read_document(path: Path, most_bytes: int = _MOST_DOCUMENT_BYTES) -> dict[str, Any]:
    """A JSON object from a file; empty if the file is missing, truncated, larger than `most_bytes` or not an object."""
    try:
        return json_object(read_plain(path, most_bytes)) or {}
    except OSError:
        return {}


def _forget_old(folder: Path) -> None:
    for entry in folder.glob("*.json"):
        directory = read_document(entry).get("directory")
        old = time.time() - entry.stat().st_mtime > _FORGET_AFTER_SECONDS
        if old and isinstance(directory, str) and not Path(directory).exists():
            entry.unlink(missing_ok=True)
