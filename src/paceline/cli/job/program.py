"""What every rank executes, from the script that the command line names; one that cannot start is refused here."""

import argparse
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from paceline.cli.parsing import nearest
from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind


def default_name(args: argparse.Namespace) -> str:
    """The run's name where --name gives none: the script's or the module's own."""
    script: str = args.training_script
    return script.rpartition(".")[2] if args.module else Path(script).stem or "run"


def program_of(args: argparse.Namespace, environ: Mapping[str, str]) -> Program:
    """The program of torchrun's four ways to name one: script, -m, --no-python, --run-path.

    Raises:  UsageError U02: not there, not readable, not executable; U03: -m beside --no-python
    """
    target, arguments = args.training_script, tuple(args.training_script_args)
    if args.run_path:
        _require_file(args, target)
        return Program(kind=ProgramKind.RUN_PATH, target=target, arguments=arguments)
    if args.no_python and args.module:
        raise UsageError(
            "U03",
            "--no-python and -m exclude each other",
            saw=f"-m --no-python {target}",
            next=f"paceline run -m {shlex.quote(target)}",
        )
    if args.no_python:
        _require_program(target, environ)
        return Program(kind=ProgramKind.EXECUTABLE, target=target, arguments=arguments)
    if args.module:
        _require_module(target, environ)
        return Program(kind=ProgramKind.MODULE, target=target, arguments=arguments)
    _require_file(args, str(Path(args.source_dir or "") / target))
    return Program(kind=ProgramKind.SCRIPT, target=target, arguments=arguments)


def _require_file(args: argparse.Namespace, target: str) -> None:
    path = Path(target)
    # Not Path.is_dir and Path.exists, which raise where a directory on the way is locked.
    if os.path.isdir(path):
        # python runs a directory that holds __main__.py, and so does torchrun.
        if (path / "__main__.py").is_file():
            return
        raise UsageError(
            "U02",
            f"{target} is a directory without __main__.py",
            saw=str(path.resolve()),
            next=f"paceline run {target.rstrip('/')}/train.py",
        )
    if not os.path.exists(path):
        raise UsageError(
            "U02", f"there is no script {target}", saw=f"looked in {Path.cwd()}", next=_near_file(path, args)
        )
    if not os.access(path, os.R_OK):
        raise UsageError(
            "U02", f"{target} cannot be read", saw="permission denied", next=f"chmod u+r {shlex.quote(target)}"
        )


def _near_file(path: Path, args: argparse.Namespace) -> str:
    if args.training_script.isdecimal() and args.training_script_args:
        return f"{path} is a value without its option; see: paceline run --help"
    scripts = sorted(other.name for other in path.parent.glob("*.py")) if os.path.isdir(path.parent) else []
    near = nearest(path.name, scripts)
    if near:
        return f"paceline run {shlex.quote(str(path.parent / near))}"
    return "name a file that is there, or a module with: paceline run -m NAME"


def _require_program(target: str, environ: Mapping[str, str]) -> None:
    if shutil.which(target, path=environ.get("PATH", os.defpath)):
        return
    if os.access(target, os.X_OK) and os.path.isfile(target):
        raise UsageError(
            "U02",
            f"{target} is not on PATH",
            saw="a program of this directory is named with ./ in front",
            next=f"paceline run --no-python {shlex.quote('./' + target)}",
        )
    if os.path.isfile(target):
        raise UsageError(
            "U02",
            f"{target} is not executable",
            saw="--no-python runs it as a program",
            next=f"chmod +x {shlex.quote(target)}",
        )
    raise UsageError(
        "U02",
        f"there is no program {target}",
        saw="not a file, and not on PATH",
        next=f"give its whole path: paceline run --no-python /.../{Path(target).name}",
    )


def _require_module(target: str, environ: Mapping[str, str]) -> None:
    top = target.partition(".")[0]
    if target.endswith(".py") and Path(target).is_file():
        raise UsageError(
            "U02",
            f"-m takes a module name, and {target} is a file",
            saw=f"-m {target}",
            next=f"paceline run {shlex.quote(target)}",
        )
    if "PYTHON_EXEC" in environ or _is_importable(top):
        return
    raise UsageError(
        "U02",
        f"there is no module {top}",
        saw=f"looked in {Path.cwd()} and in the packages of {sys.executable}",
        next=f"pip install {top}, or run from its directory",
    )


def _is_importable(top: str) -> bool:
    # Neither runs the module: a top-level name is only looked up. The first one covers the current directory, which
    # `python -m` adds.
    try:
        return bool(importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd())]) or importlib.util.find_spec(top))
    except (ImportError, ValueError):
        return True
