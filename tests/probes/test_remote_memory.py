"""Another process's memory: what is there is read, what is not is an error, and no file of its own leads its reader elsewhere."""

import ctypes
import mmap
import os
import random
import stat
import struct
import subprocess
import sys

import pytest

from paceline.probes import remote_memory
from paceline.probes.remote_memory import (
    MOST_BYTES,
    RemoteMemory,
    Unreadable,
    environment_now,
    mapped_files,
    open_below,
    open_mapped,
    read_below,
    torch_release,
)

HERE = RemoteMemory(os.getpid())
PAGE = mmap.PAGESIZE


@pytest.fixture
def page():
    """Two pages side by side, of which the second may not be read: its bytes and its address."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert libc.mprotect(address + PAGE, PAGE, 0) == 0
    yield memory, address
    assert libc.mprotect(address + PAGE, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_bytes_words_and_texts_are_read_as_they_are(page):
    memory, address = page
    memory[:24] = struct.pack("<3Q", 1, 2**64 - 1, 3)
    assert HERE.words(address, 3) == (1, 2**64 - 1, 3) and HERE.word(address + 16) == 3
    memory[:9] = "grün\0x".encode().ljust(9, b"\0")
    assert HERE.c_string(address, 100) == "grün" and HERE.c_string(address, 2) == "gr"


def test_a_text_at_the_end_of_what_is_there_is_read_and_one_beyond_it_is_an_error(page):
    memory, address = page
    memory[PAGE - 4 : PAGE] = b"end\0"
    assert HERE.c_string(address + PAGE - 4, 4096) == "end"
    memory[PAGE - 1] = ord("x")
    with pytest.raises(Unreadable):
        HERE.c_string(address + PAGE - 4, 4096)


@pytest.mark.parametrize(
    ("address", "size"),
    [
        (0, 8),
        (8, 8),
        (-8, 8),
        (1 << 47, 8),
        (1 << 63, 8),
        (1 << 64, 8),
        (1 << 46, 0),
        (1 << 46, -1),
        (1 << 46, MOST_BYTES + 1),
        (1 << 46, 8),
    ],
)
def test_where_nothing_is_is_an_error(address, size):
    with pytest.raises(Unreadable):
        HERE.read(address, size)


def test_a_read_that_would_be_cut_off_is_an_error(page):
    _, address = page
    with pytest.raises(Unreadable):
        HERE.read(address + PAGE - 4, 8)


@pytest.mark.process
def test_a_process_that_is_gone_is_an_error():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    with pytest.raises(Unreadable, match="No such process"):
        RemoteMemory(done.pid).read(1 << 40, 8)
    with pytest.raises(OSError):
        list(RemoteMemory(done.pid).files(("libc.so.6",)))


CHANGES = """
import os, sys
os.environ["SET_LATER"] = "later=than the start"
del os.environ["GIVEN"]
print("set", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_the_environment_is_that_of_now(python):
    # Debian's is not position-independent, and has the variable of the C library.
    if not os.path.exists(python):
        pytest.skip(f"no {python}")
    environment = {"GIVEN": "1", "KEPT": "grün", "PATH": os.environ.get("PATH", "")}
    with subprocess.Popen(
        [python, "-c", CHANGES], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "set\n"
        found = environment_now(RemoteMemory(process.pid))
        process.stdin.close()
    assert found["SET_LATER"] == "later=than the start" and found["KEPT"] == "grün" and "GIVEN" not in found


def test_an_address_of_a_symbol_is_where_the_process_has_it():
    (libc,) = HERE.files(("libc.so.6",))
    found = HERE.addresses(libc, ("environ", "printf", "no_such_symbol"))
    known = ctypes.CDLL(None)
    assert found.keys() == {"environ", "printf"}
    assert found["environ"] == ctypes.addressof(ctypes.c_void_p.in_dll(known, "environ"))
    assert found["printf"] == ctypes.cast(known.printf, ctypes.c_void_p).value


def test_without_torch_there_is_no_release(monkeypatch):
    monkeypatch.setattr(remote_memory, "mapped_files", lambda pid: iter(()))
    assert torch_release(RemoteMemory(os.getpid())) is None


# --------------------------------------------------------------------------------------------------- files of the process


@pytest.fixture
def root(tmp_path):
    """A directory that stands for a process's root, and one beside it."""
    (tmp_path / "root/lib").mkdir(parents=True)
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "root/lib/inside").write_text("inside")
    descriptor = os.open(tmp_path / "root", os.O_PATH)
    yield tmp_path, descriptor
    os.close(descriptor)


def content(descriptor):
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def test_a_path_is_that_of_the_root(root):
    folder, descriptor = root
    (folder / "root/link").symlink_to("/lib/inside")
    for path in ("/lib/inside", "lib/inside", "/lib/../../../lib/inside", "/link", "//lib//inside"):
        assert content(open_below(descriptor, path)) == b"inside"


@pytest.mark.parametrize(
    "target", ["../outside", "{outside}", "../../outside", "/proc/self/root{outside}", "/dev/../../outside"]
)
def test_no_link_leads_out_of_it(root, target):
    folder, descriptor = root
    (folder / "root/lib/link").symlink_to(target.format(outside=folder / "outside"))
    with pytest.raises(OSError):
        open_below(descriptor, "/lib/link")


def test_what_is_no_regular_file_is_not_opened(root):
    folder, descriptor = root
    os.mkfifo(folder / "root/pipe")
    if os.geteuid() == 0:
        os.mknod(folder / "root/device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        (folder / "root/device").mkdir()
    for path in ("/pipe", "/device", "/lib"):
        with pytest.raises(OSError, match="no regular file"):
            open_below(descriptor, path)


def test_a_file_is_read_up_to_a_limit(tmp_path):
    (tmp_path / "text").write_text("x" * 1000)
    assert read_below(os.getpid(), str(tmp_path / "text"), 10) == b"x" * 10


@pytest.mark.parametrize("how", ["mapping", "path"])
def test_what_is_opened_is_what_is_mapped(tmp_path, how, monkeypatch):
    if how == "path":
        opened = os.open
        monkeypatch.setattr(os, "open", lambda path, *rest, **named: _without_mappings(opened, path, *rest, **named))
    elif os.geteuid() != 0:
        pytest.skip("a mapping itself is root's to open")
    file = tmp_path / "library.so"
    file.write_bytes(b"mapped".ljust(PAGE))
    with file.open("rb") as opened_file, mmap.mmap(opened_file.fileno(), 0, access=mmap.ACCESS_READ):
        (found,) = (one for one in mapped_files(os.getpid()) if one.path == str(file))
        assert content(open_mapped(os.getpid(), found)).startswith(b"mapped")
        (tmp_path / "other").write_bytes(b"another")
        os.replace(tmp_path / "other", file)
        if how == "mapping":
            assert content(open_mapped(os.getpid(), found)).startswith(b"mapped")
        else:
            with pytest.raises(OSError, match="another file"):
                open_mapped(os.getpid(), found)


def _without_mappings(opened, path, *rest, **named):
    if "map_files" in str(path):
        raise PermissionError
    return opened(path, *rest, **named)


# ------------------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize("piece", [1, 2, 5, 64])
def test_a_name_is_found_wherever_a_piece_of_the_table_ends(tmp_path, piece, monkeypatch):
    monkeypatch.setattr(remote_memory, "_PIECE", piece)
    texts = b"\0__environ\0fprintf\0printf_unlocked\0environment\0"
    (tmp_path / "texts").write_bytes(b"##" + texts)
    with (tmp_path / "texts").open("rb") as file:
        found = remote_memory._places_of_texts(file.fileno(), 2, len(texts), ("environ", "printf"))
    assert sorted(found) == [(texts.index(b"environ\0"), "environ"), (texts.index(b"printf\0"), "printf")]


def _elf(sections: bytes, count: int, start: int = 64) -> bytes:
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, start)
    struct.pack_into("<HH", head, 58, 64, count)
    return bytes(head) + sections


def _section(kind: int, offset: int, size: int, link: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 0, 24)


HOSTILE = {
    "empty": b"",
    "no ELF": b"MZ" * 100,
    "32 bits": b"\x7fELF\x01\x01" + bytes(100),
    "no sections": _elf(b"", 60_000),
    "sections elsewhere": _elf(b"", 8, (1 << 64) - 1),
    "a table beyond the end": _elf(_section(2, 1 << 40, 1 << 20, 0), 1),
    "a table at the end of all numbers": _elf(_section(2, (1 << 64) - 8, 24, 0), 1),
    "an endless table": _elf(_section(2, 64, (1 << 64) - 1, 0), 1),
    "texts of another file": _elf(_section(2, 64, 24, 77), 1),
    "its own texts": _elf(_section(2, 0, 200, 0) + b"\0environ\0" + bytes(100), 1),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_file_makes_its_reader_raise_or_go_on_without_end(tmp_path, kind):
    (tmp_path / "library").write_bytes(HOSTILE[kind])
    with (tmp_path / "library").open("rb") as file:
        remote_memory._symbols(file.fileno(), frozenset({"environ"}))


@pytest.mark.parametrize("seed", range(30))
def test_no_changed_bytes_do_either(tmp_path, seed):
    drawn = random.Random(seed)
    texts = b"\0environ\0printf\0"
    symbols = struct.pack("<IIQQ", 1, 0, 77, 8) + struct.pack("<IIQQ", 9, 0, 78, 8)
    whole = bytearray(_elf(_section(2, 192, 48, 1) + _section(3, 240, len(texts), 0), 2) + symbols + texts)
    path = tmp_path / "library"
    path.write_bytes(whole)
    with path.open("rb") as file:
        assert remote_memory._symbols(file.fileno(), frozenset({"environ", "printf", "none"})) == {
            "environ": 77,
            "printf": 78,
        }
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(drawn.randrange(1, 6)):
            changed[drawn.randrange(6, len(changed))] = drawn.randrange(256)
        path.write_bytes(changed[: drawn.randrange(len(changed))] if drawn.random() < 0.3 else changed)
        with path.open("rb") as file:
            remote_memory._symbols(file.fileno(), frozenset({"environ", "printf"}))
