"""Recordings that an earlier version wrote are read as that version read them.

data/before has two of them, a crash and a confirmed hang, and what `why`, `top` and `stack` with --json and `logs` said of each, in the
names that keys have today.
"""

import json
import shutil
from pathlib import Path

import pytest

from paceline.cli import main

DATA = Path(__file__).parent / "data" / "before"
RUNS = {"crash": "r-9d7560", "asleep": "r-4ff4d0"}
VIEWS = {"why": ("--json",), "top": ("--once", "--json"), "stack": ("--json",), "logs": ()}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", RUNS)
def test_what_was_recorded_before_is_read_as_it_was(tmp_path, capsys, name, view):
    recording = tmp_path / RUNS[name]
    shutil.copytree(DATA / name, recording)
    main([view, str(recording), *VIEWS[view]])
    said = capsys.readouterr().out.replace(str(recording), "RUN")
    assert facts(said, view) == facts((DATA / f"{name}.{view}.txt").read_text(), view)


def facts(text: str, view: str) -> object:
    """JSON without the moment at which it was asked for; text as it is."""
    if view == "logs":
        return text
    return {key: value for key, value in json.loads(text, parse_float=rounded).items() if key != "t_ns"}


def rounded(number: str) -> float:
    """Without the last digits: Python 3.12 and later lose less than 3.11 where they add floats."""
    return float(f"{float(number):.12g}")
