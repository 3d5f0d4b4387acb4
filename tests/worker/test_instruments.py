"""A new instrument is one file: it is called, it can be turned off, and one that fails never reaches the script."""

import importlib
import os
import re
import shutil
from types import SimpleNamespace

import pytest

from paceline.part import rank_modules
from paceline.recording.ring import Instrument
from paceline.worker import instruments

MODULES = instruments.modules(importlib.import_module(f"paceline.{name}") for name in rank_modules().split(","))
HEARS = """
from ..instrument import RankInstrument

class Heat(RankInstrument):
    def ring_opened(self):
        self.call_at(1)

    def at_step(self, step, optimizer, frame):
        self.rank.calls.notice(self.rank.ring, "heat", f"step {step} of {type(optimizer).__name__}")
        self.call_at(step + 2)
"""
RAISES_AT_AN_EVENT = """
from ..instrument import RankInstrument

class Raises(RankInstrument):
    def begin(self):
        self.call_at(2)

    def at_step(self, step, optimizer, frame):
        self.call_at(step + 1)
        raise RuntimeError(f"at step {step}")
"""
RAISES_IN_A_PATCH = """
from ..instrument import RankInstrument

class RaisesToo(RankInstrument):
    def patches(self):
        return {"torch.optim.optimizer": self.look}

    def look(self, module):
        raise LookupError(module.__name__)
"""
RAISES_WHERE_IT_IS_ASKED = """
from ..instrument import RankInstrument

class RaisesAtOnce(RankInstrument):
    def patches(self):
        raise KeyError("no module")
"""


@pytest.fixture
def with_more(workplace, repository, tmp_path):
    """A workplace whose paceline has some instruments more."""
    package = tmp_path / "paceline"
    shutil.copytree(repository / "src" / "paceline", package, ignore=shutil.ignore_patterns("__pycache__"))
    more = {
        "heat": HEARS,
        "event": RAISES_AT_AN_EVENT,
        "patch": RAISES_IN_A_PATCH,
        "asked": RAISES_WHERE_IT_IS_ASKED,
        "empty": "",
    }
    for name, text in more.items():
        (package / "worker" / "instruments" / f"{name}.py").write_text(text)
    workplace.environment["PYTHONPATH"] = os.fspath(package / "worker" / "site")
    return workplace


def texts(workplace):
    (path,) = (workplace.directory / "rings").glob("*.texts")
    return path.read_text()


@pytest.mark.process
def test_a_new_instrument_is_one_file_and_one_that_raises_is_reported_once(with_more):
    (left,) = with_more.run("loops.py", "gan")
    assert (left.code, left.out, left.err) == (0, "", "")
    ((header, _),) = with_more.rings
    assert header.step_count == 6 and header.dropped_instruments == Instrument(0)
    assert re.findall(r'"heat", "(.+?)"', texts(with_more)) == [f"step {step} of SGD" for step in (1, 3, 5)]
    failures = header.failure.split("; ")
    assert [failure.partition(":")[0] for failure in failures] == ["EMPTY", "ASKED", "PATCH", "EVENT"]
    assert failures[2:] == ["PATCH: LookupError: torch.optim.optimizer", "EVENT: RuntimeError: at step 2"]


@pytest.mark.slow
@pytest.mark.process
def test_a_new_instrument_is_turned_off_by_the_name_of_its_file(with_more):
    (left,) = with_more.run("loops.py", "gan", PACELINE_OFF="heat,event,patch,asked,empty,replica")
    ((header, _),) = with_more.rings
    assert (left.code, header.step_count, header.failure) == (0, 6, "")
    assert header.turned_off == Instrument.REPLICA
    assert list((with_more.directory / "rings").glob("*.texts")) == []


def test_what_a_recording_can_say_of_an_instrument_has_its_file():
    assert {member.name.lower() for member in Instrument} <= set(MODULES)


@pytest.mark.parametrize("package", ["", "others"])
def test_the_instruments_of_a_part_lie_beside_its_module_in_a_package(package, tmp_path):
    (tmp_path / "instruments").mkdir()
    (tmp_path / "instruments" / "heat.py").touch()
    found = instruments.modules([SimpleNamespace(__file__=str(tmp_path / "in_rank.py"), __package__=package)])
    assert found.get("heat") == ("others.instruments.heat" if package else None)


@pytest.mark.parametrize("name", MODULES)
def test_every_instrument_is_documented_and_has_one_class(name, repository):
    section = (repository / "docs" / "running.md").read_text().partition("## What paceline changes in a rank")[2]
    first_column = "".join(line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if "|" in line)
    assert f"`{name}`" in first_column
    assert instruments.load(MODULES[name]).name == name
