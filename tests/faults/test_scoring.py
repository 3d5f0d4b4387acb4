"""The harness itself, on made-up events and scripts: what counts as detected, judged, right and false."""

import pytest
from catalogue import Fault, Trial, command_of, fault_of, faults, over_our_exchange, variants
from harness import command
from report import report
from scoring import Outcome, score

SECOND = 1_000_000_000
START = 1_795_000_000 * SECOND


def event(seconds, name, **fields):
    return {"t_ns": START + int(seconds * SECOND), "event": name, **fields}


def standstill(seconds, level="stall", late=(1,)):
    return event(seconds, "standstill", standstill={"level": level, "late": list(late)}, pulses=[])


def cause(seconds, code="N01", ranks=(1,), level="stall"):
    return event(seconds, "cause", finding=finding(code, ranks, level))


def finding(code="N01", ranks=(1,), level="stall"):
    return {"code": code, "ranks": list(ranks), "level": level, "confidence": "high"}


@pytest.fixture
def fault(tmp_path):
    return Fault(name="n01_asleep", code="N01", what="", script=tmp_path / "n01_asleep.py", expected=frozenset({"N01"}))


def scored(fault, events, trial=None, **more):
    fields = {"findings": None, "injected_ns": START + 5 * SECOND, "exit_code": None, **more}
    return score(fault, trial or Trial(), events=events, started_ns=START, ended_ns=START + 20 * SECOND, **fields)


def test_seconds_count_from_the_injection(fault):
    outcome = scored(fault, [event(1, "run_started"), standstill(8.1), cause(9.5)], findings=[finding()])
    assert (outcome.detected_after_seconds, outcome.judged_after_seconds) == (3.1, 4.5)
    assert outcome.cause_right and outcome.rank_right and outcome.alarms == ()


def test_where_no_moment_is_told_they_count_from_the_start(fault):
    assert scored(fault, [standstill(8)], injected_ns=None).detected_after_seconds == 8.0


def test_only_the_first_finding_counts(fault):
    outcome = scored(fault, [cause(9)], findings=[finding("N02"), finding("N01")])
    assert not outcome.cause_right and outcome.codes == ("N02", "N01")


def test_naming_a_victim_beside_the_culprit_is_wrong(fault):
    assert scored(fault, [cause(9)], findings=[finding(ranks=(0, 1))]).rank_right is False


def test_of_two_ranks_that_disagree_naming_both_is_right_and_of_three_it_is_not(tmp_path):
    fault = Fault(name="m04", code="M04", what="", script=tmp_path / "m04.py", expected=frozenset({"M04"}))
    both = [finding("M04", (0, 1), "divergence")]
    assert scored(fault, [], findings=both).rank_right
    assert scored(fault, [], Trial(rank=1, world_size=3), findings=both).rank_right is False


def test_a_fault_that_is_nobodys_compares_no_ranks(fault, tmp_path):
    nobody = Fault(name="s07", code="S07", what="", script=tmp_path / "s07.py", names_nobody=True)
    assert scored(nobody, [], findings=[]).rank_right is None


def test_without_an_answer_of_why_the_newest_live_finding_counts(fault):
    outcome = scored(fault, [cause(9, "N02"), cause(10, "N01")])
    assert outcome.codes == ("N01", "N02") and outcome.cause_right


def test_a_job_that_says_nothing_is_a_miss(fault):
    outcome = scored(fault, [event(1, "run_started")], findings=[])
    assert outcome.cause_right is False and outcome.rank_right is False and outcome.detected_after_seconds is None


def test_an_alarm_before_the_fault_is_a_false_one(fault):
    outcome = scored(fault, [standstill(2), standstill(8)], findings=[finding()])
    assert outcome.alarms == ("stall ranks 1",) and outcome.detected_after_seconds == 3.0


def test_a_decoy_may_be_told_that_somebody_waits_but_not_that_it_stalls(tmp_path):
    decoy = Fault(name="decoy_save", code="", what="", script=tmp_path / "decoy_save.py")
    waits = scored(decoy, [standstill(8, "waiting"), cause(9, "N04", (0,), "waiting")], injected_ns=None)
    assert waits.alarms == () and waits.notices == ("waiting ranks 1", "N04 ranks 0") and waits.cause_right is None
    assert scored(decoy, [standstill(8)], injected_ns=None).alarms


def test_a_notice_of_something_else_on_the_way_is_no_judgement(fault):
    notice = cause(6, "N04", (1,), "waiting")
    assert scored(fault, [notice, cause(9.5)], findings=[finding()]).judged_after_seconds == 4.5
    assert scored(fault, [notice], findings=[finding()]).judged_after_seconds is None


def test_a_job_that_ended_first_is_judged_at_its_end_unless_the_harness_ended_it(fault):
    end = event(7, "run_finished", exit_code=1)
    assert scored(fault, [end], findings=[finding()]).judged_after_seconds == 2.0
    assert scored(fault, [event(6.9, "stop_asked"), end], findings=[finding()]).judged_after_seconds is None


def test_a_rank_that_died_is_a_detection_and_one_that_is_done_is_not(fault):
    ended = event(7, "rank_exited", rank=0, code=0)
    died = event(8, "rank_exited", rank=1, code=-9)
    assert scored(fault, [ended, died]).detected_after_seconds == 3.0


def test_a_script_tells_its_own_row(tmp_path):
    path = tmp_path / "n02_stopped.py"
    path.write_text(
        '"""N02: rank 1 is stopped.\n\npaceline run --nproc-per-node 2 --max-run 60 examples/broken/n02_stopped.py --signal 19\n"""\n'
    )
    row = fault_of(path)
    assert (row.code, row.what, row.level) == ("N02", "rank 1 is stopped.", "stall")
    words = command(row, row.trial(1))
    assert words[3:] == [
        *("run", "--max-run", "60", "--local-hosts", "2", "--nproc-per-node", "2", str(path)),
        *("--rank", "3", "--at-step", "25", "--signal", "19", "--steps", "100000"),
    ]


def test_a_script_that_makes_its_own_hosts_is_started_by_itself(tmp_path):
    path = tmp_path / "s08_latency.py"
    path.write_text('"""S08: the link is far. Needs root.\n\npython examples/broken/s08_latency.py\n"""\n')
    row = fault_of(path)
    assert row.starts_itself and row.needs_root and command(row, row.trial(0))[1] == str(path)


def test_what_stands_before_the_command_and_the_only_rank_are_taken_from_it(tmp_path):
    path = tmp_path / "s13_extra_work.py"
    path.write_text(
        '"""S13: rank 0 does more.\n\nN_THREADS=8 paceline run examples/broken/s13_extra_work.py --rank 0 --ms 9\n"""\n'
    )
    row = fault_of(path)
    assert row.environment == {"N_THREADS": "8"} and row.arguments == ("--ms", "9")
    assert [row.trial(number).rank for number in range(3)] == [0, 0, 0]


def test_a_script_without_a_code_or_a_command_is_refused(tmp_path):
    path = tmp_path / "n02_stopped.py"
    path.write_text('"""Something."""\n')
    with pytest.raises(ValueError, match="does not begin with a code"):
        fault_of(path)
    assert command_of("nothing to type") is None


def test_every_script_of_the_gallery_has_a_row():
    rows = faults()
    assert rows and len({row.name for row in rows}) == len(rows)
    for row, number in variants(rows, 3):
        trial = row.trial(number)
        assert 0 <= trial.rank < trial.world_size and trial.world_size % trial.hosts == 0


def test_some_faults_are_repeated_over_our_own_exchange():
    rows = over_our_exchange()
    assert {row.code for row in rows} == {"N01", "N02", "N06", "C04", "C06", "M02", "S01"} and len(rows) == 14
    assert not {row.name for row in rows} & {row.name for row in faults()}
    by_name = {row.name: row for row in rows}
    words = command(by_name["c04_killed_over_paceline"], Trial())
    assert words[-4:] == ["--backend", "paceline", "--width", "512"]
    words = command(by_name["n02_stopped_over_direct"], Trial())
    assert words[words.index("--gradients") + 1] == "direct" and words.index("--gradients") < words.index(
        str(by_name["n02_stopped_over_direct"].script)
    )


def outcome(kind="fault", name="n01_asleep", code="N01", **fields):
    return Outcome(kind=kind, name=name, code=code, rank=1, world_size=2, hosts=1, at_step=12, **fields)


def test_the_page_names_what_was_missed_and_what_was_taken_for_it():
    page = report(
        [
            outcome(codes=("N01",), ranks=(1,), rank_right=True, cause_right=True, detected_after_seconds=3.2),
            outcome(codes=("N02",), ranks=(1,), rank_right=True, cause_right=False, number=1),
            outcome(kind="torchrun", codes=("x",), rank_right=False, cause_right=False, detected_after_seconds=20.1),
            outcome(kind="healthy", name="healthy", code="", watched_seconds=1800.0, alarms=("stall ranks 1",)),
        ],
        {"n01_asleep": "rank 1 falls asleep"},
        commit="abc1234",
        date="2026-01-01",
        group_timeout=20,
    )
    assert "| cause right (first finding) | 1 of 2 (50.0%) | >= 90% |" in page
    assert "| n01_asleep | rank 1 falls asleep | 2 | 3.2 (3.2), 1 never |" in page and "| 20.1 s | no | no |" in page
    assert "| N01 | 1 | N02 1 |" in page and "1 in 0.50 h" in page
    assert "n01_asleep (rank 1 of 2 on 1 host, step 12): said N02" in page
