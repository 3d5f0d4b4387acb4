"""What hosts have seen is judged by the rules of every run."""

from attached_evidence import NOW_NS, entries, evidence

from paceline.attach.judge import judge
from paceline.facts import Run
from paceline.rules import all_causes

RUN = Run(id="pid:900", name="train.py", directory="", command=(), started_ns=NOW_NS, first_host="node-a")


def judged(*hosts):
    return judge(hosts, RUN, all_causes())


def findings(*hosts):
    return [(one.code, one.ranks, str(one.confidence)) for one in judged(*hosts).diagnosis.findings]


def test_a_rank_that_sleeps_while_the_others_wait_is_named():
    assert findings(evidence()) == [("N01", (1,), "high")]


def test_it_is_a_confirmed_hang():
    found = judged(evidence())
    assert found.case.confirmation is not None and found.case.confirmation.ranks == (1,)
    assert not found.moves


def test_of_a_job_that_moves_nothing_is_said():
    found = judged(evidence(late=(), moves=True))
    assert found.diagnosis.findings == () and found.moves


def test_what_was_not_seen_is_not_counted():
    found = judged(evidence())
    assert found.case.stall.since_step is None
    assert any("the ranks were not recorded" in text for text in found.diagnosis.not_judged)


def test_ranks_of_a_host_that_was_not_looked_at_are_not_late():
    half = evidence(size=4, late=(), hosts_wanted=2, addresses=("10.0.0.8",))
    (found,) = judged(half).diagnosis.findings
    assert (found.code, found.ranks, str(found.confidence)) == ("N15", (), "likely")
    assert "ranks 2-3" in found.saw[0] and "10.0.0.8" in found.next[0]


def test_two_hosts_together_name_the_rank_of_the_other():
    first = evidence(size=4, late=())
    second = evidence("node-b", (2, 3), 4, late=(3,))
    assert findings(first, second) == [("N01", (3,), "high")]
    assert findings(second, first) == [("N01", (3,), "high")]


def test_a_rank_without_a_process_is_said_to_be_gone():
    assert findings(evidence(ranks=(0,), late=(), missing=(1,))) == [("C16", (1,), "high")]


def test_different_calls_at_one_place_have_their_lines():
    calls = {0: entries(12), 1: entries(12, last=("broadcast", 33))}
    found = judged(evidence(late=(), calls=calls)).diagnosis.findings
    (one,) = [one for one in found if one.level == "divergence"]
    assert one.code in ("M01", "M06")
    assert "train.py:20" in str(one.saw) and "train.py:33" in str(one.saw)


def test_what_could_not_be_read_is_not_judged_and_names_its_host_where_there_are_several():
    first, second = (
        evidence(size=4, late=(), notes=("rank 0: no",)),
        evidence("node-b", (2, 3), 4, notes=("rank 2: no",)),
    )
    assert "rank 0: no" in judged(first).diagnosis.not_judged
    both = judged(first, second).diagnosis.not_judged
    assert {"node-a: rank 0: no", "node-b: rank 2: no"} <= set(both)


def test_a_single_round_confirms_nothing():
    one = evidence()
    short = evidence()
    object.__setattr__(short, "rounds", one.rounds[:1])
    assert judged(short).case.confirmation is None
