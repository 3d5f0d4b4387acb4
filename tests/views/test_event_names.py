"""Every event that the agents can write is told, or named as one that is not, with what becomes of it."""

import ast
from pathlib import Path

import paceline
from paceline.launch.job.messages import HOST_EVENTS
from paceline.part import parts
from paceline.recording.writer import LINES_LOST
from paceline.views.live import _WRITERS, NOT_TOLD

SOURCE = Path(paceline.__file__).parent
ROOMS = ("attach", "cli/run", "launch", "parts", "recording")
RECORDERS = frozenset({"record", "event", "on_event"})
# Names in a variable: of the marks that ranks write (RingCollector.newly_marked), and those in views/restarts.py.
BY_VARIABLE = {"replica", "sampler", "resumed", "attempt_began", LINES_LOST}


def written():
    """The names that are written out in the source."""
    found = set()
    for room in ROOMS:
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RECORDERS:
                    values = node.args[:1]
                elif isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values, strict=True)
                    values = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "event"]
                else:
                    continue
                found |= {one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


def told():
    """Events of which a run prints something: the kernel's and those of the parts."""
    return {*_WRITERS, *(name for part in parts() for name in part.lines())}


def test_every_event_is_told_or_named_as_not_told():
    assert {"tempo", "look", "notice", "standstill"} < written()
    assert sorted((written() | HOST_EVENTS | BY_VARIABLE) - told() - set(NOT_TOLD)) == []


def test_no_event_is_both_and_none_is_named_that_nobody_writes():
    assert not told() & set(NOT_TOLD)
    assert sorted(set(NOT_TOLD) - written() - HOST_EVENTS - BY_VARIABLE) == []
