"""One function says what is the matter with a run, and every view shows that."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import Level, Stall
from paceline.diagnosis.run_state import Tone, run_state
from paceline.facts import Evidence, RankRecord, Run, SecondaryStatus, Status
from paceline.findings import CauseFinding, Confidence
from paceline.recording.fact_json import to_plain
from paceline.views.pace import pace
from paceline.views.ps import ListedRun, ps_facts, ps_text
from paceline.views.run_state import stall_line, state_note, state_words
from paceline.views.top import top_facts, top_text

SECOND = 1_000_000_000
STARTED = 1_795_000_000 * SECOND
NOW = STARTED + 100 * SECOND
RUN = Run(
    id="r-7f3a91",
    name="train",
    directory="d",
    command=("train.py",),
    started_ns=STARTED,
    first_host="algo-1",
    secondary_status=SecondaryStatus.TRAINING,
)
STALL = Stall(
    level=Level.STALL,
    since_ns=NOW - 26 * SECOND,
    detected_ns=NOW - 23 * SECOND,
    threshold_seconds=3.0,
    late=(0,),
    waiting=(1,),
    since_step=30,
)
WAITING = replace(STALL, level=Level.WAITING)
ASLEEP = CauseFinding(
    code="N01", title="rank asleep", level=Level.STALL, ranks=(0,), hosts=("algo-1",), saw=("at train.py:64",)
)
LONG_WORK = CauseFinding(code="N04", title="long work", level=Level.WAITING, ranks=(0,), confidence=Confidence.LIKELY)
ORDER = CauseFinding(code="M04", title="order differs", level=Level.DIVERGENCE, ranks=(0, 1))
KILLED = CauseFinding(code="C04", title="killed", level=Level.CRASH, ranks=(1,))
SLOW = CauseFinding(code="S01", title="straggler", level=Level.SLOW, ranks=(1,))
FAILED = replace(RUN, status=Status.FAILED, finished_ns=NOW, exit_code=202, reason="stopped on a confirmed hang")
DONE = replace(RUN, status=Status.COMPLETED, finished_ns=NOW, exit_code=0)


def stood(stall=STALL):
    return {"event": "standstill", "t_ns": stall.detected_ns, "standstill": to_plain(stall)}


def caused(finding, **more):
    return {"event": "cause", "t_ns": NOW, "finding": to_plain(finding), **more}


CONFIRMED = {"event": "hang_confirmed", "t_ns": NOW}
OVER = {"event": "standstill_over", "t_ns": NOW}
AGAIN = {"event": "attempt_started", "t_ns": NOW}


@pytest.mark.parametrize(
    ("run", "events", "word", "tone", "codes"),
    [
        (RUN, (), "running", Tone.GOOD, ()),
        (RUN, (stood(),), "stands still", Tone.WARN, ()),
        (RUN, (stood(), caused(ASLEEP)), "stands still", Tone.BAD, ("N01",)),
        (RUN, (stood(), CONFIRMED), "hangs", Tone.BAD, ()),
        (RUN, (stood(), caused(ASLEEP), CONFIRMED), "hangs", Tone.BAD, ("N01",)),
        (RUN, (stood(WAITING), caused(LONG_WORK)), "waits", Tone.WARN, ("N04",)),
        (RUN, (stood(), caused(ASLEEP), CONFIRMED, OVER), "running", Tone.GOOD, ()),
        (RUN, (stood(), caused(ASLEEP), CONFIRMED, AGAIN), "running", Tone.GOOD, ()),
        (RUN, (stood(), caused(ASLEEP, resumed=True)), "stands still", Tone.WARN, ()),
        (RUN, (caused(ORDER),), "running", Tone.WARN, ("M04",)),
        (RUN, (caused(SLOW),), "running", Tone.GOOD, ()),
        (RUN, (stood(), caused(ASLEEP), caused(ORDER)), "stands still", Tone.BAD, ("M04", "N01")),
        (replace(RUN, status=Status.STOPPING), (stood(), caused(ASLEEP)), "stopping", Tone.WARN, ("N01",)),
        (replace(RUN, started_ns=0), (), "unknown", Tone.WARN, ()),
        (replace(RUN, status=Status.FAILED), (), "dead", Tone.BAD, ()),
        (FAILED, (stood(), caused(ASLEEP), CONFIRMED), "failed", Tone.BAD, ("N01",)),
        (FAILED, (stood(), caused(ASLEEP), OVER, caused(KILLED)), "failed", Tone.BAD, ("C04",)),
        (FAILED, (caused(SLOW), caused(LONG_WORK)), "failed", Tone.BAD, ()),
        (replace(FAILED, secondary_status=SecondaryStatus.MAX_RUNTIME_EXCEEDED), (caused(SLOW),), "failed", Tone.BAD, ("S01",)),
        (DONE, (caused(SLOW), caused(KILLED)), "done", Tone.GOOD, ()),
        (DONE, (caused(ORDER),), "done", Tone.WARN, ("M04",)),
        (RUN, ({"event": "standstill", "standstill": "torn"}, {"event": "cause", "finding": 3}, {}), "running", Tone.GOOD, ()),
    ],
)  # fmt: skip
def test_the_state_of_a_run(run, events, word, tone, codes):
    state = run_state(run, events)
    assert (state.word, state.tone, tuple(finding.code for finding in state.findings)) == (word, tone, codes)
    assert (state.lasting_stall is not None) == (word in ("waits", "stands still", "hangs"))


HANGING = (stood(), caused(ASLEEP), CONFIRMED)


def test_a_hang_is_said_with_its_rank_and_since_when():
    state = run_state(RUN, HANGING)
    assert state_words(state, NOW) == "hangs, 26 s"
    assert state_note(state, NOW) == "N01 hangs 26 s, rank 0"
    assert stall_line(state, NOW) == "hangs for 26 s after step 30: N01 rank asleep: rank 0 on algo-1; at train.py:64"


def test_before_a_cause_is_known_it_is_said_who_waits_for_whom():
    state = run_state(RUN, (stood(),))
    assert state_note(state, NOW) == "stands still 26 s, rank 0"
    assert stall_line(state, NOW) == "stands still: rank 1 waits for rank 0 after step 30, for 26 s"


def test_of_a_healthy_run_nothing_is_said():
    state = run_state(RUN, ())
    assert (state_words(state, NOW), state_note(state, NOW), stall_line(state, NOW)) == ("running", "", "")


RANKS = tuple(
    RankRecord(host="algo-1", rank=rank, attempt=0, world_size=2, step_count=30, step_seconds=0.4) for rank in range(2)
)


def test_the_list_has_the_hang_and_the_cause_of_an_end():
    listed = [
        ListedRun(RUN, run_state(RUN, HANGING), RANKS),
        ListedRun(FAILED, run_state(FAILED, HANGING), ()),
    ]
    lines = ps_text(listed, NOW, width=None).splitlines()
    assert lines[1].split()[:6] == ["r-7f3a91", "train", "InProgress", "2/2", "30", "-"]
    assert lines[1].endswith("N01 hangs 26 s, rank 0")
    assert lines[2].endswith("N01 rank asleep, rank 0  exit 202  stopped on a confirmed hang")
    facts = ps_facts(listed).runs
    assert [one.state for one in facts] == ["hangs", "failed"]
    assert [one.finding.code for one in facts] == ["N01", "N01"]
    assert [one.stands_still_since_ns for one in facts] == [STALL.since_ns, None]


def test_the_picture_of_a_hanging_run_begins_with_the_hang_and_has_no_pace():
    evidence = Evidence(run=RUN, hosts=("algo-1",), ranks=RANKS, events=HANGING, telemetry={})
    lines = top_text(evidence, pace(RANKS), (), now_ns=NOW, width=None).splitlines()
    assert lines[1].startswith(" hangs for 26 s after step 30: N01") and lines[1].endswith("(paceline why r-7f3a91)")
    assert " ms" not in lines[2] and "LATE" not in "".join(lines)
    assert [line.split()[-1] for line in lines if line.split()[:1] in (["0"], ["1"])] == ["late", "waits"]
    assert top_facts(evidence, pace(RANKS), (), now_ns=NOW).state == "hangs"


def test_the_list_says_where_runs_of_other_directories_are():
    mine = replace(RUN, directory="/home/me/a/.paceline/runs/r-7f3a91")
    other = replace(RUN, id="r-000002", directory="/home/me/b/.paceline/runs/r-000002")
    listed = [ListedRun(run, run_state(run, ()), ()) for run in (mine, other)]
    lines = ps_text(listed, NOW, here="/home/me/a/.paceline/runs", width=None).splitlines()
    assert "WHERE" in lines[0] and lines[1].split()[-1] == "here" and lines[2].split()[-1] == "/home/me/b"
    assert "WHERE" not in ps_text(listed[:1], NOW, here="/home/me/a/.paceline/runs", width=None)
