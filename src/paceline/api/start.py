"""Start a job from Python, and list runs."""

import contextlib
import functools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from paceline.api.handle import RunHandle, Runs
from paceline.errors import PacelineError, UsageError
from paceline.option import Option
from paceline.recording.runs import new_run_id, runs_root
from paceline.spelling import nearest

P = ParamSpec("P")
T = TypeVar("T")
_PROGRAM = "paceline.launch.programs.lifeline"
_START_SECONDS = 30.0
_MOST_SHOWN_BYTES = 4096
# The ranks' output goes to the recording alone, from which RunHandle.wait() and RunHandle.logs() show it.
_OUTPUT = ("--set", "progress=off", "--redirects", "3")
# What these say is this module's own.
_TAKEN = {
    "json": "RunHandle.evidence() and RunHandle.why() have it as values",
    "json_file": "RunHandle.evidence() and RunHandle.why() have it as values",
    "progress": "RunHandle.wait(show=False) prints nothing",
    "color": "a notebook shows tables",
    "job": "a job file is for paceline run --job",
    "redirects": "RunHandle.logs() has what the ranks wrote",
    "hosts": "paceline run --hosts, or paceline submit --engine ssh",
}


def _refusing_in_short(function: Callable[P, T]) -> Callable[P, T]:
    """Refusals of this function have this one frame of paceline's above the four parts."""

    @functools.wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except PacelineError as error:
            raise error.with_traceback(None) from None

    return called


@_refusing_in_short
def run(
    script: str, arguments: Sequence[str] = (), *, env: Mapping[str, str] | None = None, **options: Any
) -> RunHandle:
    """Start `paceline run SCRIPT ARGUMENTS` and return as soon as it is recorded.

    `options`: those of `paceline run` with underscores: nproc_per_node=2, max_run="2h", hp={"lr": 0.1}, channel={"train": "data"}.
    True sets a flag; a dict or a list gives an option several times; None leaves it out. `env`: variables that the ranks will find.
    The job ends when this process ends.

    Raises:  UsageError: as `paceline run` refuses it; nothing was started
    """
    argv = _words(options)
    return _start([*argv, script, *map(str, arguments)], options, env)


@_refusing_in_short
def run_function(
    function: Callable[..., Any], arguments: Sequence[Any] = (), *, env: Mapping[str, str] | None = None, **options: Any
) -> RunHandle:
    """Call a function on every rank. `RunHandle.results()` has what it returned.

    The function is found by its module and name in the ranks, as `multiprocessing` does it, and the arguments are pickled. So it must be
    in a file: a function of a notebook's cell is refused; write it with %%writefile and import it. `options`, `env`: as for `run`.

    Raises:  UsageError U28: the ranks cannot find the function, or its arguments cannot be pickled; otherwise as `run`
    """
    from paceline.api.function import PROGRAM, write_call

    run_id = options.pop("run_id", None) or new_run_id()
    root = _root(options)
    call = write_call(function, arguments, root / run_id)
    named = {"name": function.__name__, "no_check": True, **options, "run_id": run_id}
    try:
        return _start([*_words(named), "-m", PROGRAM, str(call)], named, env)
    except BaseException:
        call.unlink(missing_ok=True)
        # Something else in it is a recording, which stays.
        with contextlib.suppress(OSError):
            call.parent.rmdir()
        raise


def runs(*, everywhere: bool = False) -> Runs:
    """The runs of this directory, the newest first; with `everywhere` also those that this user started in other directories."""
    from paceline.recording.runs import first_try, is_of_a_measurement, list_runs, runs_below

    known = list_runs() if everywhere else runs_below(runs_root(environ=os.environ))
    paths = dict.fromkeys(first_try(one.path) for one in known if not is_of_a_measurement(one.path))
    return Runs(tuple(RunHandle(path) for path in paths))


def _start(words: Sequence[str], options: Mapping[str, Any], env: Mapping[str, str] | None) -> RunHandle:
    from paceline.cli.run.verb import would_run

    environ = {**os.environ, **(env or {})}
    would_run(words, environ)
    run_id = options.get("run_id") or new_run_id()
    directory = _root(options) / str(run_id)
    output = os.memfd_create("paceline.run")
    lifeline, lifeline_end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(lifeline), "run", "--set", f"run_id={run_id}", *_OUTPUT, *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            pass_fds=[lifeline],
            # Ctrl-C in a terminal goes to this process alone, which then ends the job in good order.
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline_end)
        os.close(output)
        raise
    finally:
        os.close(lifeline)
    found = RunHandle(directory, process=process, lifeline=lifeline_end, launcher_output=output)
    try:
        _wait_for_recording(process, directory, output, words)
    except BaseException:
        found.end_in_order()
        raise
    return found


def _wait_for_recording(process: "subprocess.Popen[bytes]", directory: Path, output: int, words: Sequence[str]) -> None:
    """Raises:  UsageError U28: the job ended before it was recorded."""
    deadline = time.monotonic() + _START_SECONDS
    recorded = directory / "run.json"
    while process.poll() is None and not recorded.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() not in (None, 0) and not recorded.exists():
        raise UsageError(
            "U28",
            "the job was refused while it started",
            saw=os.pread(output, _MOST_SHOWN_BYTES, 0).decode(errors="replace").strip(),
            next=shlex.join(["paceline", "run", *words]),
        )


def _root(options: Mapping[str, Any]) -> Path:
    return Path(options["run_dir"]).absolute() if options.get("run_dir") else runs_root(environ=os.environ)


def _words(options: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as options and keys of `paceline run`.

    Raises:  UsageError U01: there is no such option, or it is this module's own
    """
    from paceline.cli.job.options import VERB

    rows = {row.dest: row for row in (*VERB.options, *VERB.keys)}
    words: list[str] = []
    for name, value in options.items():
        if name in _TAKEN:
            raise UsageError("U01", f"{name} is no option here", saw=_TAKEN[name], next=f"leave {name} out")
        row = rows.get(name)
        if row is None:
            near = nearest(name, rows)
            raise UsageError(
                "U01",
                f"unknown option {name}",
                saw=f"the nearest one is {near}" if near else "options are those of paceline run, with underscores",
                next=f"{near}=..." if near else "paceline run --help",
            )
        if name != "run_id":
            words += _spelled(row, value)
    return words


def _spelled(row: Option, value: Any) -> list[str]:
    spelling = f"--{row.name}"
    if row.is_key:
        text = str(value).lower() if isinstance(value, bool) else value
        return [] if value is None else ["--set", f"{row.name}={text}"]
    if value is None or (row.is_flag and value is False):
        return []
    if row.is_flag:
        return [spelling]
    if isinstance(value, Mapping):
        value = [f"{key}={one}" for key, one in value.items()]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for one in values for word in (spelling, str(one))]
