"""Puts calls into the heads of the loops of the user's own files, when these files are compiled. No file is changed.

The main script is compiled by `run_script.py`, other files by the import system: `watch_imports` lets their loader compile the changed
tree. Such code is never read from or written to `__pycache__`, because other processes would find it there.
"""

import ast
import builtins
import contextlib
import functools
import os
import sys
import threading
import warnings
import zlib
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import cache_from_source
from types import CodeType, FrameType, ModuleType
from typing import Any

from ....worker.error_file import is_users, is_users_directory
from ..loops_in_source import AGAIN, CALL, WHILE, decoded, put_calls

# File of the user -> checksum of the source that this process has compiled. The file on the disk may be another one by now.
compiled: dict[str, int] = {}
_directory = ""


def code_of(script: str) -> CodeType:
    """The code of a script, with the calls where it is the user's own.

    Raises:  OSError: the file cannot be read
             SyntaxError, ValueError: it is not Python
    """
    path = os.path.join(os.getcwd(), script)
    with open(path, "rb") as file:
        source = file.read()
    # A file may be nested too deeply for a syntax tree, but not for the parser alone.
    with contextlib.suppress(RecursionError):
        if is_users(path):
            return transform(source, path)
    return compile(source, path, "exec", dont_inherit=True)


def transform(source: bytes | str, path: str) -> CodeType:
    """The code of a file, with the calls. `path`: the file name in its tracebacks.

    Raises:  SyntaxError, ValueError: the source is not Python
             RecursionError: the source is nested too deeply for a syntax tree
    """
    return _compile(_tree(source, path)[0], path)


def _tree(source: bytes | str, path: str) -> tuple[ast.Module, bool]:
    """The syntax tree with the calls, and whether there are any."""
    tree = ast.parse(source, path)
    compiled[path] = zlib.crc32(source.encode(errors="surrogatepass") if isinstance(source, str) else source)
    return tree, put_calls(tree, decoded(source))


def _compile(source: ast.Module | bytes, path: str) -> CodeType:
    for name, function in ((CALL, _same), (WHILE, _nothing), (AGAIN, _true)):
        if not hasattr(builtins, name):
            setattr(builtins, name, function)
    return compile(source, path, "exec", dont_inherit=True)


@functools.cache
def portable(file: str) -> str:
    """The name of a user's file in a kept state: below the program's own directory, which another attempt of the job may have elsewhere."""
    return os.path.relpath(os.path.realpath(file), _directory) if _directory else file


def watch_imports(directory: str = "") -> None:
    """Let the modules of the user's own files be compiled with the calls, from now on. A second call does nothing.

    `directory`: the program's own, an absolute path without links.
    """
    global _directory
    _directory = _directory or directory
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _same(line: int, source: Iterable[Any], frame: FrameType | None = None) -> Iterable[Any]:
    """The call where no session has begun."""
    return source


def _nothing(line: int, last_line: int) -> None:
    """The call before a `while` where no session has begun."""


def _true(line: int) -> bool:
    """The call in a `while` where no session has begun."""
    return True


class _Finder:
    """Asks the other finders, and changes how the loader of a user's file gets the code. The loader keeps its type."""

    def __init__(self) -> None:
        self._asking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        asking: set[str] = self._asking.__dict__.setdefault("names", set())
        # Another finder may ask all finders as well.
        if name in asking:
            return None
        asking.add(name)
        try:
            for finder in list(sys.meta_path):
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find else None
                if spec is not None:
                    if type(spec.loader) is SourceFileLoader and is_users_directory(os.path.dirname(spec.loader.path)):
                        _compile_changed(spec.loader)
                    return spec
            return None
        finally:
            asking.discard(name)


def _compile_changed(loader: SourceFileLoader) -> None:
    """Let this loader return the code with the calls, once. A file that gets no call or cannot be read is loaded as usual."""
    try:
        source = loader.get_data(loader.path)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            tree, is_changed = _tree(source, loader.path)
            if not is_changed:
                return
            code = _compile(tree, loader.path)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return

    def get_code(fullname: str) -> CodeType:
        del loader.get_code
        # Python warns of a file when it compiles the file for the cache.
        if warned and not os.path.exists(cache_from_source(loader.path)):
            _compile(source, loader.path)
        return code

    # The function is set on the instance, because importlib.resources and inspect look at the loader's type.
    loader.get_code = get_code  # type: ignore[method-assign]
