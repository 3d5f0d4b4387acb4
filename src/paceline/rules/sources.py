"""The source files of a job that its own script imports, found without executing any: what the checks of source are asked of."""

import ast
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from paceline.rules.job_facts import SourceFile
from paceline.rules.script import Script, parse

# More files than this are a library and not somebody's script.
MOST_FILES = 300
_SKIPS_IMPORT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException", "")


def imported_files(
    script: str, script_path: str, directory: Path, read: Callable[[Path], str | None]
) -> tuple[SourceFile, ...]:
    """The user's own files that the script imports for certain, in the order in which they are found.

    An import under a condition, in a function or in a `try` that goes on without it may never happen and is not followed; nor is what
    lies outside `directory`. `read`: the text of a file, None where it cannot be had.
    """
    entry = directory / script_path
    found: dict[Path, SourceFile] = {}
    waiting = deque([(entry, script)])
    while waiting and len(found) < MOST_FILES:
        path, text = waiting.popleft()
        parsed = parse(text, str(path), None)
        if isinstance(parsed, SyntaxError):
            continue
        for target in _targets(parsed, path, entry.parent, directory):
            if target == entry or target in found or (content := read(target)) is None:
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
