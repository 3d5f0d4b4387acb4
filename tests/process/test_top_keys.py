"""`paceline top` on a real terminal: keys, and a terminal that is as it was whatever ended the program."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from patience import patient

pytestmark = pytest.mark.process

WAITS = """
import os, time
print("log of rank", os.environ["RANK"], flush=True)
while True:
    time.sleep(0.1)
"""
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"


class Top:
    """`paceline top` with a terminal of its own."""

    def __init__(self, paceline, *words):
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paceline", "top", "--interval", "0.2s", *words],
            cwd=paceline.directory,
            env={**paceline.environment, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.theirs = theirs
        self.seen = b""

    def read(self):
        while select.select([self.ours], [], [], 0.02)[0]:
            self.seen += os.read(self.ours, 65536)

    def until(self, condition):
        deadline = time.monotonic() + patient(30)
        while not condition():
            assert time.monotonic() < deadline, self.seen[-3000:]
            has_ended = self.process.poll() is not None
            self.read()
            assert not has_ended or condition(), self.seen[-3000:]

    def until_shown(self, text):
        """Until a picture that began after this call has the text."""
        begin = len(self.seen)
        self.until(lambda: any(text in picture for picture in self.pictures(begin)))

    def pictures(self, begin=0):
        return [
            re.sub(rb"\x1b\[[?0-9;]*[A-Za-z]", b"", part)
            for part in re.findall(re.escape(BEGIN) + rb"(.*?)" + re.escape(END), self.seen[begin:], re.S)
        ]

    def press(self, keys):
        os.write(self.ours, keys)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def is_as_before(self):
        return termios.tcgetattr(self.theirs) == self.before and self.seen.count(HIDDEN) <= self.seen.count(SHOWN)


@pytest.fixture
def job(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("waits.py", WAITS))
    job.until_printed("log of rank", 2)
    return job


@pytest.fixture
def top(paceline, job):
    top = Top(paceline)
    yield top
    top.close()


def test_every_key_does_what_it_says(top):
    top.until_shown(b"[sort rank, strip late]")
    assert HIDDEN in top.seen and b"\x1b[?1049h" not in top.seen
    top.press(b"s3")
    top.until_shown(b"[sort late, strip cpu]")
    assert b"CPU, LAST 60 S" in top.pictures()[-1]
    top.press(b"/1")
    top.until_shown(b"filter ranks (0-3,7) or host: 1_")
    top.press(b"\r")
    top.until_shown(b"filter 1]")
    assert re.search(rb"\n +1 +localhost", top.pictures()[-1]) and not re.search(
        rb"\n +0 +localhost", top.pictures()[-1]
    )
    top.press(b"l")
    top.until_shown(b"log of rank 1")
    top.press(b"q")
    top.until_shown(b"[sort late, strip cpu, filter 1]")
    top.press(b"\x1b[B\x1b")
    top.until_shown(b"[sort late, strip cpu]")
    top.press(b"w")
    top.until_shown(b"q close")
    top.press(b"q")
    top.press(b"t")
    top.until_shown(b"waits.py:")
    top.press(b"qq")
    top.until(lambda: top.process.poll() is not None)
    top.read()
    assert top.process.returncode == 0 and top.is_as_before()


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_leaves_the_terminal_as_it_was(top, number, code):
    top.until_shown(b"q quit")
    top.process.send_signal(number)
    top.until(lambda: top.process.poll() is not None)
    top.read()
    assert top.process.returncode == code and top.is_as_before()
    assert b"Traceback" not in top.seen


@pytest.mark.slow
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(top):
    top.until_shown(b"q quit")
    top.press(b"\x1a")
    _, status = os.waitpid(top.process.pid, os.WUNTRACED)
    top.read()
    assert os.WIFSTOPPED(status) and top.is_as_before()
    top.process.send_signal(signal.SIGCONT)
    top.until_shown(b"q quit")
    assert termios.tcgetattr(top.theirs) != top.before and top.seen.count(HIDDEN) == 2
    top.press(b"q")
    top.until(lambda: top.process.poll() is not None)
    top.read()
    assert top.is_as_before()


@pytest.mark.slow
def test_a_changed_window_is_painted_at_once(paceline, job):
    top = Top(paceline, "--interval", "1h")
    try:
        top.until_shown(b"q quit")
        fcntl.ioctl(top.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        top.process.send_signal(signal.SIGWINCH)
        top.until(lambda: max(map(len, top.pictures()[-1].decode().splitlines())) <= 60)
    finally:
        top.close()


def test_the_end_of_the_run_leaves_its_last_picture(top, job):
    top.until_shown(b"q quit")
    job.process.send_signal(signal.SIGINT)
    top.until(lambda: top.process.poll() is not None)
    top.read()
    assert top.process.returncode == 0 and top.is_as_before()
    assert b"Stopped" in top.seen.rpartition(END)[2]


def test_without_a_terminal_on_both_ends_there_are_no_keys(paceline, job):
    ours, theirs = os.openpty()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "paceline", "top", "--once"],
            cwd=paceline.directory,
            env=paceline.environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            timeout=patient(60),
            check=False,
        )
        assert ended.returncode == 0 and b"q quit" not in os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
