"""Twelve sets of dumps of jobs with one or two faults, made by somebody who did not know the rule, with the truth beside them.

Made by `python tests/torches/nccl_dump_sets.py FOLDER 18908976`. A rule is scored on a set before it is changed for it (docs/diagnosis.md).
"""

import json
import tarfile
from functools import cache
from pathlib import Path, PurePath

import pytest

from paceline.diagnosis.logs.compare_dumps import judge_dumps
from paceline.diagnosis.logs.flight_recorder_dumps import parse_dump
from paceline.findings import Confidence

SETS = Path(__file__).parents[1] / "data" / "nccl_dump_sets.tar.gz"
# Set -> code and ranks that are found. Of two faults one is named (02, 04).
FOUND = {
    "set_01": ("N01", [5]),
    "set_02": ("N01", [14]),
    "set_03": ("N11", []),
    "set_04": ("N01", [10]),
    "set_05": ("N01", [2]),
    "set_06": ("N12", [7]),
    "set_08": ("M01", [10]),
    "set_09": ("N01", [11]),
    # Without torch's timing a device that is behind reads like a collective that does not end.
    "set_10": ("N11", []),
    "set_11": ("N11", []),
}
UNCLEAR = {"set_07", "set_12"}


@cache
def sets():
    found = {}
    with tarfile.open(SETS) as archive:
        for member in archive:
            if member.isfile():
                name, *_, file = PurePath(member.name).parts
                truth, dumps = found.setdefault(name, ({}, []))
                data = archive.extractfile(member).read()
                if file == "truth.json":
                    truth.update(json.loads(data))
                else:
                    dumps.append((file, data))
    return found


def judged(name):
    truth, dumps = sets()[name]
    (finding,) = judge_dumps([parse_dump(file, data) for file, data in dumps])
    return truth, finding


def test_there_are_twelve():
    assert len(sets()) == 12 == len(FOUND) + len(UNCLEAR)


@pytest.mark.parametrize("name", [f"set_{number:02}" for number in range(1, 13)])
def test_no_rank_is_named_that_is_not_at_fault(name):
    truth, finding = judged(name)
    assert set(finding.ranks) <= set(truth["culprits"])


@pytest.mark.parametrize(("name", "answer"), FOUND.items())
def test_what_is_found_stays_found(name, answer):
    _, finding = judged(name)
    assert (finding.code, list(finding.ranks)) == answer


@pytest.mark.parametrize("name", sorted(UNCLEAR))
def test_what_the_dumps_do_not_show_is_unclear(name):
    _, finding = judged(name)
    assert finding.confidence is Confidence.UNCLEAR and not finding.ranks
