"""A session in a process of its own."""

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize("version, keeps", [(sys.version_info[:2], True), ((3, 14), False)])
def test_a_python_that_was_never_tried_is_refused_and_the_script_goes_on(version, keeps):
    script = f"""
        import sys, torch
        from paceline.recording.state_buffer import Keeping, StateCell, new_buffer
        from paceline.worker.resume.session import ResumeSession
        session, own_version = ResumeSession(new_buffer()), sys.version_info
        sys.version_info = {(*version, 0, "final", 0)}
        session.begin()
        sys.version_info = own_version
        print(session.follows(), session.slots.header.cells[StateCell.KEEPING] == Keeping.REFUSED)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        optimizer.step()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(keeps), str(not keeps)]), done.stderr
