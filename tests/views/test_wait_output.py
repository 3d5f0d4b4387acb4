"""In a notebook, waiting is one output that changes: what is printed is kept for ever."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.api.wait_output import WaitOutput
from paceline.recording.layout import RunDirectory

ASLEEP = Path(__file__).parents[1] / "recording" / "data" / "before" / "asleep"


@pytest.fixture
def shown(monkeypatch):
    """What a notebook was told to show, and to change."""
    told = []

    def display(content, **options):
        told.append(("made", content["text/plain"], options["display_id"]))
        return SimpleNamespace(update=lambda content, **options: told.append(("changed", content["text/plain"])))

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return told


def test_the_line_is_one_output_that_is_changed_and_emptied_at_the_end(shown, tmp_path, capsys):
    recorded = RunDirectory(shutil.copytree(ASLEEP, tmp_path / "run"))
    now = iter(range(100, 1000, 10))
    output = WaitOutput(lambda: recorded, lambda: "", lambda: next(now))
    for _ in range(3):
        output.go_on()
    output.finish()
    assert [one[0] for one in shown] == ["made", "changed", "changed", "changed"]
    assert "step" in shown[0][1] and shown[-1] == ("changed", "")
    assert "\r" not in capsys.readouterr().out
