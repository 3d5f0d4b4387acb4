"""One judge: of causes that claim the same ranks the better one is kept, and two faults give two findings."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Case, Level, Stall
from paceline.diagnosis.verdict import LiveJudgement, diagnose, told_otherwise
from paceline.facts import RankRecord, Run
from paceline.findings import Cause, CauseFinding, Confidence, Unknown
from paceline.recording.fact_json import to_plain
from paceline.rules import all_causes

SECOND = 1_000_000_000
HIGH, LIKELY, UNCLEAR = Confidence.HIGH, Confidence.LIKELY, Confidence.UNCLEAR


@pytest.fixture
def case():
    run = Run(id="r-000001", name="t", directory="", command=(), started_ns=SECOND, first_host="algo-1")
    return Case(run=run, now_ns=100 * SECOND, lasts=True, not_judged=("algo-1 gpus: no NVML",))


def finding(code, *ranks, level=Level.STALL, **fields):
    return CauseFinding(code=code, title=code.lower(), level=level, ranks=ranks, **fields)


def rule(code, *findings, beats=(), error=None):
    def find(case):
        yield from findings
        if error is not None:
            raise error

    return Cause(code=code, title=code.lower(), page="", find=find, beats=beats)


def codes(case, *rules):
    return [(f.code, f.ranks) for f in diagnose(case, rules).findings]


def test_nothing_found_gives_no_finding_and_keeps_what_the_case_could_not_judge(case):
    said = diagnose(case, (rule("N01"),))
    assert said.findings == ()
    assert said.not_judged == ("algo-1 gpus: no NVML",)


def test_a_cause_whose_fact_is_missing_is_not_judged_and_names_it(case):
    said = diagnose(case, (rule("S02", error=Unknown("the CPU quota of algo-1")),))
    assert said.not_judged[-1] == "S02 s02: the CPU quota of algo-1"


def test_a_rule_that_fails_takes_no_other_answer_away(case):
    said = diagnose(case, (rule("N01", error=KeyError("x")), rule("N02", finding("N02", 1))))
    assert [f.code for f in said.findings] == ["N02"]
    assert "N01" in said.not_judged[-1] and "KeyError" in said.not_judged[-1]


def test_what_a_rule_found_before_it_missed_a_fact_counts(case):
    said = diagnose(case, (rule("N01", finding("N01", 1), error=Unknown("stack of rank 2")),))
    assert [f.ranks for f in said.findings] == [(1,)]
    assert "stack of rank 2" in said.not_judged[-1]


def test_the_more_specific_cause_displaces_the_less_specific_one_of_the_same_rank(case):
    assert codes(case, rule("N01", finding("N01", 1)), rule("N02", finding("N02", 1), beats=("N01",))) == [
        ("N02", (1,))
    ]


def test_it_does_not_displace_one_of_another_rank(case):
    both = codes(case, rule("N01", finding("N01", 1)), rule("N02", finding("N02", 2), beats=("N01",)))
    assert both == [("N01", (1,)), ("N02", (2,))]


def test_an_unclear_cause_displaces_no_sure_one(case):
    kept = codes(
        case, rule("N01", finding("N01", 1)), rule("N02", finding("N02", 1, confidence=UNCLEAR), beats=("N01",))
    )
    assert kept == [("N01", (1,))]


def test_a_cause_that_names_nobody_displaces_by_host(case):
    here = finding("R03", level=Level.START, hosts=("algo-2",))
    there = finding("R02", level=Level.START, hosts=("algo-2",))
    elsewhere = finding("R02", level=Level.START, hosts=("algo-3",))
    assert codes(case, rule("R02", there, elsewhere), rule("R03", here, beats=("R02",))) == [("R02", ()), ("R03", ())]


def test_two_unclear_candidates_for_a_rank_are_both_named_a_third_is_not(case):
    rules = [rule(code, finding(code, 1, confidence=UNCLEAR)) for code in ("N01", "N03", "N07")]
    assert [code for code, _ in codes(case, *rules)] == ["N01", "N03"]


def test_a_sure_one_stands_alone(case):
    rules = [rule("N01", finding("N01", 1, confidence=UNCLEAR)), rule("N06", finding("N06", 1, confidence=LIKELY))]
    assert codes(case, *rules) == [("N06", (1,))]


def test_two_faults_of_different_ranks_give_two_findings(case):
    crash = finding("C04", 2, level=Level.CRASH)
    assert codes(case, rule("N02", finding("N02", 1)), rule("C04", crash)) == [("C04", (2,)), ("N02", (1,))]


def test_two_faults_of_different_kinds_of_one_rank_give_two_findings(case):
    slow = finding("S02", 1, level=Level.SLOW)
    assert len(codes(case, rule("N02", finding("N02", 1)), rule("S02", slow))) == 2


def test_a_slow_link_and_a_straggler_are_two_faults(case):
    link = finding("S07", level=Level.SLOW, hosts=("algo-2",))
    late = finding("S01", 1, level=Level.SLOW, hosts=("algo-2",))
    assert len(codes(case, rule("S01", late), rule("S07", link))) == 2


def test_what_is_worst_comes_first(case):
    rules = [rule(f"X{level.name}", finding(f"X{level.name}", place, level=level)) for place, level in enumerate(Level)]
    levels = [f.level for f in diagnose(case, rules).findings]
    worst_first = "divergence crash limit start stall waiting quality slow"
    assert levels == worst_first.split()


def test_how_long_it_took_to_notice_is_said_of_stalls_only(case):
    still = Stall(level=Level.STALL, since_ns=10 * SECOND, detected_ns=13_400_000_000, threshold_seconds=3.0)
    rules = (rule("N01", finding("N01", 1)), rule("S01", finding("S01", 0, level=Level.SLOW)))
    stall, slow = diagnose(replace(case, stall=still), rules).findings
    assert stall.detected_after_seconds == pytest.approx(3.4)
    assert slow.detected_after_seconds is None


def test_the_hosts_of_named_ranks_are_filled_in(case):
    ranks = {rank: RankRecord(host=f"algo-{rank + 1}", rank=rank, attempt=0) for rank in range(2)}
    said = diagnose(replace(case, ranks=ranks), (rule("N01", finding("N01", 1), finding("N01", 7)),))
    assert [found.hosts for found in said.findings] == [("algo-2",), ()]


def test_a_level_that_nobody_knows_comes_last(case):
    rules = (rule("U03", finding("U03", 0, level="odd")), rule("S01", finding("S01", 1, level=Level.SLOW)))
    assert [code for code, _ in codes(case, *rules)] == ["S01", "U03"]


def test_no_two_causes_beat_each_other():
    beats = {cause.code: set(cause.beats) for cause in all_causes()}
    assert not [(one, other) for one in beats for other in beats[one] if one in beats.get(other, ())]


def cause_event(found, attempt=0):
    return {"event": "cause", "attempt": attempt, "finding": to_plain(found)}


def test_what_was_told_live_and_is_judged_otherwise_now_is_named():
    live = finding("S01", 1, level=Level.SLOW, since_step=11)
    events = [cause_event(live), cause_event(finding("N01", 2)), {"event": "cause", "finding": 7}, cause_event(live, 1)]
    now = [replace(live, confidence=LIKELY, since_step=12), finding("C01", 0, level=Level.CRASH)]
    assert told_otherwise(now, events, 0) == (
        LiveJudgement(code="S01", ranks=(1,), live="high, since step 11", now="likely, since step 12"),
        LiveJudgement(code="C01", ranks=(0,), live="", now="high"),
        LiveJudgement(code="N01", ranks=(2,), live="high", now=""),
    )
    assert told_otherwise([live], [cause_event(live)], 0) == ()
