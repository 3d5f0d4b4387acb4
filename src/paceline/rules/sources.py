"""The source files of a job that its own script imports, found without executing any: what the checks of source are asked of."""

import ast
import io
import re
import tokenize
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from paceline.contract.entry import located
from paceline.facts import Program, ProgramKind
from paceline.rules.job_facts import SourceFile
from paceline.rules.script import Script, parse

# More files than this are a library and not somebody's script.
MOST_FILES = 300
# A program file longer than this is no script that somebody wrote.
_LONGEST_SCRIPT_BYTES = 2**20
# The file's own directory of what is in it begins so; Python runs the __main__.py in there, whatever stands before.
_END_OF_ZIP = b"PK\x05\x06"
_SKIPS_IMPORT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException", "")


def read_sources(program: Program | None, directory: Path | None) -> tuple[str | None, str, tuple[SourceFile, ...]]:
    """The text of the entry point where Python will run it, its path as the job names it, and the user's own files that it imports."""
    script, path = _script(program, directory)
    if program is None or script is None:
        return script, path, ()
    base = directory or Path()
    # Python puts a script's folder first on its path, and for `-m` the directory that it starts in.
    first_on_path = base if program.kind is ProgramKind.MODULE else (base / path).parent
    return script, path, imported_files(script, path, base, first_on_path)


def imported_files(script: str, script_path: str, directory: Path, first_on_path: Path) -> tuple[SourceFile, ...]:
    """The user's own files that the script imports for certain, in the order in which they are found.

    An import under a condition, in a function or in a `try` that goes on without it may never happen and is not followed; nor is what
    lies outside `directory`. `first_on_path`: where Python looks for an absolute import first.
    """
    entry = directory / script_path
    found: dict[Path, SourceFile] = {}
    waiting = deque([(entry, script)])
    while waiting and len(found) < MOST_FILES:
        path, text = waiting.popleft()
        # Under the name that the checks use, so that they get the same tree.
        parsed = parse(text, script_path if path == entry else path.relative_to(directory).as_posix(), None)
        if isinstance(parsed, SyntaxError):
            continue
        for target in _targets(parsed, path, first_on_path, directory):
            if target == entry or target in found or (content := read_source(target)) is None:
                continue
            found[target] = SourceFile(target.relative_to(directory).as_posix(), content)
            waiting.append((target, content))
    return tuple(found.values())


def _targets(script: Script, path: Path, first_on_path: Path, directory: Path) -> Iterator[Path]:
    """The files below `directory` that the imports of one file lead to, packages before what is in them."""
    imports: list[ast.Import | ast.ImportFrom] = [*script.every(ast.Import), *script.every(ast.ImportFrom)]
    for node in imports:
        if script.is_conditional(node) or script.is_caught(node, *_SKIPS_IMPORT) or script.is_in_function(node):
            continue
        for base, name in _names(node, path, first_on_path):
            yield from (file for file in _files(base, name) if file.is_relative_to(directory))


def _names(node: ast.Import | ast.ImportFrom, path: Path, first_on_path: Path) -> Iterator[tuple[Path, str]]:
    """The dotted names that an import may mean, each with the directory it is looked up in."""
    if isinstance(node, ast.Import):
        yield from ((first_on_path, alias.name) for alias in node.names)
        return
    base = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else first_on_path
    module = node.module or ""
    if module:
        yield base, module
    yield from ((base, f"{module}.{alias.name}".lstrip(".")) for alias in node.names if alias.name != "*")


def _files(base: Path, name: str) -> Iterator[Path]:
    """The files that Python would load for a dotted name: each package on the way, and the module itself."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:length])
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                yield file
                break


def _script(program: Program | None, directory: Path | None) -> tuple[str | None, str]:
    """The text of the entry point where Python will run it, and its path as the job names it."""
    if program is None:
        return None, ""
    target = program.target
    if program.kind is ProgramKind.MODULE:
        base = (directory or Path()) / target.replace(".", "/")
        candidates = (base.with_name(f"{base.name}.py"), base / "__main__.py")
        path = next((one for one in candidates if one.is_file()), None)
        return (read_source(path), str(path.relative_to(directory or Path()))) if path is not None else (None, target)
    if program.kind is ProgramKind.EXECUTABLE or target.endswith(".sh"):
        return None, target
    return read_source(Path(located(program, directory).target)), target


def read_source(path: Path) -> str | None:
    """The file as Python would decode it; None: it cannot be read, or is a zip file. Wrong bytes become surrogates, which K06 finds."""
    try:
        if path.stat().st_size > _LONGEST_SCRIPT_BYTES:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    if _END_OF_ZIP in content:
        return None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError:
        encoding = "utf-8"
    return re.sub("\r\n?", "\n", content.decode(encoding, errors="surrogateescape"))
