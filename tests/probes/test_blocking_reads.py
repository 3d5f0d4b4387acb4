"""Reads that may never return: on file systems that never answer, of files that another process sees, with a child that is killed."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from patience import patient

from paceline.probes.blocking_reads import MOST_BYTES, BoundedReader, TimedOut
from paceline.probes.processes import read_stat

pytestmark = pytest.mark.process

# Enough for a machine that is busy; a read takes a tenth of a millisecond.
SECONDS = 20.0

# A FUSE file system in a mount namespace of this process, over the directory that is given. The server of a "deaf" one never says hello,
# so a look-up waits until a signal ends it; that of a "mute" one takes each request and never answers, so nothing ends it.
NEVER_ANSWERS = """
import ctypes, os, struct, sys
kind, folder = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def checked(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

device = os.open("/dev/fuse", os.O_RDWR)
checked(libc.unshare(0x20000))
checked(libc.mount(b"none", b"/", None, 0x44000, None))
options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
checked(libc.mount(b"dataset", folder.encode(), b"fuse", 0, options.encode()))
if kind == "mute":
    hello = os.read(device, 1 << 18)
    unique = struct.unpack_from("<Q", hello, 8)[0]
    said = struct.pack("<IIIIHHI", 7, 31, 1 << 16, 0, 12, 9, 1 << 16).ljust(64, b"\\0")
    os.write(device, struct.pack("<IiQ", 16 + len(said), 0, unique) + said)
print("mounted", flush=True)
while kind == "mute":
    os.read(device, 1 << 18)
sys.stdin.read()
"""

IN_A_ROOT = """
import os, sys
os.chroot(sys.argv[1])
os.chdir("/")
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def program(code, *arguments):
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            if not process.stdout.readline():
                pytest.skip(process.stderr.read().strip().splitlines()[-1])
            yield process.pid
        finally:
            process.kill()


@contextmanager
def file_system(kind, folder):
    """The path of a file on one that never answers, and the process that sees it."""
    with program(NEVER_ANSWERS, kind, folder) as pid:
        yield pid, f"/proc/{pid}/root{folder}/file"


def children():
    """The readers that this process has, and their states; what has ended and was not taken away is one of them."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        one = read_stat(pid)
        with suppress(OSError):
            # What has ended has no command line.
            if (
                one
                and one.parent == os.getpid()
                and (one.state == "Z" or b"blocking_reads" in Path(f"/proc/{pid}/cmdline").read_bytes())
            ):
                found[pid] = one.state
    return found


def until(holds, seconds=20.0):
    ends_at = time.monotonic() + patient(seconds)
    while not holds() and time.monotonic() < ends_at:
        time.sleep(0.02)
    return holds()


@pytest.fixture
def reader():
    before = children().keys()
    with BoundedReader() as one:
        yield one
    assert children().keys() == before


# ------------------------------------------------------------------------------------------------------------- what is read


def test_one_child_reads_many_files(reader, tmp_path):
    before = set(children())
    for number in range(50):
        (tmp_path / "file").write_bytes(b"%d" % number * 1000)
        assert reader.read(str(tmp_path / "file"), 100_000, SECONDS) == b"%d" % number * 1000
    assert len(set(children()) - before) == 1
    began = time.monotonic()
    for _ in range(100):
        reader.read(str(tmp_path / "file"), 100_000, SECONDS)
    assert time.monotonic() - began < patient(1.0)


def test_what_a_process_was_started_with_is_read(reader):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"RANK": "3"}) as other:
        until(lambda: b"RANK" in Path(f"/proc/{other.pid}/environ").read_bytes())
        assert reader.read(f"/proc/{other.pid}/environ", 4096, SECONDS) == b"RANK=3\0"
        assert reader.read(f"/proc/{other.pid}/cmdline", 4096, SECONDS).endswith(b"\0-c\0input()\0")
        other.communicate(b"\n")


@pytest.mark.parametrize("most", [0, 1, 999, 1000, 1001, MOST_BYTES])
def test_no_more_is_read_than_was_asked_for(reader, tmp_path, most):
    (tmp_path / "file").write_bytes(b"x" * 1000)
    assert reader.read(str(tmp_path / "file"), most, SECONDS) == b"x" * min(most, 1000)


def test_a_large_file_is_read_whole(reader, tmp_path):
    content = os.urandom(1 << 20) * 5 + b"end"
    (tmp_path / "file").write_bytes(content)
    assert reader.read(str(tmp_path / "file"), MOST_BYTES, SECONDS) == content


def test_a_file_that_grows_ends_at_the_limit(reader, tmp_path):
    ended = threading.Event()
    path = tmp_path / "file"

    def grow():
        with path.open("ab", buffering=0) as file:
            while not ended.is_set() and file.tell() < 1 << 29:
                file.write(b"x" * (1 << 20))

    path.touch()
    growing = threading.Thread(target=grow)
    growing.start()
    try:
        assert until(lambda: path.stat().st_size > 1 << 22)
        assert reader.read(str(path), 1 << 22, SECONDS) == b"x" * (1 << 22)
    finally:
        ended.set()
        growing.join()


def test_an_error_is_that_of_the_read(reader, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        reader.read(str(tmp_path / "none"), 1, SECONDS)
    assert missing.value.filename == str(tmp_path / "none") and missing.value.strerror == "No such file or directory"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        reader.read(str(tmp_path / "loop"), 1, SECONDS)
    with pytest.raises(OSError, match="too long"):
        reader.read("/" + "x" * 5000, 1, SECONDS)
    with pytest.raises(FileNotFoundError):
        reader.read_in_root(1 << 30, "/etc/passwd", 1, SECONDS)
    with pytest.raises(ValueError):
        reader.read("/etc\0/passwd", 1, SECONDS)
    with pytest.raises(ValueError):
        reader.read("/etc/passwd", MOST_BYTES + 1, SECONDS)
    with pytest.raises(ValueError):
        reader.read("/etc/passwd", -1, SECONDS)


def test_what_is_no_regular_file_is_not_opened(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", tmp_path, "/dev/zero"):
            with pytest.raises(OSError, match="no regular file"):
                reader.read(str(path), 10, SECONDS)
            with pytest.raises(OSError, match="no regular file"):
                reader.read_in_root(os.getpid(), str(path), 10, SECONDS)


def test_the_facts_of_a_path_are_those_of_stat(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for found in (
        reader.stat(str(tmp_path / "link"), SECONDS),
        reader.stat_in_root(os.getpid(), str(tmp_path / "link"), SECONDS),
    ):
        assert stat.S_ISFIFO(found.st_mode) and found[:10] == os.stat(tmp_path / "pipe")[:10]
    with pytest.raises(FileNotFoundError):
        reader.stat(str(tmp_path / "none"), SECONDS)


# --------------------------------------------------------------------------------------------------------- another's root


@pytest.mark.skipif(os.geteuid() != 0, reason="another root is root's to make")
def test_a_file_is_that_of_the_other_root_and_no_link_leads_out(reader, tmp_path):
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root/etc/inside").write_text("inside")
    # Python itself is not there any more once it has its root, and needs nothing more.
    links = {
        "absolute": "/etc/inside",
        "upwards": "../../../../etc/inside",
        "out": str(tmp_path / "secret"),
        "beside": "../secret",
        "magic": f"/proc/self/root{tmp_path}/secret",
        "ours": f"/proc/{os.getpid()}/root{tmp_path}/secret",
    }
    for name, target in links.items():
        (tmp_path / "root" / name).symlink_to(target)
    with program(IN_A_ROOT, tmp_path / "root") as pid:
        for path in ("/etc/inside", "/../etc/../../etc/inside", "/absolute", "/upwards"):
            assert reader.read_in_root(pid, path, 100, SECONDS) == b"inside"
        for name in ("out", "beside", "magic", "ours"):
            with pytest.raises(OSError):
                reader.read_in_root(pid, f"/{name}", 100, SECONDS)
        # By its name alone, an absolute link leads into our root.
        assert reader.read(f"/proc/{pid}/root/out", 100, SECONDS) == b"outside"


# ------------------------------------------------------------------------------------------------------------ never answers


@pytest.mark.parametrize("kind", ["deaf", "mute"])
def test_what_never_answers_is_given_up_and_the_next_read_does_not_wait_for_it(reader, tmp_path, kind):
    (tmp_path / "mount").mkdir()
    (tmp_path / "healthy").write_text("healthy")
    with file_system(kind, tmp_path / "mount") as (pid, path):
        questions = (
            lambda: reader.read(path, 100, 0.3),
            lambda: reader.read_in_root(pid, f"{tmp_path}/mount/file", 100, 0.3),
            lambda: reader.stat(path, 0.3),
            lambda: reader.stat_in_root(pid, f"{tmp_path}/mount/file", 0.3),
        )
        for ask in questions:
            assert reader.read(str(tmp_path / "healthy"), 100, SECONDS) == b"healthy"
            began = time.monotonic()
            with pytest.raises(TimedOut, match=r"not read within 0\.3 s") as late:
                ask()
            assert 0.3 <= time.monotonic() - began < patient(3.0) and str(tmp_path) in late.value.filename
            assert reader.read(str(tmp_path / "healthy"), 100, SECONDS) == b"healthy"
        if kind == "mute":
            # SIGKILL has not ended them; one more has nothing to do.
            assert until(lambda: sorted(children().values()) == [*"DDDDS"])
            began = time.monotonic()
            reader.close()
            assert time.monotonic() - began < patient(3.0) and len(children()) == len(questions)
    # The file system is gone and lets them go; the next reader takes them away.
    reader.close()
    assert until(lambda: set(children().values()) <= {"Z"})
    with BoundedReader() as later:
        assert later.read(str(tmp_path / "healthy"), 100, SECONDS) == b"healthy"
    assert not children()


def test_a_thread_does_not_wait_for_anothers_read(reader, tmp_path):
    (tmp_path / "mount").mkdir()
    said = []

    def blocked(path):
        try:
            reader.read(path, 100, 3.0)
        except OSError as error:
            said.append(type(error))

    with file_system("mute", tmp_path / "mount") as (_, path):
        waiting = threading.Thread(target=blocked, args=(path,))
        waiting.start()
        assert until(lambda: any("request_wait" in Path(f"/proc/{child}/wchan").read_text() for child in children()))
        for _ in range(20):
            assert reader.read("/proc/self/cmdline", 4096, SECONDS)
        assert waiting.is_alive()
        waiting.join()
    assert said == [TimedOut]


# ------------------------------------------------------------------------------------------------------------ the child ends


def test_a_child_that_was_killed_is_replaced(reader, tmp_path):
    (tmp_path / "file").write_text("healthy")
    for _ in range(3):
        assert reader.read(str(tmp_path / "file"), 100, SECONDS) == b"healthy"
        for child in children():
            os.kill(child, signal.SIGKILL)
        assert until(lambda: set(children().values()) == {"Z"})
    assert reader.read(str(tmp_path / "file"), 100, SECONDS) == b"healthy"
    assert len(children()) == 1


def test_a_child_that_is_killed_each_time_is_an_error_and_no_wait(reader, tmp_path):
    (tmp_path / "mount").mkdir()
    ended = threading.Event()

    def kill():
        while not ended.wait(0.01):
            for child, state in children().items():
                if state == "D":
                    os.kill(child, signal.SIGKILL)

    with file_system("deaf", tmp_path / "mount") as (_, path):
        killing = threading.Thread(target=kill)
        killing.start()
        try:
            with pytest.raises(OSError, match="was ended"):
                reader.read(path, 100, SECONDS)
        finally:
            ended.set()
            killing.join()


def test_a_reader_that_is_closed_reads_nothing_and_leaves_no_process():
    before = children()
    with BoundedReader() as one:
        assert children() == before
        assert one.read("/proc/self/cmdline", 4096, SECONDS)
        assert len(children()) == len(before) + 1
    assert children() == before
    one.close()
    with pytest.raises(ValueError, match="closed"):
        one.read("/proc/self/cmdline", 4096, SECONDS)


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/bin/true"])
def test_a_child_that_does_not_start_is_an_error(reader, monkeypatch, interpreter):
    monkeypatch.setattr(sys, "executable", interpreter)
    with pytest.raises(OSError, match=r"No such file|does not start"):
        reader.read("/proc/self/cmdline", 4096, SECONDS)


LEAVES = """
from paceline.probes.blocking_reads import BoundedReader
print(BoundedReader().read("/proc/self/stat", 100, 20.0).split()[0].decode(), flush=True)
input()
"""


def test_a_child_ends_with_whoever_has_started_it():
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as caller:
        child = int(caller.stdout.readline())
        assert read_stat(child).parent == caller.pid
        caller.kill()
    assert until(lambda: read_stat(child) is None or read_stat(child).state == "Z")
