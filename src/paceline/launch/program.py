"""Checks the program that every rank executes, and refuses a program that cannot start on this host."""

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from paceline.contract.entry import first_line_of, is_shell_script
from paceline.errors import UsageError
from paceline.facts import Job, Program, ProgramKind
from paceline.spelling import nearest


def require_program(job: Job, environ: Mapping[str, str]) -> None:
    """Check that the job's program exists and can be started, as far as this is possible without running it.

    Raises:  UsageError U02: the program does not exist, is not readable, or is not executable
    """
    program = job.program
    if program.kind is ProgramKind.EXECUTABLE:
        _require_executable(program.target, environ)
    elif program.kind is ProgramKind.MODULE:
        _require_module(program.target, environ)
    elif program.kind is ProgramKind.RUN_PATH:
        _require_file(program, program.target)
    else:
        _require_file(program, str(Path(job.contract.code_dir or "") / program.target))


def _require_file(program: Program, target: str) -> None:
    path = Path(target)
    # Path.is_dir and Path.exists are not used: they raise if a directory on the path is not accessible.
    if os.path.isdir(path):
        # python runs a directory with a __main__.py, and so does torchrun.
        if (path / "__main__.py").is_file():
            return
        raise UsageError(
            "U02",
            f"{target} is a directory without __main__.py",
            saw=str(path.resolve()),
            next=_script_of(target),
        )
    if os.path.islink(path) and not os.path.exists(path):
        raise UsageError(
            "U02",
            f"{target} is a link to {os.readlink(path)}, which is not there",
            saw=f"looked in {Path.cwd()}",
            next=f"ls -l {shlex.quote(target)}",
        )
    if not os.path.exists(path):
        raise UsageError(
            "U02", f"there is no script {target}", saw=f"looked in {Path.cwd()}", next=near_script(program, path)
        )
    if not os.access(path, os.R_OK):
        raise UsageError(
            "U02", f"{target} cannot be read", saw="permission denied", next=f"chmod u+r {shlex.quote(target)}"
        )
    # The first line of a .py file may name what finds a Python for it, such as uv.
    is_named = is_shell_script(program) or target.endswith(".py")
    # A pipe, such as the <(...) of a shell, can be read once only.
    if path.is_file() and not is_named and (line := first_line_of(path)) and "python" not in line:
        program_file = target if "/" in target else f"./{target}"
        raise UsageError(
            "U02",
            f"{target} is a script of another program than Python",
            saw=line,
            next=f"--no-python {shlex.quote(program_file)} instead of {shlex.quote(program.target)}",
        )


def _script_of(directory: str) -> str:
    """The advice for a directory that is no program: the script that lies in it, if there is one alone."""
    scripts = sorted(path.name for path in Path(directory).glob("*.py") if path.name != "__init__.py")
    if len(scripts) == 1:
        return f"{shlex.quote(os.path.join(directory, scripts[0]))} instead of {shlex.quote(directory)}"
    return f"ls {shlex.quote(directory)}"


def near_script(program: Program, path: Path) -> str:
    """The advice for a script that does not exist at `path`."""
    if advice := _misplaced(program, path):
        return advice
    # Without the suffix, which makes all names alike.
    scripts = sorted(other.stem for other in path.parent.glob("*.py")) if os.path.isdir(path.parent) else []
    if near := nearest(path.name.removesuffix(".py"), scripts):
        return f"{shlex.quote(str(Path(program.target).parent / near))}.py instead of {shlex.quote(program.target)}"
    there = next((parent for parent in path.parents if os.path.isdir(parent)), Path("."))
    return f"ls {shlex.quote(str(there))}"


def _misplaced(program: Program, path: Path) -> str:
    """The advice for a script that stands behind the word that was taken for it, or with it in one name; "" if it does not."""
    words = (path.name, *program.arguments)
    given = (program.target, *program.arguments)
    for count in range(2, len(words) + 1):
        if os.path.isfile(path.with_name(" ".join(words[:count]))):
            return f"{shlex.quote(' '.join(given[:count]))} instead of {shlex.join(given[:count])}"
    if program.target in _STARTS_SCRIPTS and program.arguments:
        return f"leave {program.target} out"
    if program.target in _UNITS and program.arguments:
        return f"write a number and its unit as one word, such as 12{program.target[0]}"
    first = program.arguments[0] if program.arguments else ""
    if first.endswith(".py") and os.path.isfile(path.with_name(first)):
        return f"leave {shlex.quote(program.target)} out"
    return ""


# Programs that start a script elsewhere. Here paceline does.
_STARTS_SCRIPTS = ("python", "python3", "torchrun")
_UNITS = ("s", "m", "h", "d", "sec", "min", "hours", "days")


def _require_executable(target: str, environ: Mapping[str, str]) -> None:
    if shutil.which(target, path=environ.get("PATH", os.defpath)):
        return
    if os.access(target, os.X_OK) and os.path.isfile(target):
        raise UsageError(
            "U02",
            f"{target} is not on PATH",
            saw="a program of this directory is named with ./ in front",
            next=f"{shlex.quote('./' + target)} instead of {shlex.quote(target)}",
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
        next=f"command -v {shlex.quote(Path(target).name)}",
    )


def _require_module(target: str, environ: Mapping[str, str]) -> None:
    top = target.partition(".")[0]
    if not top:
        absolute = target.lstrip(".")
        raise UsageError(
            "U02",
            f"-m takes a module's name from the top, and {target} is a relative one",
            saw=f"-m {target}",
            next=f"{shlex.quote(absolute)} instead of {shlex.quote(target)}" if absolute else "-m train",
        )
    if target.endswith(".py") and Path(target).is_file():
        raise UsageError(
            "U02",
            f"-m takes a module name, and {target} is a file",
            saw=f"-m {target}",
            next="leave -m out",
        )
    if "PYTHON_EXEC" in environ:
        return
    if _is_importable(top):
        _require_file_of_module(target)
        return
    raise UsageError(
        "U02",
        f"there is no module {top}",
        saw=f"looked in {Path.cwd()} and in the packages of {sys.executable}",
        next=_near_module(target),
    )


def _require_file_of_module(target: str) -> None:
    """Of a module in a package of the current directory: its file. Packages elsewhere may find their modules in any way."""
    path = Path.cwd().joinpath(*target.split("."))
    package = path.parent
    if "." not in target or not (package / "__init__.py").is_file():
        return
    forms = (path.with_suffix(".py"), path / "__main__.py", path / "__init__.py")
    if any(form.is_file() for form in forms) or any(package.glob(f"{path.name}.*")):
        return
    raise UsageError(
        "U02",
        f"there is no module {target}",
        saw=f"no {path.name}.py in {package}",
        next=f"ls {shlex.quote(os.path.relpath(package))}",
    )


def _near_module(target: str) -> str:
    """The advice for a module that does not exist. It installs nothing: a package of a misspelt name may be anybody's."""
    here = [path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    near = nearest(target.partition(".")[0], sorted(here))
    return f"{near} instead of {target}" if near else f"cd /the/directory/of/{target.partition('.')[0]}"


def _is_importable(top: str) -> bool:
    # Neither search runs the module: a top-level name is only looked up. The first search covers the current directory, which
    # `python -m` adds.
    try:
        return bool(importlib.machinery.PathFinder.find_spec(top, [str(Path.cwd())]) or importlib.util.find_spec(top))
    except (ImportError, ValueError):
        return True
