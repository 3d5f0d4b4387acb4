"""What a process brings to its rendezvous, in lines `name=value`: the arguments of its call, and its code and libraries.

This process reads the variables itself, because /proc/PID/environ shows their values at the start of the process.
"""

import os
import platform
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .module_namespace import namespace_of

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_ROOM = 1023
_LONGEST_VALUE = 128
_LARGEST_CODE_BYTES = 8 << 20
_END_BYTES = 64 << 10


def identity(given: dict[str, Any], rank: int | None, world_size: int | None) -> str:
    """`given`: the arguments of init_process_group by name. The text fits the ring's room; a line that does not fit is left out whole."""
    lines: list[str] = []
    for name, value in _values(given, rank, world_size):
        # A line break in a value would start a new line.
        line = f"{name}={' '.join(str(value).split())[:_LONGEST_VALUE]}"
        if sum(len(text.encode("utf-8", "replace")) + 1 for text in (*lines, line)) <= _ROOM:
            lines.append(line)
    return "\n".join(lines)


def _values(given: dict[str, Any], rank: int | None, world_size: int | None) -> Iterator[tuple[str, Any]]:
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value is not None:
            yield name, value
    for name in ("backend", "init_method"):
        if given.get(name):
            yield name, given[name]
    if given.get("store") is not None:
        yield "store", type(given["store"]).__name__
    yield from ((name, os.environ[name]) for name in VARIABLES if name in os.environ)
    yield "python", platform.python_version()
    for name in ("torch", "tensorflow"):
        version = namespace_of(sys.modules.get(name)).get("__version__")
        if version is not None:
            yield name, version
    yield from _code()


def _code() -> Iterator[tuple[str, Any]]:
    """Checksums of the script, and of the modules that were imported from its directory."""
    named = getattr(sys.modules.get("__main__"), "__file__", None)
    # The file of a zip application's __main__.py is the archive.
    script = next((path for path in (Path(named), *Path(named).parents) if path.is_file()), None) if named else None
    if script is None:
        return
    yield "script", script.name
    yield "script_crc", f"{zlib.crc32(_content(script)):08x}"
    directory = str(script.resolve().parent) + os.sep
    found = {str(file) for module in list(sys.modules.values()) if (file := namespace_of(module).get("__file__"))}
    # A virtual environment may be below the project. The library versions already describe its packages.
    own = sorted(
        file
        for file in found
        if file.startswith(directory)
        and "site-packages" not in file
        and not file.startswith(_OURS)
        and os.path.isfile(file)
    )
    total, size = 0, 0
    for file in own:
        size += os.path.getsize(file)
        if size > _LARGEST_CODE_BYTES:
            return
        raw = Path(file).read_bytes()
        total = zlib.crc32(raw, zlib.crc32(file[len(directory) :].encode(), total))
    yield "code_crc", f"{total:08x}"
    yield "code_files", len(own)


def _content(file: Path) -> bytes:
    """What the file holds; of a large one (a zip application with its libraries), its size, its beginning and its end."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size <= _LARGEST_CODE_BYTES:
            return opened.read(_LARGEST_CODE_BYTES)
        begin = opened.read(_END_BYTES)
        # The end of a zip file has the checksum of every file in it.
        opened.seek(size - _END_BYTES)
        return b"%d\n" % size + begin + opened.read(_END_BYTES)
