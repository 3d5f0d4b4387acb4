"""A real straggler, on a quiet machine and beside neighbours: it is named, and the neighbours are not charged for its time.

bench/stretches.py records more: the job `straggler`.
"""

import re

import pytest
from stretches import STRAGGLER_MS, STRAGGLERS, judgements, read_stretch, stretches

_COST = re.compile(r"it costs ([\d.]+) (ms|s) of each step of ([\d.]+) (ms|s)")
_MS = {"ms": 1.0, "s": 1000.0}


@pytest.mark.parametrize("path", stretches(STRAGGLERS), ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_a_straggler_is_named_and_no_neighbour_is_charged_for_it(path):
    stretch = read_stretch(path)
    *_, (_, diagnosis) = judgements(stretch)
    said = {finding.code: finding for finding in diagnosis.findings}
    assert said["S01"].ranks == (1,), stretch.load
    if (neighbour := said.get("S04")) is not None:
        (cost,) = [found for text in neighbour.saw if (found := _COST.search(text))]
        lost, step = float(cost[1]) * _MS[cost[2]], float(cost[3]) * _MS[cost[4]]
        assert lost <= step - STRAGGLER_MS, (stretch.load, neighbour.saw)


def test_there_are_some_at_each_load():
    loads = [read_stretch(path).load for path in stretches(STRAGGLERS)]
    assert sum(load.startswith("idle") for load in loads) >= 2 and sum(load.startswith("loaded") for load in loads) >= 4
