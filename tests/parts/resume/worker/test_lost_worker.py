"""A rank whose loader worker is killed, in a process of its own."""

import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from paceline.parts.resume.worker.lost_worker import _lost

pytestmark = pytest.mark.process

# A script that can resume, with one loader worker and a function that has it killed and waits until it is gone.
BEGINNING = """
    import os, signal, sys, time, torch
    from torch.utils.data import DataLoader, TensorDataset
    from paceline.parts.resume.recording.state_buffer import Keeping, StateCell, new_buffer
    from paceline.parts.resume.worker.session import ResumeSession

    session = ResumeSession(new_buffer())
    session.begin()

    def kill_worker(iterator):
        (worker,) = iterator._workers
        os.kill(worker.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)

    loader = DataLoader(TensorDataset(torch.arange(64.0).view(64, 1)), batch_size=4, num_workers=1)
    iterator = iter(loader)
"""
LOST = "RuntimeError: DataLoader worker (pid"


def run(text):
    script = textwrap.dedent(BEGINNING) + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_a_rank_that_loses_a_worker_ends_at_once_and_says_why():
    done = run("""
        next(iterator)
        try:
            kill_worker(iterator)
        except RuntimeError:
            print("handled", flush=True)
        finally:
            print("left in the usual way", flush=True)
    """)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert LOST in done.stderr and "in kill_worker" in done.stderr and "lost_worker" not in done.stderr


def test_a_rank_that_is_between_two_lines_ends_as_well():
    done = run("""
        def between():
            kill_worker(iterator)

        # A frame at a jump back to a `for` has no line.
        between.__code__ = between.__code__.replace(co_linetable=b"")
        between()
    """)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert LOST in done.stderr and "in between" in done.stderr and "TypeError" not in done.stderr


@pytest.mark.slow
def test_what_keeps_the_state_never_takes_a_lost_worker_for_an_object_that_cannot_be_kept():
    done = run("""
        class Curious:
            __slots__ = ("missing",)

            def __getattr__(self, name):
                kill_worker(iterator)
                raise AttributeError(name)

        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer, thing = torch.optim.SGD([parameter], lr=0.1), Curious()

        def train():
            from paceline.parts.resume.worker.loops import RunningLoops
            for _ in session.loops.follow(1, range(3), sys._getframe()):
                parameter.grad = torch.ones(1)
                optimizer.step()

        train()
        print(session.slots.header.cells[StateCell.KEEPING] == Keeping.REFUSED, flush=True)
    """)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert LOST in done.stderr


@pytest.mark.slow
def test_a_connection_that_a_killed_worker_closed_is_a_lost_worker():
    done = run("""
        import threading

        next(iterator)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        (worker,) = iterator._workers

        class Closed:
            def get(self, timeout):
                # The connections of a process close before it is gone.
                threading.Timer(0.1, os.kill, (worker.pid, signal.SIGKILL)).start()
                raise ConnectionResetError("Connection reset by peer")

        iterator._data_queue = Closed()
        next(iterator)
    """)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert LOST in done.stderr and "ConnectionResetError" in done.stderr


@pytest.mark.parametrize("exitcode", [-9, 0])
def test_a_worker_whose_pipe_has_closed_is_asked_until_it_is_gone(exitcode):
    reader, writer = os.pipe()
    os.close(writer)

    class Worker:
        pid, sentinel, exitcode = 1234, reader, None
        asked = 0

        def is_alive(self):
            # The pipe is closed before the process is one that can be waited for.
            self.asked += 1
            if self.asked > 3:
                self.exitcode = exitcode
            return self.exitcode is None

    found = _lost(SimpleNamespace(_workers=[Worker()]), error := ConnectionResetError())
    os.close(reader)
    assert (found and found.__cause__) is (error if exitcode else None)


@pytest.mark.slow
def test_a_rank_that_keeps_no_state_hears_of_a_lost_worker_from_torch():
    done = run("""
        session.refuse("F13", "a test")
        next(iterator)
        try:
            kill_worker(iterator)
        except RuntimeError as error:
            print(str(error)[:23], flush=True)
    """)
    assert (done.returncode, done.stdout) == (0, "DataLoader worker (pid \n"[:23] + "\n"), done.stderr
