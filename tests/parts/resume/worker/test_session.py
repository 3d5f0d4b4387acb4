"""A session in a process of its own."""

import subprocess
import sys
import textwrap

import pytest
import torch

from paceline.parts.resume.recording.state_buffer import StateCell, new_buffer
from paceline.parts.resume.worker.object_graph import Capture
from paceline.parts.resume.worker.session import ResumeSession


@pytest.mark.parametrize(
    "version, of_torch, keeps",
    [(sys.version_info[:2], "2.4.1+cpu", True), ((3, 15), "2.4.1", False), (sys.version_info[:2], "2.3.1", False)],
)
def test_a_python_or_torch_that_was_never_tried_is_refused_and_the_script_goes_on(version, of_torch, keeps):
    script = f"""
        import sys, torch
        from paceline.parts.resume.recording.state_buffer import Keeping, StateCell, new_buffer
        from paceline.parts.resume.worker.session import ResumeSession
        session, own_version = ResumeSession(new_buffer()), sys.version_info
        sys.version_info = {(*version, 0, "final", 0)}
        torch.__version__ = "{of_torch}"
        session.begin()
        sys.version_info = own_version
        print(session.follows(), session.slots.header.cells[StateCell.KEEPING] == Keeping.REFUSED)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        optimizer.step()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(keeps), str(not keeps)]), done.stderr


TRAINS = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(torch.ones(6, 4)):
    model(batch).sum().backward()
    optimizer.step()
"""


def test_a_program_that_the_script_starts_keeps_no_state(workplace, written):
    child = written(TRAINS, "child.py")
    script = written(f"import os, sys\nsys.exit(os.system(sys.executable + ' {child}'))")
    workplace.keeps_state = True
    (left,) = workplace.run(sys.executable, script)
    (kept,) = workplace.headers
    assert left.code == 0 and (kept.cells[StateCell.PID], kept.steps()) == (0, ()), left.err
    # A program in the place of the script is none that the loops of the script were put into.
    script = written(f"import os, sys\nos.execv(sys.executable, [sys.executable, '{child}'])")
    (left,) = workplace.run(sys.executable, script)
    kept = workplace.headers[-1]
    assert left.code == 0 and (kept.cells[StateCell.PID], kept.steps()) == (0, ()), left.err


def test_no_mark_goes_into_a_pipe_of_the_script(workplace, written):
    begin = "import os\nread, write = os.pipe()\nagent = os.dup(1)\nos.dup2(write, 1)\nprint('mine', flush=True)\n"
    end = "print(len(os.read(read, 999)), file=open(agent, 'w'))\n"
    workplace.keeps_state = True
    (left,) = workplace.run(sys.executable, written(begin + TRAINS + end))
    (kept,) = workplace.headers
    assert (left.code, left.out) == (0, "5\n") and kept.steps() == (6, 5), left.err


def test_the_gradient_of_a_frozen_parameter_comes_back():
    frozen, free, without = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    for one in (frozen, free):
        one.grad = torch.full((2,), 3.0)
    frozen.requires_grad_(False)
    session = ResumeSession(new_buffer())
    session._gradients_matter = True
    capture = Capture(session.context)
    capture.value([frozen, free, without])
    gradients = session._gradients(capture)
    copies = [tensor.detach().clone() for tensor in capture.tensors]
    now = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    now[0].requires_grad_(False)
    now[2].grad = torch.ones(2)
    session._put_gradients(gradients, dict(enumerate(now)), copies)
    assert [one.grad is not None and one.grad.tolist() for one in now] == [[3.0, 3.0], [3.0, 3.0], False]
