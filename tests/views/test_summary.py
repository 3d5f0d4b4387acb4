"""The end of a run says where the time went."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Estimate, HeldUp, RankTiming, StepTiming
from paceline.facts import Evidence, RankError, RankExit, RankRecord, Run, SecondaryStatus, Status, Step
from paceline.recording.fact_json import to_plain
from paceline.views.summary import summary_facts, summary_text

SECOND = 1_000_000_000
STARTED = 1_795_000_000 * SECOND


def rank(number, **fields):
    return RankRecord(
        **{
            "host": "node05",
            "rank": number,
            "attempt": 0,
            "pid": 100 + number,
            "world_size": 4,
            "step_count": 1000,
            "step_seconds": 412.0,
            "data_seconds": 8.0,
            "communication_seconds": 16.0,
            "checkpoint_seconds": 0.0,
            "last_step_ns": STARTED + 425 * SECOND,
        }
        | fields
    )


@pytest.fixture
def done():
    run = Run(
        id="r-7f3a91",
        name="train",
        directory=".paceline/runs/r-7f3a91",
        command=("train.py",),
        started_ns=STARTED,
        first_host="node05",
        status=Status.COMPLETED,
        secondary_status=SecondaryStatus.COMPLETED,
        finished_ns=STARTED + 430 * SECOND,
        exit_code=0,
        reason="every rank ended with 0",
    )
    ranks = (rank(0), rank(1), rank(2, communication_seconds=4.0), rank(3))
    return Evidence(run=run, hosts=("node05",), ranks=ranks, events=(), telemetry={})


def test_a_run_that_is_done(done):
    assert summary_text(replace(done, not_judged=("node05 gpus: NVML is not installed",))) == (
        "done  r-7f3a91  exit 0  in 7m 10s  1 000 steps  412 ms/step\n"
        "  start-up    13 s before the first step\n"
        "  time        compute 93.8%  data 1.9%  exposed comm 3.1%  checkpoint 0.0%  lost 1.2%\n"
        "  not judged  node05 gpus: NVML is not installed\n"
        "  logs        paceline logs r-7f3a91   .paceline/runs/r-7f3a91"
    )


def test_a_failed_run_leads_with_its_first_failing_rank(done):
    error = RankError(
        type="ValueError", message="bad batch", time_ns=1, file="train.py", line=9, function="f", source="x()"
    )
    exits = [RankExit(host="node05", rank=1, attempt=0, code=1, time_ns=2, error=error)]
    failed = replace(done.run, status=Status.FAILED, exit_code=1, reason="rank 1 on node05 raised ValueError")
    assert summary_text(replace(done, run=failed), exits).splitlines()[:4] == [
        "failed  r-7f3a91  exit 1  in 7m 10s  1 000 steps  412 ms/step",
        "  rank 1 on node05 raised ValueError: bad batch",
        "    train.py:9 in f",
        "      x()",
    ]


def test_a_cause_that_blames_another_rank_comes_before_the_victims_words(done):
    lost = RankError(type="RuntimeError", message="Connection reset by peer", time_ns=1)
    exits = [RankExit(host="node05", rank=0, attempt=0, code=1, time_ns=2, error=lost)]
    left = {"code": "C06", "title": "rank left with code 0", "level": "crash", "ranks": [1], "saw": ["after 12 steps"]}
    run = replace(done.run, status=Status.FAILED, exit_code=1, reason="rank 0 on node05 raised RuntimeError")
    for blamed, order in (([1], ["cause", "rank"]), ([0], ["rank", "cause"])):
        events = ({"event": "cause", "finding": left | {"ranks": blamed}},)
        lines = summary_text(replace(done, run=run, events=events), exits).splitlines()
        assert [word for line in lines if (word := line.split()[0]) in ("cause", "rank")] == order


def test_a_stop_at_the_limit_names_the_secondary_status(done):
    stopped = replace(
        done.run,
        status=Status.STOPPED,
        secondary_status=SecondaryStatus.MAX_RUNTIME_EXCEEDED,
        exit_code=204,
        reason="the limit of 430 s (--max-run) was reached",
    )
    assert summary_text(replace(done, run=stopped)).splitlines()[:2] == [
        "stopped  r-7f3a91  exit 204  MaxRuntimeExceeded  in 7m 10s  1 000 steps  412 ms/step",
        "  because     the limit of 430 s (--max-run) was reached",
    ]


def test_a_run_whose_agent_is_gone_is_not_judged_where_it_is_silent(done):
    gone = replace(
        done.run, status=Status.FAILED, exit_code=None, finished_ns=None, reason="agent gone: pid 4711 no longer exists"
    )
    assert summary_text(replace(done, run=gone, ranks=())).splitlines()[:3] == [
        "failed  r-7f3a91  exit not judged  duration not judged",
        "  because     agent gone: pid 4711 no longer exists",
        "  time        not judged: no rank reported steps",
    ]


def test_a_part_that_was_not_seen_is_not_shown_as_nothing(done):
    blind = tuple(rank(number, data_seconds=None) for number in range(2))
    assert summary_text(replace(done, ranks=blind)).splitlines()[2] == (
        "  time        compute not judged  data not judged  exposed comm 3.8%  checkpoint 0.0%  lost 1.2%"
    )


def timing(gain, *, seconds=20.0):
    """The event of a step timing in which rank 3 holds up the others by so much, or nobody does."""
    held_up = HeldUp() if gain is None else HeldUp(ranks=(3,), gain=gain)
    ranks = tuple(RankTiming(rank=n, host="node05", steps=50, step_seconds=0.4) for n in range(4))
    found = StepTiming(
        window_seconds=seconds, from_step=900, to_step=950, step_seconds=0.4, ranks=ranks, held_up=held_up
    )
    return {"event": "tempo", "attempt": 0, "tempo": to_plain(found)}


LATE = Estimate(seconds=0.1, low=0.09, high=0.11, blocks=20)


def test_a_rank_that_others_wait_for_is_named(done):
    lines = summary_text(replace(done, events=(timing(LATE),))).splitlines()
    assert lines[3] == "  slowest     rank 3 on node05: the others wait 90.0 ms to 110 ms of each step of 400 ms"
    facts = summary_facts(replace(done, events=(timing(LATE),))).slowest
    assert (facts.ranks, facts.hosts, facts.waited_seconds_low) == ((3,), ("node05",), 0.09)
    assert (facts.host, facts.rank) == ("node05", 3)


@pytest.mark.parametrize(
    "event",
    [
        timing(None),
        # As much as that may be chance.
        timing(replace(LATE, low=-0.01)),
        # Six seconds of a job.
        timing(LATE, seconds=6.0),
        {"event": "tempo", "attempt": 0, "tempo": {"of": "another version"}},
    ],
)
def test_without_a_claim_beyond_chance_nobody_is_the_slowest(event, done):
    # Own times that differ by a third, of which nobody knows how much is chance.
    ranks = (*(rank(number, communication_seconds=100.0) for number in range(3)), rank(3, communication_seconds=0.0))
    seen = replace(done, ranks=ranks, events=(event,))
    assert "slowest" not in summary_text(seen)
    assert summary_facts(seen).slowest is None


def test_the_last_word_on_the_exchange_of_gradients_is_kept(done):
    def notice(text, **more):
        return {"event": "notice", "topic": "gradients", "text": text} | more

    events = (
        {"event": "attempt_started"},
        notice("--gradients auto: direct: 80 ms a step expected"),
        notice("--gradients auto: direct: 80 ms a step expected, 82 ms measured; plain DDP 240 ms"),
        {"event": "notice", "text": "installing x"},
    )
    lines = summary_text(replace(done, events=events)).splitlines()
    assert lines[3] == "  gradients   auto: direct: 80 ms a step expected, 82 ms measured; plain DDP 240 ms"
    assert summary_facts(replace(done, events=events)).gradients == (
        "auto: direct: 80 ms a step expected, 82 ms measured; plain DDP 240 ms",
    )
    again = (*events, {"event": "attempt_started"})
    assert summary_facts(replace(done, events=again)).gradients == ()
    named = (notice("--gradients ring: at work"), notice("--gradients ring steps aside for one model: it has a hook"))
    lines = summary_text(replace(done, events=named)).splitlines()
    assert lines[3:5] == ["  gradients   ring: at work", "              ring steps aside for one model: it has a hook"]


def test_where_much_was_lost_it_says_when(done):
    late = replace(done.run, finished_ns=STARTED + 500 * SECOND)
    lines = summary_text(replace(done, run=late)).splitlines()
    assert lines[1] == "  start-up    13 s before the first step"
    assert lines[3] == "  lost        1m 15s after the last step"


def test_the_start_and_the_end_of_a_short_run_alarm_nobody(done):
    short = replace(done.run, finished_ns=STARTED + 6 * SECOND)
    ranks = tuple(rank(n, step_count=4, step_seconds=1.0, last_step_ns=STARTED + 5 * SECOND) for n in range(4))
    text = summary_text(replace(done, run=short, ranks=ranks))
    assert "start-up    4.0 s before the first step" in text and "  lost     " not in text


def _step(index, seconds):
    return Step(
        index=index, end_ns=index, duration_ns=int(seconds * 1e9), data_ns=0, communication_ns=0, checkpoint_ns=0
    )


def test_the_headline_is_the_median_of_steady_steps(done):
    def stepping(*seconds):
        steps = tuple(_step(n, s) for n, s in enumerate(seconds, 1))
        return rank(0, step_count=len(steps), step_seconds=sum(seconds), steps=steps)

    long = replace(done, ranks=(stepping(18.0, *[1.0] * 4, *[0.05] * 20, 3.0),))
    assert summary_text(long).splitlines()[0].endswith("26 steps  50.0 ms/step")
    assert (summary_facts(long).step_seconds, summary_facts(long).steady_step_count) == (0.05, 21)
    # Too few after the warm-up: all but the first. Of one step nobody knows what the others would take.
    few = replace(done, ranks=(stepping(18.0, 0.05, 0.05, 0.05),))
    assert summary_text(few).splitlines()[0].endswith("4 steps  50.0 ms/step")
    assert summary_text(replace(done, ranks=(stepping(18.0),))).splitlines()[0].endswith("1 step")


def test_where_only_totals_are_known_the_first_step_is_left_out(done):
    first = STARTED + 20 * SECOND
    totals = rank(0, step_count=11, step_seconds=20.0, first_step_ns=first, last_step_ns=first + 2 * SECOND)
    assert summary_text(replace(done, ranks=(totals,))).splitlines()[0].endswith("11 steps  200 ms/step")
    assert summary_facts(replace(done, ranks=(totals,))).steady_step_count is None


def test_many_things_not_judged_are_counted(done):
    lines = summary_text(replace(done, not_judged=tuple(f"thing {n}" for n in range(9)))).splitlines()
    assert lines[3:8] == [
        "  not judged  thing 0",
        "  not judged  thing 1",
        "  not judged  thing 2",
        "  not judged  thing 3",
        "  not judged  and 5 more: paceline top --once --json",
    ]


def test_no_line_of_it_is_longer_than_the_width(done):
    long = replace(done, not_judged=("x" * 300,))
    assert all(len(line) <= 80 for line in summary_text(long, width=80).splitlines())
    assert "x" * 300 in summary_text(long, width=None)


def test_a_program_gets_seconds_and_null_for_what_is_unknown(done):
    facts = summary_facts(replace(done, ranks=()))
    assert (facts.wall_seconds, facts.loading_seconds, facts.slowest) == (430.0, None, None)
