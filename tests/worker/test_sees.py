"""A watched script sees what it sees without paceline: the same warnings at the same lines, numbers, signals, threads, options."""

import json
import os
import subprocess
import sys

import pytest

from paceline.parts.resume.recording.state_buffer import Keeping, StateCell
from paceline.recording.segments import from_header

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

EVERY_INSTRUMENT = "steps,data,waits,collectives,ddp,checkpoint,worker_server,flight_recorder,exit,groups,exchanges"


def seen(left) -> dict:
    assert left.code == 0, left.err
    first, last = left.out.splitlines()
    return json.loads(first) | {"exit handlers": last, "stderr": left.err}


def without_paceline(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("PACELINE_", "PYTHONPATH"))}


@pytest.fixture(scope="module")
def plain(shared_workplace):
    """What the script sees by itself."""
    shared_workplace.environment = without_paceline(shared_workplace.environment)
    (left,) = shared_workplace.run("sees.py", "--a", "b")
    return seen(left)


def test_a_watched_script_sees_the_same(workplace, plain):
    (left,) = workplace.run("sees.py", "--a", "b")
    ((header, _),) = workplace.rings
    assert header.step_count == 3 and header.failure == "" and header.missing | header.dropped_instruments == 0
    found = seen(left)
    assert {message for message, *_ in plain["warnings"]} >= {"saved"} and len(plain["warnings"]) >= 4
    assert {name: value for name, value in found.items() if value != plain[name]} == {}


@pytest.mark.slow
def test_a_script_whose_state_is_kept_sees_the_same(workplace, plain):
    workplace.keeps_state = True
    (left,) = workplace.run("sees.py", "--a", "b")
    (kept,) = workplace.headers
    assert (kept.cells[StateCell.KEEPING], kept.steps()) == (Keeping.KEPT, (3, 2))
    found, alone = seen(left), dict(plain)
    # numpy.random is imported before a torch that imports it later, because its seed is drawn at its import.
    found["modules"], alone["modules"] = sorted(found["modules"]), sorted(alone["modules"])
    assert {name: value for name, value in found.items() if value != alone[name]} == {}


@pytest.mark.slow
def test_what_a_script_sees_of_its_loops_files_and_functions_is_the_same_but_for_what_is_documented(workplace):
    """The differences are rows of the table in docs/running.md."""
    workplace.keeps_state = True
    (left,) = workplace.run("sees_loops.py")
    (kept,) = workplace.headers
    assert (kept.cells[StateCell.KEEPING], kept.steps()) == (Keeping.KEPT, (4, 3)), left.err
    workplace.keeps_state, workplace.environment = False, without_paceline(workplace.environment)
    (alone,) = workplace.run("sees_loops.py")
    assert (left.code, left.err) == (alone.code, alone.err) == (0, "")
    found, expected = json.loads(left.out), json.loads(alone.out)
    calls = {"__paceline_again__", "__paceline_while__", "__paceline_loop__"}
    others = {"__paceline_extra__", "__paceline_step__"}
    assert set(found.pop("builtins")) - set(expected.pop("builtins")) == calls | others
    assert set(found.pop("code's names")) - set(expected.pop("code's names")) == calls
    assert found.pop("code") != expected.pop("code")
    finders = expected.pop("finders")
    assert found.pop("finders") == ["_Finder", "AfterImport", *finders, "Shim"]
    assert {found.pop("hooks"), expected.pop("hooks")} == {0, 2}
    # What is caught while a loop takes its next item; and how far it is to the first frame of the process.
    assert found.pop("raising") == [*expected.pop("raising"), "_items"]
    assert {a - b for a, b in zip(found.pop("depths"), expected.pop("depths"), strict=True)} == {3}
    assert {name: value for name, value in found.items() if value != expected[name]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["all", pytest.param(EVERY_INSTRUMENT, marks=pytest.mark.wide)])
def test_each_instrument_can_be_turned_off(workplace, plain, word):
    (left,) = workplace.run("sees.py", "--a", "b", PACELINE_OFF=word)
    assert workplace.rings == []
    assert seen(left) == plain


@pytest.mark.slow
def test_what_is_turned_off_is_not_judged_and_the_rest_is(workplace):
    (left,) = workplace.run("sees.py", PACELINE_OFF="data, collectives,nothing")
    ((header, _),) = workplace.rings
    record = from_header(header, "algo-1")
    assert left.code == 0 and header.step_count == 3
    assert record.data_seconds is None and record.collective_count is None and record.checkpoint_seconds is not None
    assert header.turned_off.name == "DATA|COLLECTIVES"
    assert "there is no instrument 'nothing'" in header.failure


def test_a_program_without_torch_sees_the_same(workplace):
    script = "import sys, os, atexit, signal; print(sorted(sys.modules), sys.path, sys.argv, len(sys.meta_path))"
    words = [sys.executable, "-c", script]
    outs = [
        subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
        for environment in (
            without_paceline(workplace.environment),
            workplace.environment | {"PACELINE_OFF": "all", "PYTHONPATH": os.fspath(workplace.directory)},
        )
    ]
    assert outs[0].split("] [")[0] == outs[1].split("] [")[0]
