"""What is said of recorded healthy training, on a quiet machine and on a loaded one; and of the same with one rank made slower.

bench/stretches.py records more, and prints how often each delay is found.
"""

import pytest
from stretches import found_delays, judgements, read_stretch, stretches

from paceline.findings import Confidence

PATHS = stretches()
SURE = (Confidence.HIGH, Confidence.LIKELY)
CALM_BUCKETS_SECONDS = 0.0289


def test_there_are_enough_of_each_kind():
    found = [read_stretch(path) for path in PATHS]
    assert len(found) >= 60
    assert {stretch.ranks for stretch in found} >= {2, 8}
    assert sum(path.stat().st_size for path in PATHS) < 5_000_000


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_a_healthy_stretch_is_accused_of_nothing(path):
    stretch = read_stretch(path)
    said = [
        (finding.code, finding.ranks, str(finding.confidence), finding.saw[:1])
        for _, diagnosis in judgements(stretch)
        for finding in diagnosis.findings
        if finding.confidence in SURE and finding.code not in stretch.allowed
    ]
    assert not said, stretch.load


@pytest.mark.slow_but_first
@pytest.mark.parametrize("fraction, least", [(0.5, 0.95), (0.2, 0.80)])
def test_a_delay_of_one_rank_is_found_within_200_steps(fraction, least):
    tried, said, _ = found_delays(map(read_stretch, PATHS), fraction)
    assert tried >= 50
    assert said >= least * tried


@pytest.mark.parametrize("path", [path for path in PATHS if "_buckets_" in path.name], ids=lambda path: path.name)
def test_a_neighbour_is_surely_charged_only_with_what_it_has_cost(path):
    """The job takes 28 ms a step without neighbours: most of that it sleeps, and the kernel gives it a CPU when it wakes."""
    for timing, diagnosis in judgements(read_stretch(path)):
        sure = [one for one in diagnosis.findings if one.code == "S04" and one.confidence is Confidence.HIGH]
        assert not sure or timing.step_seconds > 1.2 * CALM_BUCKETS_SECONDS, sure
