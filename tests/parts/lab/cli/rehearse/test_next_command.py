"""What to type after a short run that failed: a command that installs torch, or one that explains the run."""

from types import SimpleNamespace

import pytest

from paceline.parts.lab.short_run import next_command


@pytest.fixture
def child(recording):
    """A factory of ended runs whose rank 0 raised an error with this text."""

    def of(message):
        made = recording("r-bbbbbb")
        made.identity()
        made.event("rank_started", host="algo-1", rank=0, attempt=0, pid=1000)
        error = {"type": "ModuleNotFoundError", "message": message, "time_ns": 5, "python": "/srv/env/bin/python"}
        made.event("rank_exited", host="algo-1", rank=0, attempt=0, code=1, time_ns=6, error=error)
        made.finish(code=1, status="Failed", reason="rank 0 raised ModuleNotFoundError")
        return SimpleNamespace(run=lambda: made.path)

    return of


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("No module named 'torch'", "/srv/env/bin/python -m pip install torch"),
        ("No module named 'torch.distributed'; 'torch' is not a package", "paceline why r-bbbbbb"),
        ("No module named 'torchvision'", "paceline why r-bbbbbb"),
    ],
)
def test_torch_is_installed_where_it_is_missing_and_else_the_run_is_explained(child, message, command):
    assert next_command(child(message), ()) == command


def test_a_run_that_recorded_nothing_is_typed_again():
    assert next_command(SimpleNamespace(run=lambda: None), ("--nproc-per-node", "2", "a b.py")) == (
        "paceline run --nproc-per-node 2 'a b.py'"
    )
