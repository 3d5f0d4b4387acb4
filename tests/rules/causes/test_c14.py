"""C14: the loss of a host is a finding with what to do next."""

from dataclasses import replace

import pytest

LOST = {"event": "host_lost", "host": "algo-2", "reason": "its agent ended without a word"}


def with_hosts(case, events, wanted):
    made = case(world_size=4)
    return replace(made, events=tuple(events), run=replace(made.run, hosts_wanted=wanted))


@pytest.mark.parametrize(("wanted", "advice"), [((2, 2), "--nnodes 1:2 --max-restarts 1"), ((1, 2), ""), (None, "")])
def test_a_lost_host_is_named_with_how_it_went(found, case, wanted, advice):
    (finding,) = found("C14", with_hosts(case, [{"event": "attempt_started"}, LOST], wanted))
    assert finding.hosts == ("algo-2",) and finding.level == "crash"
    assert finding.saw[0] == "algo-2: its agent ended without a word"
    assert "look at algo-2" in finding.next[0] and (len(finding.next) == 2) == bool(advice)
    assert advice in finding.next[-1]


@pytest.mark.parametrize(
    "events",
    [[], [LOST, {"event": "attempt_started"}], [{"event": "host_lost"}], [{"event": "host_leaves", "host": "algo-2"}]],
)
def test_a_host_that_left_or_was_lost_in_an_earlier_attempt_is_none(found, case, events):
    assert not found("C14", with_hosts(case, events, (2, 2)))
