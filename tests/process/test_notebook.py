"""A notebook in a real kernel: start a job, watch it, break it, ask why, stop it; a kernel that is killed leaves nothing."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from patience import patient

SCRIPTS = Path(__file__).parent / "scripts"
# An environment with another Python has no kernel.
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.fixture
def notebook(paceline, monkeypatch):
    """Runs the cells one after the other in one kernel; ended with the kernel."""
    for name, value in paceline.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("steps.py", "fails.py", "waits.py"):
        shutil.copy(SCRIPTS / name, paceline.directory)
    document = nbformat.v4.new_notebook()
    where = {"metadata": {"path": str(paceline.directory)}}
    client = nbclient.NotebookClient(document, timeout=120, kernel_name="python3", resources=where)
    with client.setup_kernel():
        yield Notebook(document, client)


class Notebook:
    def __init__(self, document, client):
        self.document, self.client = document, client

    def cell(self, text):
        """The outputs of a cell as text."""
        cell = nbformat.v4.new_code_cell(text)
        self.document.cells.append(cell)
        self.client.execute_cell(cell, len(self.document.cells) - 1)
        return "".join(
            output.get("text", "")
            + output.get("data", {}).get("text/plain", "")
            + output.get("data", {}).get("text/html", "")
            for output in cell.outputs
        )


def test_a_notebook_starts_watches_breaks_explains_and_stops_a_job(notebook, paceline):
    shown = notebook.cell("import paceline\nrun = paceline.run('steps.py', nproc_per_node=2)\nrun.wait()")
    assert "0 | rank 0 of 2" in shown, shown
    assert "1 | rank 1 of 2" in shown and "exit 0  in " in shown, shown
    assert "no such class: 7" in notebook.cell(
        "broken = paceline.run('fails.py', nproc_per_node=2)\nbroken.wait(show=False)\nbroken.why()"
    )
    assert "<td>fails</td>" in notebook.cell("paceline.runs()")
    assert "does not have" not in notebook.cell("waiting = paceline.run('waits.py', nproc_per_node=2)\nwaiting.stop()")
    assert notebook.cell("waiting.wait(show=False)").strip().endswith("143")
    notebook.cell("def train():\n    pass")
    tried = "try:\n    paceline.run_function(train)\nexcept Exception as error:\n    print(error.code, error.next)"
    refused = notebook.cell(tried)
    assert refused == "U28 %%writefile train_function.py, and import it\n"


@pytest.mark.slow
def test_the_interrupt_of_a_cell_ends_the_job_in_good_order(notebook, paceline):
    notebook.cell("import paceline\nrun = paceline.run('waits.py', nproc_per_node=2)")
    notebook.cell("import os, signal, threading\nthreading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()")
    assert "ended" in notebook.cell("try:\n    run.wait()\nexcept KeyboardInterrupt:\n    print('ended', run.status)")
    assert notebook.cell("print(run.status, run.exit_code)") == "Stopped 130\n"


@pytest.mark.slow
def test_a_kernel_that_is_killed_leaves_nothing(notebook, paceline):
    notebook.cell("import paceline\nrun = paceline.run('waits.py', nproc_per_node=2)")
    until(lambda: paceline.evidence().ranks and len(list((paceline.directory / ".paceline").rglob("rank_*.out"))) == 2)
    pid = int(notebook.cell("import os\nprint(os.getpid())"))
    os.kill(pid, signal.SIGKILL)
    until(lambda: paceline.left() == [])


def until(condition, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + patient(timeout)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
