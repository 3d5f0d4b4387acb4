"""Traces a script in the script's own Python, and reads the result."""

import json
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paceline
from paceline.diagnosis.crash.missing_package import install_torch
from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.launch.agent.job_processes import JobProcesses, guarded
from paceline.parts.plan.planner.trace_json import from_plain
from paceline.parts.plan.planner.workload import Workload

# Between SIGTERM and SIGKILL for what a script leaves behind. A trace has nothing to save.
_GRACE_SECONDS = 0.5
# Part of argparse's message.
_LACKS_ARGUMENTS = "arguments are required"
_WAY_ROUND = "paceline plan --model module:factory, whose factory returns the model and a batch"
# What the script starts inherits the mark. The directory in which paceline is installed comes first on the path during the trace: the
# script's Python need not have paceline.
_START = (
    "import os, sys; os.environ['PACELINE_MARK'] = sys.argv.pop(1); sys.path[0] = sys.argv.pop(1); "
    "from paceline.parts.plan.trace.__main__ import main; main()"
)
_OTHER_FRAMEWORK = re.compile(r"^\s*(?:import|from)\s+(tensorflow|tf_keras|jax)\b", re.MULTILINE)
_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_NEXT = {
    "P03": "run the script by itself, without paceline, and fix what it reports",
    "P05": "name the script that trains, with arguments that make it train; or " + _WAY_ROUND,
    "P06": _WAY_ROUND,
}


def trace(
    program: Program | None,
    *,
    python: str,
    model: str = "",
    device: str = "cuda",
    device_count: int = 1,
    world_size: int = 1,
    timeout_seconds: float = 600.0,
) -> Workload:
    """The workload of `program`, or of the factory `model` ("module:factory"), up to its first optimizer step, traced by `python`.

    `device`: the device that the script finds, "cuda" (a stand-in, no GPU is used) or "cpu". `device_count`: how many of a host it finds.

    Raises:  UsageError P03: the script failed; P05: no step, no torch, too long; P06: a size depends on values, or not traceable
    """
    mark = secrets.token_hex(8)
    # The guardian ends the script also where this process is killed.
    with tempfile.TemporaryDirectory(prefix="paceline-trace-") as scratch, guarded(mark, [Path(scratch)]) as processes:
        out, log = Path(scratch, "trace.json"), Path(scratch, "output.txt")
        shape = ["--device", device, "--devices", str(device_count), "--world-size", str(world_size)]
        command = _command(program, mark, out, shape, python=python, model=model)
        code = _run(command, log, processes, timeout_seconds)
        last_lines = _tail(log)
        found = _read(out)
    if found is not None and found.get("outcome") == "traced":
        return from_plain(found)
    name = model or (program.target if program else "")
    if found is not None:
        raise _failure(found, name, last_lines, python, other_framework(program))
    if code is None:
        raise UsageError(
            "P05",
            f"{name}: no optimizer step within {timeout_seconds:g} s",
            saw=last_lines or "the script printed nothing",
            next="--trace-timeout 30m",
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    raise UsageError("P06", f"{name}: the trace ended by {how} and left no answer", saw=last_lines, next=_NEXT["P06"])


def _command(program: Program | None, mark: str, out: Path, shape: list[str], *, python: str, model: str) -> list[str]:
    root = str(Path(paceline.__file__).parents[1])
    options = ["--out", str(out), *shape]
    if model:
        options += ["--model", model]
    if program is not None:
        options += ["-m"] if program.kind is ProgramKind.MODULE else []
        options += [program.target, *program.arguments]
    return [python, "-c", _START, mark, root, *options]


def _run(command: list[str], log: Path, processes: JobProcesses, timeout_seconds: float) -> int | None:
    """The exit code; None: the time was up. Whatever the script started, in whatever session, is ended with it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        processes.began(process.pid)
        try:
            return process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            processes.reap_orphans()
            processes.end(_GRACE_SECONDS)
            process.wait()


def _tail(log: Path, lines: int = 3) -> str:
    text = log.read_bytes()[-4000:].decode("utf-8", errors="replace")
    return " | ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip())


def _read(out: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads(out.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def other_framework(program: Program | None) -> str:
    """The framework that a script imports, if it is not torch; "" if none, or if the program is no file."""
    try:
        text = Path(program.target).read_text(encoding="utf-8") if program else ""
    except (OSError, ValueError):
        return ""
    found = _OTHER_FRAMEWORK.search(text)
    return found[1] if found and not _TORCH.search(text) else ""


def _failure(found: Mapping[str, Any], name: str, last_lines: str, python: str, other: str) -> UsageError:
    code = str(found.get("code", "P06"))
    where = f" ({found['file']}:{found['line']})" if found.get("file") else ""
    line = f"{found['text']}" if found.get("text") else ""
    saw = "; ".join(part for part in (line, str(found.get("saw") or "")) if part) or last_lines
    advice = _NEXT.get(code, _WAY_ROUND)
    if other:
        advice = f"plan reads scripts of torch, and this one imports {other}; measure a step: paceline plan --measured-step-ms MS"
    elif found.get("lacks") == "torch":
        advice = install_torch(python)
    elif _LACKS_ARGUMENTS in saw:
        advice = f"paceline plan {name} ARGUMENTS: arguments of the script stand after it"
    return UsageError(code, f"{name}{where}: {found.get('what', '')}", saw=saw, next=advice)
