"""Reads the memory of another process, and the symbols of the libraries that it has mapped. The process is neither stopped nor changed.

What is read is another program's data. Each read has a limit. A library is opened as the file that is mapped, never as a path of the
process that leads elsewhere, and is read with reads, because a mapped file that its owner cuts off ends whoever looks at it.

Reading needs the permission of a debugger (PTRACE_MODE_ATTACH_REALCREDS in ptrace(2)): the same user where Yama is absent or 0, else
CAP_SYS_PTRACE.
"""

import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 1 << 20
_LEAST_ADDRESS, _ABOVE_ADDRESSES = 0x1000, 1 << 47
_PAGE = 4096
_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)")
_MOST_MAPS_BYTES = 16 << 20
_SYS_OPENAT2, _RESOLVE_IN_ROOT, _RESOLVE_NO_MAGICLINKS = 437, 0x10, 0x02
# Symbols of libtorch_cpu take some 100 MB.
_PIECE, _MOST_TABLE_BYTES, _MOST_SECTIONS = 4 << 20, 1 << 30, 1 << 12
_EXECUTABLE = 2
_C_LIBRARIES = ("libc.so.6", "libc.musl-x86_64.so.1")
_SYMBOL_BYTES, _SYMBOL_TABLES, _MOST_PLACES = 24, (2, 11), 256
_libc = ctypes.CDLL(None, use_errno=True)
# Of a library of 434 MB they take a tenth of a second, and all ranks of a host have the same one.
_known_symbols: dict[tuple[object, ...], dict[str, int]] = {}


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Unreadable(OSError):
    """The memory cannot be read: it may not be, the process is gone, or nothing is at the address."""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file in a process's memory."""

    path: str
    """Its path as the process sees it."""
    base: int
    """Address of its first byte."""
    end: int
    """Address at which the mapping of its first byte ends."""
    device: tuple[int, int]
    """Major and minor number of its device, as in /proc/PID/maps."""
    inode: int
    """Its inode there."""


@dataclass(slots=True)
class RemoteMemory:
    """The memory of one process."""

    pid: int
    _files: tuple[MappedFile, ...] | None = field(default=None, init=False, repr=False)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes, all of them.

        Raises:  Unreadable
        """
        if not 0 < size <= MOST_BYTES or not _LEAST_ADDRESS <= address < _ABOVE_ADDRESSES:
            raise Unreadable(errno.EFAULT, f"{size} bytes at {address:#x} are not read")
        buffer = ctypes.create_string_buffer(size)
        ours, theirs = _Piece(ctypes.addressof(buffer), size), _Piece(address, size)
        done = _libc.process_vm_readv(self.pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if done != size:
            code = ctypes.get_errno() if done < 0 else errno.EFAULT
            raise Unreadable(code, os.strerror(code))
        return buffer.raw

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Unsigned words of 64 bits.

        Raises:  Unreadable
        """
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def word(self, address: int) -> int:
        """One of them.

        Raises:  Unreadable
        """
        return self.words(address, 1)[0]

    def c_string(self, address: int, most: int) -> str:
        """A text up to its NUL, or `most` bytes of it. The page behind it need not be there.

        Raises:  Unreadable
        """
        found = b""
        while len(found) < most and b"\0" not in found:
            at = address + len(found)
            found += self.read(at, min(_PAGE - at % _PAGE, most - len(found)))
        return found.partition(b"\0")[0].decode(errors="replace")

    def files(self, names: Collection[str]) -> Iterator[MappedFile]:
        """The mapped files of these names, as they were at the first call.

        Raises:  OSError: the process is gone, or is another user's
        """
        if self._files is None:
            self._files = tuple(mapped_files(self.pid))
        yield from (file for file in self._files if file.path.rpartition("/")[2] in names)

    def addresses(self, file: MappedFile, symbols: Collection[str]) -> dict[str, int]:
        """Where symbols of a mapped library or program are in the process; those that it does not have are left out.

        Raises:  OSError: the file that is mapped cannot be opened
        """
        descriptor = open_mapped(self.pid, file)
        try:
            found = os.fstat(descriptor)
            which = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, *sorted(symbols))
            if which not in _known_symbols:
                _known_symbols[which] = _symbols(descriptor, frozenset(symbols))
            kind = os.pread(descriptor, 2, 16)
        finally:
            os.close(descriptor)
        # A program that is not position-independent is where its symbols say.
        base = 0 if kind == struct.pack("<H", _EXECUTABLE) else file.base
        return {name: base + value for name, value in _known_symbols[which].items()}


def mapped_files(pid: int) -> Iterator[MappedFile]:
    """Each file of which the first byte is mapped, once.

    Raises:  OSError: the process is gone, or is another user's
    """
    seen = set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps.read(_MOST_MAPS_BYTES).splitlines():
            found = _MAP.fullmatch(line)
            if found is None or int(found[3], 16) or found[7] in seen:
                continue
            seen.add(found[7])
            device = (int(found[4], 16), int(found[5], 16))
            yield MappedFile(found[7], int(found[1], 16), int(found[2], 16), device, int(found[6]))


def open_mapped(pid: int, file: MappedFile) -> int:
    """A descriptor of the file that is mapped; the caller closes it.

    Root opens the mapping itself. Anybody else opens the path below the process's own root, where no link leads out, and compares.

    Raises:  OSError: it cannot be opened, or another file is in its place by now
    """
    try:
        return os.open(f"/proc/{pid}/map_files/{file.base:x}-{file.end:x}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pass
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = open_below(root, file.path)
    finally:
        os.close(root)
    found = os.fstat(descriptor)
    # Some file systems give a file another device number than its mapping; the inode is the same.
    if found.st_ino != file.inode:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "another file is in its place", file.path)
    return descriptor


def open_below(root: int, path: str) -> int:
    """A descriptor of a regular file, by a path for which the directory `root` is the root, whatever its links say.

    Raises:  OSError: it cannot be opened, it is a pipe, a device or a directory, or this kernel is older than 5.6
    """
    place = place_below(root, path)
    try:
        return open_regular(place, path)
    finally:
        os.close(place)


def place_below(root: int, path: str) -> int:
    """A descriptor of what is at such a path, of whatever kind. It is not opened: see O_PATH in open(2).

    Raises:  OSError: nothing is there, or this kernel is older than 5.6
    """
    how = struct.pack("<3Q", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    descriptor = _libc.syscall(_SYS_OPENAT2, root, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(descriptor)


def open_regular(place: int, path: str) -> int:
    """A descriptor to read the regular file of which `place` is a descriptor; `path` is for the words of an error.

    What is something else is not opened: that may wait, or change a device.

    Raises:  OSError: it cannot be opened, or is no regular file
    """
    if not stat.S_ISREG(os.fstat(place).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)


def read_below(pid: int, path: str, most_bytes: int) -> bytes:
    """The content of a file as the process sees it, at most `most_bytes` of it.

    Raises:  OSError: it cannot be read
    """
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = open_below(root, path)
    finally:
        os.close(root)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most_bytes)


def _symbols(descriptor: int, wanted: frozenset[str]) -> dict[str, int]:
    """The values of the symbols that an ELF file of 64 bits has, in its full table or in that of the dynamic linker."""
    found: dict[str, int] = {}
    for offset, size, texts, length in _symbol_tables(descriptor):
        places = _places_of_texts(descriptor, texts, length, wanted - found.keys())
        found |= _values(descriptor, offset, size, {struct.pack("<I", at): name for at, name in places})
    return found


def _symbol_tables(descriptor: int) -> Iterator[tuple[int, int, int, int]]:
    """Offset and size of each symbol table, and of the texts that belong to it."""
    head = os.pread(descriptor, 64, 0)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return
    start, (entry_bytes, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
    if entry_bytes != 64 or count > _MOST_SECTIONS:
        return
    raw = os.pread(descriptor, 64 * count, start) if start < 1 << 62 else b""
    sections = [struct.unpack_from("<IIQQQQIIQQ", raw, at) for at in range(0, len(raw) - 63, 64)]
    for section in sections:
        kind, offset, size, link = section[1], section[4], section[5], section[6]
        if kind in _SYMBOL_TABLES and link < len(sections):
            texts, length = sections[link][4], sections[link][5]
            if max(size, length) <= _MOST_TABLE_BYTES and max(offset, texts) < 1 << 62:
                yield offset, size, texts, length


def _places_of_texts(descriptor: int, begin: int, size: int, names: Collection[str]) -> list[tuple[int, str]]:
    """Where in a table of texts each of the names stands. It may be the end of another text: a linker writes such texts once."""
    found: list[tuple[int, str]] = []
    overlap = max((len(name) for name in names), default=0)
    tail, at = b"", 0
    while at < size and (piece := os.pread(descriptor, min(_PIECE, size - at), begin + at)):
        data, before = tail + piece, at - len(tail)
        for name in names:
            text, place = name.encode() + b"\0", -1
            while len(found) < _MOST_PLACES and (place := data.find(text, place + 1)) >= 0:
                # What lies in the overlap alone was found before.
                if place + len(text) > len(tail):
                    found.append((before + place, name))
        tail, at = data[-overlap:], at + len(piece)
    return found


def _values(descriptor: int, begin: int, size: int, wanted: dict[bytes, str]) -> dict[str, int]:
    """The values of the symbols whose names are at these places of the texts."""
    found: dict[str, int] = {}
    whole = _PIECE - _PIECE % _SYMBOL_BYTES
    for at in range(0, size, whole):
        piece = os.pread(descriptor, min(whole, size - at), begin + at)
        for needle, name in wanted.items():
            place = -1
            while name not in found and (place := piece.find(needle, place + 1)) >= 0:
                if place % _SYMBOL_BYTES == 0 and place + 16 <= len(piece):
                    # What a file takes from another one has no value in it.
                    if value := struct.unpack_from("<Q", piece, place + 8)[0]:
                        found[name] = value
        if len(piece) < whole:
            break
    return found


def environment_now(memory: RemoteMemory, most_entries: int = 4096, most_bytes: int = 1 << 16) -> dict[str, str]:
    """The environment of a process with what it has set itself; /proc/PID/environ has that of its start.

    Raises:  OSError: it may not be read, or the C library has no `environ`
    """
    # A program that is not position-independent, as Debian's Python, may have the variable of the C library, which then uses that one.
    program = os.path.basename(os.readlink(f"/proc/{memory.pid}/exe"))
    for file in memory.files((program, *_C_LIBRARIES)):
        try:
            known = memory.addresses(file, ("environ", "__environ"))
        except FileNotFoundError:
            # Another file is in its place by now.
            continue
        if known and (table := memory.word(known.get("environ") or known["__environ"])):
            break
    else:
        raise FileNotFoundError(errno.ENOENT, "no C library with an environment")
    found: dict[str, str] = {}
    for place in range(most_entries):
        pointer = memory.word(table + 8 * place)
        if not pointer:
            break
        name, sign, value = memory.c_string(pointer, most_bytes).partition("=")
        if sign:
            found[name] = value
    return found


def torch_release(memory: RemoteMemory) -> tuple[int, int] | None:
    """Major and minor number of the torch that a process has loaded, by the file beside its libraries; None: it has none, or says none.

    Raises:  OSError: what it has mapped cannot be listed
    """
    for file in memory.files(("libtorch_cpu.so",)):
        try:
            text = read_below(memory.pid, str(Path(file.path).parents[1] / "version.py"), 4096).decode(errors="replace")
        except (OSError, IndexError):
            continue
        if found := re.search(r"^__version__(?:: str)? = ['\"](\d{1,3})\.(\d{1,3})\b", text, re.MULTILINE):
            return int(found[1]), int(found[2])
    return None
