"""Threads of a script beside the state of its rank, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_a_thread_that_trains_is_refused_and_goes_on():
    script = """
        import threading, torch
        from paceline.parts.resume.recording.state_buffer import Keeping, StateCell, new_buffer
        from paceline.parts.resume.worker.session import ResumeSession
        session = ResumeSession(new_buffer())
        session.begin()
        parameter = torch.nn.Parameter(torch.ones(1))
        parameter.grad = torch.ones(1)
        thread = threading.Thread(target=torch.optim.SGD([parameter], lr=0.5).step)
        thread.start()
        thread.join()
        print(parameter.item(), session.slots.header.cells[StateCell.KEEPING] == Keeping.REFUSED)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["0.5", "True"]), done.stderr
