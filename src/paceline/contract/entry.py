"""The entry point as an argument list. Nothing here passes through a shell, so no quoting can break it."""

from collections.abc import Sequence
from pathlib import Path

from paceline.facts import Program, ProgramKind

SHELL = "/bin/sh"
_RUN_PATH = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def command(
    program: Program, *, python: str, arguments: Sequence[str] | None = None, first_line: str = ""
) -> list[str]:
    """What one rank executes. `arguments` replaces the program's own, `first_line` is that of a `.sh` file.

    A `.sh` file runs under the interpreter its `#!` line names, as SageMaker's own exec of it would, and otherwise
    under /bin/sh; unlike there it keeps its arguments and needs no execute permission.

    Holds:   command(Program(SCRIPT, "t.py", ("a b",)), python="p") == ["p", "-u", "t.py", "a b"]
    """
    argv = list(program.arguments if arguments is None else arguments)
    match program.kind:
        case ProgramKind.EXECUTABLE:
            return [program.target, *argv]
        case ProgramKind.MODULE:
            return [python, "-u", "-m", program.target, *argv]
        case ProgramKind.RUN_PATH:
            return [python, "-u", "-c", _RUN_PATH, program.target, *argv]
    if is_shell_script(program):
        return [*_interpreter(first_line), program.target, *argv]
    return [python, "-u", program.target, *argv]


def is_shell_script(program: Program) -> bool:
    """Whether the program is a `.sh` file, which torchrun would hand to Python."""
    return program.kind is ProgramKind.SCRIPT and program.target.endswith(".sh")


def is_python(program: Program) -> bool:
    """Whether the program is started by a Python interpreter."""
    return program.kind is not ProgramKind.EXECUTABLE and not is_shell_script(program)


def first_line_of(path: str | Path) -> str:
    """The `#!` line of a file; empty if there is none or the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    return line.decode(errors="replace").rstrip() if line.startswith(b"#!") else ""


def located(program: Program, code_dir: str | Path | None) -> Program:
    """The program with a relative script looked up in the code directory first, as SageMaker does with source_dir."""
    if code_dir is None or program.kind not in (ProgramKind.SCRIPT, ProgramKind.RUN_PATH):
        return program
    candidate = Path(code_dir) / program.target
    path = candidate if candidate.exists() else Path(program.target)
    # Absolute, because the code directory is also where the ranks start.
    return Program(kind=program.kind, target=str(path.absolute()), arguments=program.arguments)


def _interpreter(first_line: str) -> list[str]:
    # The kernel passes everything after the interpreter as one argument; so does this.
    argv = first_line.removeprefix("#!").strip().split(None, 1) if first_line.startswith("#!") else []
    return [word.strip() for word in argv] or [SHELL]
