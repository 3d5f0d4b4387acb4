"""requirements.txt, installed once per machine and run, only if the user asked for it.

It goes into the environment of the Python that runs the ranks, as in a SageMaker container: a separate directory would
bring a second torch. That is why a plain run never does it.
"""

import fcntl
import hashlib
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Contract, Program, ProgramKind
from paceline.own_program import module_argv

_LAST_LINES = 8


def wanted(contract: Contract, program: Program) -> Path | None:
    """The requirements.txt that this run installs: of the contract's code directory, or beside the script when asked.

    Raises:  UsageError E01: --set install_requirements was given and there is no requirements.txt
    """
    if contract.code_dir is not None:
        file = (Path(contract.code_dir) / "requirements.txt").absolute()
        if file.is_file() or not contract.install_requirements:
            return file if file.is_file() else None
    elif not contract.install_requirements:
        return None
    else:
        script = program.kind in (ProgramKind.SCRIPT, ProgramKind.RUN_PATH)
        file = (Path(program.target).parent if script else Path()) / "requirements.txt"
    if file.is_file():
        return file.absolute()
    raise UsageError(
        "E01",
        "--set install_requirements: there is no requirements.txt",
        saw=f"no file {file}",
        next="leave --set install_requirements out",
    )


def install(
    file: Path, *, python: str, lock_directory: Path, run_id: str, environment: Mapping[str, str] | None = None
) -> bool:
    """Let pip install the file, once per machine and run; True: it was installed now, by this call.

    Blocks while another agent installs. `lock_directory` must be local to the machine and exist. `environment` is that
    of pip, with the run's mark, so that the guardian ends it too.

    Raises:  UsageError E01: pip failed; `saw` holds the last lines it printed
    """
    digest = hashlib.sha256("\0".join((run_id, python, str(file))).encode() + file.read_bytes()).hexdigest()[:16]
    done = lock_directory / f"requirements-{digest}.done"
    with (lock_directory / f"requirements-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return False
        _pip_install(file, python, environment)
        done.touch()
    return True


def command(file: Path, python: str) -> list[str]:
    """The argument list of pip; relative paths inside the file are below its own directory."""
    if "/" in python:
        python = str(Path(python).absolute())  # pip runs in the file's directory
    return module_argv(python, "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(file))


def last_lines(output: str) -> str:
    """The end of pip's output and, if it came earlier, the line that names the error above it."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    end = lines[-_LAST_LINES:]
    named = [line for line in lines[:-_LAST_LINES] if line.lower().startswith("error")]
    return "\n".join(named[:1] + end)


def _pip_install(file: Path, python: str, environment: Mapping[str, str] | None) -> None:
    words = command(file, python)
    finished = subprocess.run(
        words,
        cwd=file.parent,
        env=dict(environment) if environment is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode != 0:
        raise UsageError(
            "E01",
            f"{file} failed to install (pip ended with code {finished.returncode})",
            saw=last_lines(finished.stdout),
            next=shlex.join(words),
        )
