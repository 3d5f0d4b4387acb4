"""`paceline why` is one page: the state of the run, findings in four parts, then what was not judged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.api.handle import RunHandle
from paceline.diagnosis.case import Case, Forecast, Level, Stall, StepTiming
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import Evidence, RankExit, RankRecord, Run, SecondaryStatus, Status
from paceline.findings import CauseFinding, Confidence
from paceline.recording.fact_json import to_plain
from paceline.terminal_text import BOLD_RED, painted
from paceline.views.documents import json_text
from paceline.views.live import event_text
from paceline.views.summary import summary_facts, summary_text
from paceline.views.why import WhyPage, earlier, finding_lines, stall_text, why_json, why_text

RUNS = Path(__file__).parents[1] / "data" / "runs"
SECOND = 1_000_000_000
STARTED = 1_795_000_000 * SECOND
ASLEEP = CauseFinding(
    code="N01",
    title="rank asleep in its own code",
    level=Level.STALL,
    ranks=(1,),
    hosts=("algo-1",),
    since_step=12,
    detected_after_seconds=3.4,
    saw=("its main thread sleeps at train.py:31 in wait_for_it", "no CPU, no disk, stack unchanged for 0.5 s"),
    ruled_out=("N02 stopped: its state is S, not T",),
    next=("look at train.py:31",),
)
RUN = Run(
    id="r-7f3a91",
    name="train",
    directory="/x/r-7f3a91",
    command=("train.py",),
    started_ns=STARTED,
    first_host="algo-1",
    status=Status.IN_PROGRESS,
    secondary_status=SecondaryStatus.TRAINING,
)
STILL = Stall(
    level=Level.STALL,
    since_ns=STARTED + 30 * SECOND,
    detected_ns=STARTED + 33 * SECOND,
    threshold_seconds=3.0,
    late=(1,),
    waiting=(0, 2, 3),
    operation="all_reduce",
    index=37,
)


@pytest.fixture
def case():
    ranks = {rank: RankRecord(host="algo-1", rank=rank, attempt=0, step_count=12) for rank in range(4)}
    return Case(run=RUN, now_ns=STARTED + 60 * SECOND, lasts=True, hosts=("algo-1",), ranks=ranks)


def test_a_run_that_stands_still(case):
    snapshot = RankSnapshot(host="algo-1", rank=1, pid=7, at_ns=STARTED + 34 * SECOND)
    shown = why_text(
        Diagnosis(findings=(ASLEEP,), not_judged=("S02 CPU quota: no cgroup seen",)),
        replace(case, stall=STILL, snapshots={1: snapshot}),
        WhyPage(),
    )
    assert shown == (
        "r-7f3a91  running  4 ranks, 12 steps on 1 host\n"
        "  now       ranks 0,2-3 wait for rank 1 in all_reduce 37, for 30 s\n"
        "            the newest snapshot of them is 26 s old; paceline stack r-7f3a91 takes a new one\n"
        "\n"
        "stall[N01]: rank asleep in its own code: rank 1 on algo-1, since step 12 (high)\n"
        "  saw       its main thread sleeps at train.py:31 in wait_for_it\n"
        "            no CPU, no disk, stack unchanged for 0.5 s\n"
        "            noticed 3.4 s after it began\n"
        "  not       N02 stopped: its state is S, not T\n"
        "  next      look at train.py:31\n"
        "  more      paceline help N01\n"
        "\n"
        "not judged\n"
        "  S02 CPU quota: no cgroup seen"
    )


def test_a_healthy_run_says_so_in_one_line_with_what_was_looked_at(case):
    assert why_text(Diagnosis(findings=()), case, WhyPage()) == (
        "r-7f3a91  running\nnothing found; 4 ranks, 12 steps on 1 host"
    )


def test_what_was_slow_while_it_ran_and_is_no_longer_is_told_with_the_reason(case):
    late = CauseFinding(
        code="S01", title="straggler", level=Level.SLOW, ranks=(1,), hosts=("algo-1",), saw=("it costs 9 ms",)
    )
    said = {"event": "cause", "attempt": 0, "t_ns": STARTED + 45 * SECOND, "finding": to_plain(late)}
    window = StepTiming(window_seconds=20.0, from_step=900, to_step=1500, step_seconds=0.03, ranks=())
    seen = replace(case, events=(said, said), timing=window)
    shown = why_text(Diagnosis(findings=()), seen, WhyPage(width=200))
    assert shown.count("S01") == 1
    assert (
        "earlier   45 s into the run: S01 straggler: rank 1 on algo-1; it costs 9 ms; "
        "not so in the latest 20 s that are recorded, up to step 1 500"
    ) in shown
    assert "earlier" not in why_text(Diagnosis(findings=(late,)), seen, WhyPage())


OVER = {"event": "standstill_over", "attempt": 0, "after_seconds": 16.0}


@pytest.mark.parametrize(
    ("later", "now", "because"),
    [
        ((), (), "the whole recording does not show it"),
        ((), ("C04",), "another cause explains it now"),
        ((OVER,), ("C04",), "the ranks continued after 16 s"),
        (({**OVER, "ended": [1]},), ("C04",), "rank 1 ended, after 16 s in which others waited for it"),
    ],
)
def test_a_stall_that_is_none_any_more_is_told_with_the_reason_to_people_and_programs(case, later, now, because):
    told = {"event": "cause", "attempt": 0, "t_ns": STARTED + 45 * SECOND, "finding": to_plain(ASLEEP)}
    seen = replace(case, events=(told, *later))
    diagnosis = Diagnosis(findings=tuple(replace(ASLEEP, code=code, level=Level.CRASH) for code in now))
    text = why_text(diagnosis, seen, WhyPage(width=200))
    assert "earlier   45 s into the run: N01 rank asleep" in text and f"; {because}" in text
    (plain,) = why_json(diagnosis, seen).earlier
    assert (plain.code, plain.attempt, plain.after_seconds, plain.reason) == ("N01", 0, 45.0, because)
    again = Diagnosis(findings=(ASLEEP,))
    assert not list(earlier(again, seen))


def test_a_stall_without_a_cause_is_still_told(case):
    shown = why_text(Diagnosis(findings=()), replace(case, stall=STILL), WhyPage())
    assert "wait for rank 1" in shown and "no snapshot of the late ranks yet" in shown


def test_a_run_that_is_over_says_how_it_ended(case):
    run = replace(RUN, status=Status.FAILED, exit_code=1, reason="rank 1 raised ValueError", finished_ns=STARTED)
    head = why_text(Diagnosis(findings=(ASLEEP,)), replace(case, run=run, lasts=False), WhyPage()).splitlines()
    assert head[0] == "r-7f3a91  failed  exit 1  4 ranks, 12 steps on 1 host"
    assert head[1] == "  because   rank 1 raised ValueError"


@pytest.mark.parametrize(
    ("reason", "confidence", "because"),
    [
        ("rank 0 raised RuntimeError", Confidence.HIGH, "rank 1 on algo-1: rank asleep in its own code; then rank 0 raised RuntimeError"),
        ("rank 0 raised RuntimeError", Confidence.UNCLEAR, "rank 0 raised RuntimeError"),
        ("rank 10 raised E", Confidence.LIKELY, "rank 1 on algo-1: rank asleep in its own code; then rank 10 raised E"),
        ("the limit of 2h was reached", Confidence.HIGH, "the limit of 2h was reached"),
    ],
)  # fmt: skip
def test_the_head_names_the_rank_that_the_first_finding_names(case, reason, confidence, because):
    run = replace(RUN, status=Status.FAILED, exit_code=1, reason=reason, finished_ns=STARTED)
    found = replace(ASLEEP, confidence=confidence)
    head = why_text(Diagnosis(findings=(found,)), replace(case, run=run, lasts=False), WhyPage(width=None)).splitlines()
    assert head[1] == f"  because   {because}"


def test_after_a_time_out_the_page_says_where_the_time_went(case):
    page = WhyPage(time_spent=(("compute", 90.0), ("start-up", 30.0), ("evaluation", None)))
    shown = why_text(Diagnosis(findings=()), case, page)
    assert "  compute                  75.0%  1m 30s\n" in shown
    assert "  evaluation              not judged" in shown


def test_a_long_list_of_what_is_not_judged_is_cut_and_counted(case):
    said = Diagnosis(findings=(), not_judged=tuple(f"fact {number}" for number in range(12)))
    assert "  and 5 more, with --json" in why_text(said, case, WhyPage())
    assert "fact 11" in why_text(said, case, WhyPage(all_not_judged=True))


def test_causes_that_lack_the_same_fact_are_one_line(case):
    said = Diagnosis(
        findings=(),
        not_judged=("disk: none", "S01 straggler: the tempo", "S02 quota: x", "S03 x: the tempo", "S04 y: the tempo"),
    )
    shown = why_text(said, case, WhyPage())
    assert shown.splitlines()[-3:] == ["  disk: none", "  the tempo: S01, S03-S04", "  S02 quota: x"]


def test_what_check_said_before_the_run_is_said_again_when_it_broke(case):
    findings = [
        {"code": "K15", "place": "train.py:17", "what": "each rank draws a port of its own"},
        {"code": "K20", "place": "", "what": "--node-rank stands behind the script"},
        "not a finding",
    ]
    broke = replace(case, events=({"event": "source_check", "findings": findings}, {"event": "source_check"}))
    shown = why_text(Diagnosis(findings=(), not_judged=()), broke, WhyPage())
    assert shown.splitlines()[-2:] == [
        "  checked   before the run: K15 train.py:17: each rank draws a port of its own",
        "            before the run: K20: --node-rank stands behind the script",
    ]
    assert [one.code for one in why_json(Diagnosis(findings=()), broke).checked] == [
        "K15",
        "K20",
    ]


def test_of_many_findings_before_the_run_the_first_are_shown(case):
    findings = [{"code": "K07", "place": f"train.py:{line}", "what": "not JSON"} for line in range(1, 100)]
    broke = replace(case, events=({"event": "source_check", "findings": findings},))
    shown = why_text(Diagnosis(findings=(), not_judged=()), broke, WhyPage()).splitlines()
    assert shown[-2:] == [
        "            before the run: K07 train.py:7: not JSON",
        "            and 92 more, with --json",
    ]
    assert len(why_json(Diagnosis(findings=()), broke).checked) == 99


def test_the_object_for_a_program(case):
    said = why_json(Diagnosis(findings=(ASLEEP,), not_judged=("x",)), case)
    assert json.loads(json_text(said)) == {
        "schema": "paceline.why/2",
        "run_id": "r-7f3a91",
        "status": "InProgress",
        "secondary_status": "Training",
        "exit_code": None,
        "finished_ns": None,
        "findings": [
            {
                "code": "N01",
                "title": "rank asleep in its own code",
                "level": "stall",
                "ranks": [1],
                "hosts": ["algo-1"],
                "confidence": "high",
                "since_step": 12,
                "detected_after_seconds": 3.4,
                "saw": list(ASLEEP.saw),
                "ruled_out": list(ASLEEP.ruled_out),
                "next": ["look at train.py:31"],
            }
        ],
        "earlier": [],
        "checked": [],
        "restart_count": 0,
        "resume_count": 0,
        "lost_step_count": 0,
        "not_judged": ["x"],
    }


def test_colour_marks_the_head_alone():
    lines = finding_lines(ASLEEP, WhyPage(color=True))
    assert lines[0].startswith(painted(BOLD_RED, "stall[N01]"))
    assert not any("\x1b" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("still", "text"),
    [
        (replace(STILL, waiting=()), "rank 1 makes no progress in all_reduce 37, for 1.0 s"),
        (replace(STILL, late=()), "no rank makes progress in all_reduce 37, and none is behind the others, for 1.0 s"),
        (
            replace(STILL, late=(), together=True, recorder="nccl"),
            "no rank makes progress in all_reduce 37, and none is behind the others, for 1.0 s",
        ),
        (replace(STILL, late=(), recorder="nccl"), "no rank makes progress in all_reduce 37, for 1.0 s"),
        (
            replace(STILL, operation=None, since_step=12, waiting=(0,)),
            "rank 0 waits for rank 1 after step 12, for 1.0 s",
        ),
    ],
)
def test_who_waits_for_whom(still, text):
    assert stall_text(still, still.since_ns + SECOND) == text


# ------------------------------------------------------------------------------------------------------------------ live


def test_a_cause_is_shown_as_it_is_found():
    text = event_text({"event": "cause", "finding": to_plain(ASLEEP)})
    assert text.splitlines()[0] == "stall[N01]: rank asleep in its own code: rank 1 on algo-1, since step 12 (high)"
    assert text.splitlines()[-1] == "  more      paceline why"


def test_a_cause_of_an_attempt_that_was_resumed_is_not_shown_while_the_job_goes_on():
    assert event_text({"event": "cause", "finding": to_plain(ASLEEP), "resumed": True}) is None


def test_a_stall_is_one_line():
    text = event_text({"event": "standstill", "standstill": to_plain(STILL), "pulses": []})
    assert text == "paceline  ranks 0,2-3 wait for rank 1 in all_reduce 37, for 3.0 s (threshold 3.0 s); inspecting"


def test_that_the_ranks_go_on_is_told():
    assert event_text({"event": "standstill_over", "after_seconds": 21.4}) == "paceline  the ranks continued after 21 s"


def test_where_the_late_rank_ended_nobody_is_said_to_go_on():
    text = event_text({"event": "standstill_over", "after_seconds": 21.4, "ended": [1]})
    assert text == "paceline  rank 1 ended, after 21 s in which others waited for it"


CUT = Forecast(
    at_ns=1,
    step=100,
    total_steps=10_000,
    total_from="--set total_steps",
    step_seconds=1.0,
    needed_seconds=10_000.0,
    limit_seconds=3600.0,
    elapsed_seconds=100.0,
    reaches_step=3600,
)
FITS = replace(CUT, limit_seconds=20_000.0, reaches_step=10_000)
FREE = replace(CUT, limit_seconds=None, reaches_step=None)


def test_a_limit_that_cuts_is_told_and_one_that_does_is_not():
    text = event_text({"event": "forecast", "forecast": to_plain(CUT)})
    assert "step 3600 of 10000" in text
    assert event_text({"event": "forecast", "forecast": to_plain(FITS)}) is None
    assert event_text({"event": "forecast", "forecast": to_plain(FREE)}) is None


def test_the_page_of_a_run_that_lasts_tells_of_a_limit_that_cuts(case):
    shown = [
        why_text(Diagnosis(findings=()), replace(case, forecast=forecast, lasts=lasts), WhyPage())
        for forecast, lasts in ((CUT, True), (FITS, True), (CUT, False), (FREE, True), (FREE, False))
    ]
    assert ["--max-run" in text for text in shown] == [True, False, False, False, False]
    assert ["  end       the job will be done in about 2h45m" in text for text in shown] == [*3 * [False], True, False]
    assert "  limit     the limit of 1h (--max-run) will end the job at step 3600 of 10000" in shown[0]


@pytest.mark.parametrize("event", ["cause", "standstill", "forecast"])
@pytest.mark.parametrize("part", [None, 3, {"level": 1}])
def test_an_event_that_is_malformed_is_not_shown(event, part):
    assert event_text({"event": event, "finding": part, "standstill": part, "forecast": part}) is None


# --------------------------------------------------------------------------------------------------------------- summary


def ended(status, *events, **fields):
    run = replace(RUN, status=status, finished_ns=STARTED + 60 * SECOND, exit_code=1, **fields)
    return Evidence(run=run, hosts=("algo-1",), ranks=(), events=events, telemetry={})


def cause(finding):
    return {"event": "cause", "finding": to_plain(finding)}


KILLED = CauseFinding(code="C04", title="ended from outside", level=Level.CRASH, ranks=(1,), saw=("SIGKILL, no oom",))
ORDER = CauseFinding(code="M04", title="order differs", level=Level.DIVERGENCE, ranks=(0, 1))
SLOW = CauseFinding(code="S05", title="waits for data", level=Level.SLOW, ranks=(1,), confidence=Confidence.LIKELY)


def test_the_end_of_a_failed_run_names_the_cause_below_its_headline():
    exits = [RankExit(host="algo-1", rank=1, attempt=0, code=-9, time_ns=1)]
    lines = summary_text(ended(Status.FAILED, cause(KILLED), cause(SLOW)), exits).splitlines()
    assert lines[1] == "  rank 1 on algo-1 was ended by SIGKILL"
    assert lines[2] == "  cause       C04 ended from outside: rank 1; SIGKILL, no oom"
    assert lines[3] == "              more: paceline why r-7f3a91"


def test_a_done_run_with_wrong_numbers_says_so():
    assert "M04 order differs" in summary_text(ended(Status.COMPLETED, cause(ORDER), cause(ASLEEP)))


def test_what_was_over_or_belongs_to_an_earlier_attempt_is_no_cause_of_the_end():
    over = ended(Status.FAILED, cause(ASLEEP), {"event": "standstill_over"}, cause(KILLED))
    assert [finding.code for finding in summary_facts(over).findings] == ["C04"]
    again = ended(Status.FAILED, cause(KILLED), {"event": "attempt_started"})
    assert not summary_facts(again).findings


def test_slow_is_a_cause_of_a_time_out_only():
    late = ended(Status.STOPPED, cause(SLOW), secondary_status=SecondaryStatus.MAX_RUNTIME_EXCEEDED)
    assert summary_facts(late).findings[0].code == "S05"
    assert not summary_facts(ended(Status.FAILED, cause(SLOW))).findings


def test_the_last_word_on_a_cause_counts():
    surer = replace(KILLED, saw=("out of memory",))
    told = summary_facts(ended(Status.FAILED, cause(KILLED), cause(surer))).findings
    assert [finding.saw for finding in told] == [("out of memory",)]


def test_in_python_no_line_is_cropped_and_a_notebook_breaks_long_lines():
    why = RunHandle(RUNS / "lost_host").why()
    html = why._repr_html_()
    assert "its agent was silent for" in str(why) and "…" not in html
    assert html.startswith('<pre style="white-space: pre-wrap">r-')
