"""The harness itself, on made-up events and scripts: what counts as detected, judged, right and false."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import (
    NOT_ON_NCCL,
    Fault,
    Trial,
    command_of,
    fault_of,
    faults,
    on_an_old_torch,
    on_nccl,
    over_our_exchange,
    variants,
)
from harness import budget_seconds, command, environment_of, interpreter
from report import report
from results import by_torch, key_of, results_of
from scoring import Answer, Outcome, Told, is_judgement, score

SECOND = 1_000_000_000
START = 1_795_000_000 * SECOND
PYTHON = Path("python")


def event(seconds, name, **fields):
    return {"t_ns": START + int(seconds * SECOND), "event": name, **fields}


def stall(seconds, level="stall", late=(1,)):
    return event(seconds, "standstill", standstill={"level": level, "late": list(late)}, pulses=[])


def cause(seconds, code="N01", ranks=(1,), level="stall"):
    return event(seconds, "cause", finding=finding(code, ranks, level))


def finding(code="N01", ranks=(1,), level="stall"):
    return {"code": code, "ranks": list(ranks), "level": level, "confidence": "high"}


@pytest.fixture
def fault(tmp_path):
    return Fault(name="n01_asleep", code="N01", what="", script=tmp_path / "n01_asleep.py", expected=frozenset({"N01"}))


def scored(fault, events, trial=None, **more):
    findings = more.pop("findings", None)
    answer = None if findings is None else Answer(tuple(findings), tuple(more.pop("not_judged", ())))
    fields = {"answer": answer, "injected_ns": START + 5 * SECOND, "exit_code": None, **more}
    return score(fault, trial or Trial(), events=events, started_ns=START, ended_ns=START + 20 * SECOND, **fields)


def test_seconds_count_from_the_injection(fault):
    outcome = scored(fault, [event(1, "run_started"), stall(8.1), cause(9.5)], findings=[finding()])
    assert (outcome.detected_after_seconds, outcome.judged_after_seconds) == (3.1, 4.5)
    assert outcome.cause_right and outcome.rank_right and outcome.alarms == ()


def test_where_no_moment_is_told_they_count_from_the_start(fault):
    assert scored(fault, [stall(8)], injected_ns=None).detected_after_seconds == 8.0


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
    outcome = scored(fault, [stall(2), stall(8)], findings=[finding()])
    assert outcome.alarms == ("stall ranks 1",) and outcome.detected_after_seconds == 3.0


def test_a_decoy_may_be_told_that_somebody_waits_but_not_that_it_stalls(tmp_path):
    decoy = Fault(name="decoy_save", code="", what="", script=tmp_path / "decoy_save.py")
    waits = scored(decoy, [stall(8, "waiting"), cause(9, "N04", (0,), "waiting")], injected_ns=None)
    assert waits.alarms == () and waits.notices == ("waiting ranks 1", "N04 ranks 0") and waits.cause_right is None
    assert scored(decoy, [stall(8)], injected_ns=None).alarms


def test_a_notice_of_something_else_on_the_way_is_no_judgement(fault):
    notice = cause(6, "N04", (1,), "waiting")
    assert scored(fault, [notice, cause(9.5)], findings=[finding()]).judged_after_seconds == 4.5
    assert scored(fault, [notice], findings=[finding()]).judged_after_seconds is None


def test_a_finding_without_a_cause_ends_no_trial(fault):
    assert not is_judgement(cause(9, "unclear", ()), fault)
    assert is_judgement(cause(9, "N02"), fault) and is_judgement(cause(9, "N01"), fault)


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
    argv = command(row, row.trial(1), PYTHON)
    assert argv[3:] == [
        *("run", "--max-run", "60", "--local-hosts", "2", "--nproc-per-node", "2", str(path)),
        *("--rank", "3", "--at-step", "25", "--signal", "19", "--steps", "100000"),
    ]


def test_a_script_that_makes_its_own_hosts_is_started_by_itself(tmp_path):
    path = tmp_path / "s08_latency.py"
    path.write_text('"""S08: the link is far. Needs root.\n\npython examples/broken/s08_latency.py\n"""\n')
    row = fault_of(path)
    assert (
        row.starts_itself
        and row.needs_root
        and command(row, row.trial(0), PYTHON) == ["python", str(path), *row.argv(row.trial(0))]
    )


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
    argv = command(by_name["c04_killed_over_paceline"], Trial(), PYTHON)
    assert argv[-4:] == ["--backend", "paceline", "--width", "512"]
    argv = command(by_name["n02_stopped_over_direct"], Trial(), PYTHON)
    assert argv[argv.index("--gradients") + 1] == "direct" and argv.index("--gradients") < argv.index(
        str(by_name["n02_stopped_over_direct"].script)
    )


@pytest.mark.parametrize(
    ("findings", "not_judged", "told"),
    [
        ([finding("N01")], (), Told.RIGHT),
        ([finding("N02"), finding("N01")], (), Told.WRONG),
        ([{**finding("N02"), "confidence": "unclear"}], (), Told.UNCLEAR),
        ([finding("unclear")], (), Told.UNCLEAR),
        ([], ("N01 deadlock: no flight recorder",), Told.NOT_JUDGED),
        ([], ("S01 straggler: how the job steps",), Told.WRONG),
    ],
)
def test_an_answer_is_right_unclear_not_judged_or_wrong(fault, findings, not_judged, told):
    outcome = scored(fault, [], findings=findings, not_judged=not_judged)
    assert outcome.told == told and outcome.cause_right is (told == Told.RIGHT)


def test_of_a_decoy_whatever_is_high_and_not_true_of_it_is_false(tmp_path):
    decoy = Fault(name="decoy_save", code="", what="", script=tmp_path / "decoy_save.py", expected=frozenset({"N04"}))
    said = [cause(8, "N04", (0,), "waiting"), cause(9, "S03", (), "slow"), cause(10, "N07", (1,), "waiting")]
    outcome = scored(decoy, said, injected_ns=None, findings=[finding("S05", level="slow"), finding("N07")])
    assert outcome.false_highs == ("N07", "S05") and outcome.told is None
    unsure = {**finding("S05", level="slow"), "confidence": "likely"}
    assert scored(decoy, [], injected_ns=None, findings=[unsure]).false_highs == ()


def test_a_healthy_job_is_ended_where_its_code_is_another_than_0_and_may_be_ended(tmp_path):
    decoy = Fault(name="decoy_save", code="", what="", script=tmp_path / "decoy_save.py")
    codes = {code: scored(decoy, [], exit_code=code, kind="decoy").was_ended for code in (None, 0, 1, 202)}
    assert codes == {None: False, 0: False, 1: True, 202: True}
    argv = command(decoy, Trial(), PYTHON)
    assert argv[argv.index("--on-hang") + 1] == "stop"


def test_ten_faults_and_every_decoy_are_repeated_on_an_old_torch():
    rows = on_an_old_torch()
    assert sum(not row.is_decoy for row in rows) == 10
    assert sum(row.is_decoy for row in rows) == sum(row.is_decoy for row in faults())
    assert all(row.torch == "2.8.0" and row.name.endswith("_on_torch_2.8.0") for row in rows)


def test_with_nccl_every_fault_is_tried_but_those_that_are_left_out_with_a_reason():
    rows = on_nccl("2.15.0")
    everything = {row.name for row in faults()}
    assert set(NOT_ON_NCCL) <= everything and all(NOT_ON_NCCL.values())
    assert {row.name for row in rows} == everything - set(NOT_ON_NCCL)
    assert all(row.nccl and row.torch == "2.15.0" and row.arguments[-2:] == ("--backend", "nccl") for row in rows)
    # Whoever hangs or ends by what a host does is in.
    assert not [name for name in NOT_ON_NCCL if name.startswith(("n", "c"))]
    assert sum(not row.is_decoy for row in rows) == 62


def test_a_fault_with_nccl_finds_the_library_that_stands_in_for_it(fault, monkeypatch):
    monkeypatch.setattr("harness.nccl_environment", lambda torch: {"LD_PRELOAD": f"/{torch}.so"})
    assert environment_of(replace(fault, environment={"A": "1"})) == {"A": "1"}
    assert environment_of(replace(fault, nccl=True, torch="2.15.0")) == {"LD_PRELOAD": "/2.15.0.so"}


def test_a_fault_runs_on_the_torch_that_it_asks_for(fault, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_TORCHES", str(tmp_path))
    assert interpreter(fault) == Path(sys.executable)
    with pytest.raises(LookupError, match=r"make torch-2\.8\.0"):
        interpreter(replace(fault, torch="2.8.0"))
    (tmp_path / "2.8.0").mkdir()
    (tmp_path / "2.8.0" / "READY").touch()
    assert interpreter(replace(fault, torch="2.8.0")) == tmp_path / "2.8.0" / "bin" / "python"


def test_time_to_start_is_not_taken_from_the_time_for_a_judgement(fault, tmp_path):
    assert budget_seconds(fault, START, None) == 100
    assert budget_seconds(fault, START, START + 50 * SECOND) == 90
    assert budget_seconds(replace(fault, code=""), START, START + 5 * SECOND) == 40


def repository(folder, **contents):
    for name, content in {"src/a.py": "1", "examples/broken/n01.py": "2", "docs/faults.md": "3", **contents}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_the_key_changes_with_code_and_gallery_and_with_nothing_else(tmp_path):
    key = key_of(repository(tmp_path / "one"))
    assert key_of(repository(tmp_path / "other")) == key
    same = repository(tmp_path / "same", **{"docs/faults.md": "4", "src/__pycache__/a.pyc": "x", "tests/a.py": "5"})
    assert key_of(same) == key
    changes = ({"src/a.py": "4"}, {"examples/broken/n01.py": "4"}, {"src/b.py": ""}, {"src/data/x.toml": ""})
    keys = [key_of(repository(tmp_path / str(i), **change)) for i, change in enumerate(changes)]
    assert len({key, *keys}) == 1 + len(keys)


def test_results_are_kept_by_key_and_torch_and_a_cut_line_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_FAULTS", str(tmp_path))
    first = outcome(codes=("N01",), told="right", cause_right=True)
    for version in ("2.8.0", "2.13.0", "2.10.0"):
        results_of("abc", version).append(first)
    results_of("abc", "2.13.0 nccl").append(first)
    results_of("other", "2.8.0").append(first)
    assert list(by_torch("abc")) == ["2.8.0", "2.10.0", "2.13.0", "2.13.0 nccl"]
    assert set(map(tuple, by_torch("abc").values())) == {(first,)}
    results = results_of("abc", "2.8.0")
    with results.path.open("a") as file:
        file.write('{"kind": "fau')
    assert results.has("fault", "n01_asleep", 0) and not results.has("fault", "n01_asleep", 1)
    results.append(outcome(number=1))
    assert [one.number for one in results.all()] == [0, 1]


def outcome(kind="fault", name="n01_asleep", code="N01", **fields):
    return Outcome(kind=kind, name=name, code=code, rank=1, world_size=2, hosts=1, at_step=12, **fields)


def test_the_page_has_a_column_for_each_torch_and_names_what_was_missed():
    right = outcome(
        codes=("N01",), ranks=(1,), rank_right=True, cause_right=True, told="right", detected_after_seconds=3.2
    )
    wrong = outcome(codes=("N02",), ranks=(1,), rank_right=True, cause_right=False, told="wrong", number=1)
    page = report(
        {
            "2.8.0": [
                outcome(codes=("unclear",), ranks=(), rank_right=False, cause_right=False, told="unclear"),
                outcome(
                    kind="healthy", name="healthy", code="", watched_seconds=3600.0, exit_code=202, false_highs=("S05",)
                ),
            ],
            "2.13.0": [
                right,
                wrong,
                outcome(
                    kind="torchrun", codes=("x",), rank_right=False, cause_right=False, detected_after_seconds=20.1
                ),
                outcome(kind="healthy", name="healthy", code="", watched_seconds=1800.0, alarms=("stall ranks 1",)),
            ],
        },
        {"n01_asleep": "rank 1 falls asleep"},
        {"r05_interface": "NCCL cannot have it"},
        own="2.13.0",
        commit="abc1234",
        date="2026-01-01",
        group_timeout=20,
    )
    lines = page.splitlines()
    assert "| torch | 2.8.0 | 2.13.0 | wanted |" in lines
    assert "* r05_interface: NCCL cannot have it." in lines
    assert "| n01_asleep | rank 1 falls asleep | 0/1 ? | 1/2 ! |" in lines
    assert "| n01_asleep | 3.2 (3.2), 1 never | never | 2/2 | 1/2 | 20.1 s | no | no |" in lines
    slow = outcome(name="s01_straggler", code="S01", told="right", judged_after_seconds=30.0)
    soon = replace(right, judged_after_seconds=4.0)
    summary = report({"2.13.0": [soon, slow]}, {}, {}, own="2.13.0", commit="", date="", group_timeout=20)
    assert "| judged within 10 s | 1 of 2 (50.0%) |  |" in summary
    assert "| the same without slowness (S) | 1 of 1 (100.0%) |" in summary
    assert "| wrong | 0 | 1 | 0 |" in lines and "| unclear or not judged | 1 | 0 | the others |" in lines
    assert "| 2.13.0 | N01 | 1 | N02 1 |" in lines and "| alarms in it | 0 | 1 | 0 |" in lines
    assert (
        "| jobs ended in it | 1 | 0 | 0 |" in lines
        and "| 2.8.0 | healthy | 60.0 min | 1 | none | S05 (1x) | none |" in lines
    )
    assert any(
        line.startswith("* torch 2.13.0, n01_asleep (rank 1 of 2 on 1 host, step 12): wrong; said N02")
        for line in lines
    )
