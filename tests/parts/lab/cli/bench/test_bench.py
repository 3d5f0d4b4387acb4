"""The command line of `paceline bench`, how its results are compared, and what is refused. Nothing is started."""

import argparse
import json
from dataclasses import replace

import pytest

from paceline.cli import main
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.parts.comm.planner.regression import Baseline, Figure, compare
from paceline.parts.lab.cli.bench.baselines import (
    BenchResult,
    JudgedResult,
    conclude,
    judge,
    network_argv,
    question_key,
    results_of,
)
from paceline.parts.lab.cli.bench.question import question_of, refuse_root, with_ranks
from paceline.parts.lab.cli.bench.step import is_exact, plan_of, samples_of, what_ranks_said
from paceline.parts.lab.cli.bench.verb import parse
from paceline.parts.lab.nccl_tests import BenchRow, BenchWorld, Rank, Table, Timing
from paceline.recording.evidence import evidence

WORLD = BenchWorld(
    ranks=tuple(
        Rank(rank=n, hostname="algo-1", machine="vm", pid=1, device=-1, device_hex="cpu", device_info="x")
        for n in range(2)
    ),
    backend="gloo",
    device="cpu",
    torch="2.13.0",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("PACELINE_HOME", "PET_NPROC_PER_NODE", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)


def question(*argv):
    return question_of(parse(argv))


def refusal(*argv):
    with pytest.raises(UsageError) as refused:
        args = parse(argv)
        question_of(args)
        with_ranks(args, {})
    return refused.value


def results_args(**given):
    defaults = {
        "baseline": None,
        "fail_on": [],
        "output_file": None,
        "svg": None,
        "json": False,
    }
    return argparse.Namespace(**{**defaults, **given})


def result(*seconds, mad=0.01, **more):
    points = {f"{2**place}K": Figure(seconds=one, mad_seconds=one * mad, count=20) for place, one in enumerate(seconds)}
    return BenchResult(
        name="",
        key=question_key("all_reduce", WORLD, (), **{"type": "float", "operation": "sum", "root": -1, **more}),
        points=points,
    )


def written(file, *seconds, **more):
    """A file with such a result, as -J writes it."""
    conclude(results_args(output_file=str(file)), [result(*seconds, **more)], [], {}, lambda lines: None, str)
    return str(file)


SAME = '{"figures": [{"key": {"what": "all_reduce", "type": "float", "operation": "sum", "root": -1}, "points": %s}]}'


def concluded(file, *seconds, **given):
    """Compare a result with the one in the file: what was printed of it, and the exit code."""
    args, one, said = results_args(baseline=file, **given), result(*seconds), []
    code = conclude(args, [one], [judge(one, args)], {}, said.extend, str)
    return said, code


# ------------------------------------------------------------------------------------------------------- the command line


def test_nccl_tests_flags_mean_what_they_mean_there():
    asked = question(
        *[
            "all_reduce",
            "-b",
            "8",
            "-e",
            "128M",
            "-f",
            "2",
            "-n",
            "50",
            "-w",
            "3",
            "-d",
            "half",
            "-o",
            "max",
            "-c",
            "0",
            "-m",
            "4",
            "-N",
            "2",
            "-a",
            "3",
        ]
    )
    assert asked.sizes[0] == 8 and asked.sizes[-1] == 128 * 1024**2 and len(asked.sizes) == 25
    assert (asked.iterations, asked.warmup, asked.aggregate, asked.cycles, asked.check) == (50, 3, 4, 2, 0)
    assert (asked.types, asked.operations, asked.average) == (("half",), ("max",), 3)


def test_long_names_are_taken_in_both_spellings():
    assert question("broadcast", "--minbytes", "1K", "--maxbytes", "4K", "--stepfactor", "4").sizes == (1024, 4096)
    assert question("broadcast", "--warmup_iters", "2", "--warmup-iters", "3").warmup == 3
    assert question("broadcast", "--root", "all").roots == ()


def test_sizes_grow_by_bytes_where_that_was_asked():
    assert question("all_gather", "-b", "1K", "-e", "3K", "-i", "1K").sizes == (1024, 2048, 3072)
    assert question("all_gather", "-b", "1M", "-e", "3M", "-f", "1").sizes == tuple(n * 1024**2 for n in (1, 2, 3))


def test_all_types_reductions_and_pairs():
    assert len(question("all_reduce", "-d", "all", "-o", "all").types) == 8
    pairs = question("--pairs")
    assert (pairs.collective, pairs.pairs, pairs.sizes) == ("sendrecv", True, (8, 4 * 1024**2))


def test_options_of_run_are_passed_on_and_the_number_of_ranks_is_never_one():
    args = parse(["all_reduce", "--local-hosts", "4", "-n", "5", "--set=token_file=t", "--hp", "a=1"])
    assert args.run_argv == ("--local-hosts", "4", "--set=token_file=t", "--hp", "a=1") and args.iters == "5"
    assert with_ranks(args, {}) == args.run_argv
    assert with_ranks(parse(["all_reduce"]), {"CUDA_VISIBLE_DEVICES": ""}) == ("--nproc-per-node", "2")
    assert with_ranks(parse(["all_reduce", "-g", "4", "-t", "2"]), {}) == ("--nproc-per-node", "8")
    assert with_ranks(parse(["all_reduce"]), {"PET_NPROC_PER_NODE": "3"}) == ()


def test_what_stands_after_the_script_is_the_scripts():
    args = parse(["step", "--steps", "10", "--local-hosts", "2", "train.py", "--lr", "3", "--steps", "7", "--", "x"])
    assert (args.script, args.script_args) == ("train.py", ("--lr", "3", "--steps", "7", "--", "x"))
    assert args.steps == "10" and args.run_argv == ("--local-hosts", "2")
    assert parse(["step", "-m", "package.train"]).module
    assert parse(["--steps", "5", "step", "train.py"]).steps == "5"


@pytest.mark.parametrize(
    ("argv", "code", "next_word"),
    [
        ("all_reduc", "U03", "all_reduce"),
        ("allgather", "U03", "all_gather"),
        ("all_reduce -d flaot", "U03", "-d float"),
        ("all_reduce -o mulsum", "U03", "-o sum"),
        ("all_reduce --pairs", "U03", "--pairs"),
        ("", "U03", "paceline bench"),
        ("all_reduce -b 8x", "U03", "-b 1M"),
        ("all_reduce -b 0", "U03", "-b 1M"),
        ("all_reduce -b 1M -e 1K", "U03", "-e 1M"),
        ("all_reduce -b 256M", "U03", "-e 256M"),
        ("all_reduce -i 4K -f 2", "U03", "leave -f out"),
        ("all_reduce -i 8", "U03", "-i 4M"),
        ("all_reduce -n 0", "U03", "-n"),
        ("all_reduce -n many", "U03", "-n"),
        ("all_reduce -a 4", "U03", "-a 1"),
        ("all_reduce -r first", "U03", "-r"),
        ("all_reduce -G 5", "U01", "bench --help"),
        ("all_reduce --timeout soon", "U03", "--timeout"),
        ("all_reduce -g 2 --nproc-per-node 2", "U03", "leave --nproc-per-node out"),
        ("all_reduce --run-dir x", "U03", "leave --run-dir out"),
        ("all_reduce --gradients direct", "U03", "leave --gradients out"),
        ("all_reduce --nproc-per-ndoe 2", "U01", "--nproc-per-node"),
        ("all_reduce broadcast", "U01", "all_reduce"),
        ("step", "U02", "train.py"),
        ("-n 5 step train.py", "U03", "step --help"),
    ],
)
def test_bad_words_are_refused_in_four_parts(argv, code, next_word):
    error = refusal(*argv.split())
    assert error.code == code and next_word in error.next, (error.what, error.saw, error.next)


def test_one_rank_and_a_root_that_is_none_are_refused(capsys):
    assert main(["bench", "all_reduce", "-g", "1"]) == 2
    assert "error[U05]" in capsys.readouterr().err
    with pytest.raises(UsageError) as refused:
        refuse_root(question("broadcast", "-r", "4"), 4)
    assert refused.value.code == "U03"
    assert main(["bench", "all_reduce", "--fail-on", "bad"]) == 2
    assert "error[U03]" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- baselines


def test_the_same_again_is_as_fast_and_what_is_slower_is_said(tmp_path):
    then = written(tmp_path / "then.json", 1.0, 2.0, 4.0)
    said, code = concluded(then, 1.02, 2.02, 4.05)
    assert "as fast as on" in said[0] and "3 of 3" in said[0] and len(said) == 1 and code == 0
    said, code = concluded(then, 1.5, 3.0, 6.0)
    assert "slower than on" in said[0] and code == 0


@pytest.mark.parametrize(
    ("conditions", "found", "code"),
    [(["worse"], (), 1), (["any"], (), 1), (["wrong"], (), 0), (["wrong"], {"wrong"}, 1), ([], {"wrong"}, 0)],
)
def test_a_result_fails_only_where_that_was_asked(tmp_path, conditions, found, code):
    args = results_args(baseline=written(tmp_path / "then.json", 1.0, 2.0, 4.0), fail_on=conditions)
    one = result(1.5, 3.0, 6.0)
    assert conclude(args, [one], [judge(one, args)], {}, lambda lines: None, str, found=found) == code


def test_without_a_baseline_nothing_is_compared_and_to_fail_on_worse_is_refused(capsys):
    assert judge(result(9.0), results_args()) is None
    assert main(["bench", "all_reduce", "--fail-on", "worse"]) == 2
    assert "--baseline FILE" in capsys.readouterr().err


def test_to_fail_on_worse_where_no_figure_can_be_judged_is_not_enough_evidence(tmp_path):
    then = written(tmp_path / "then.json", 1.0, 2.0, mad=0.5)
    with pytest.raises(NotEnoughEvidence) as refused:
        concluded(then, 1.0, 2.0, fail_on=["worse"])
    assert refused.value.exit_code == 3


@pytest.mark.parametrize(
    "content",
    [
        *[None, "", "[]", "{}", '{"figures": []}', '{"figures": 7}', '{"figures": [7, null, "x", {}]}'],
        *[
            '{"figures": [{"key": {}, "points": {"1K": [0, 0, 0]}}]}',
            '{"figures": [{"key": 7, "points": {"1K": [1, 0, 1]}}]}',
        ],
        *[
            SAME % points
            for points in ("7", "[]", '{"1K": 7}', '{"1K": ["1", 0, 1]}', '{"1K": [1, null, 1]}', '{"1K": [1]}')
        ],
    ],
)
def test_what_holds_nothing_of_this_question_is_refused(tmp_path, content):
    file = tmp_path / "then.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as refused:
        judge(result(1.0), results_args(baseline=str(file)))
    assert refused.value.code == "X06"


def test_another_question_is_not_compared_and_the_same_elsewhere_is(tmp_path):
    then = written(tmp_path / "then.json", 1.0, 2.0, 4.0)
    with pytest.raises(UsageError, match="nothing to compare with"):
        judge(result(1.0, type="half"), results_args(baseline=then))
    there = replace(result(1.4, 2.8, 5.6), key={**result(1.0).key, "machines": ["other"], "backend": "nccl"})
    assert judge(there, results_args(baseline=then)).comparison.worse


def test_json_carries_the_comparison(tmp_path, capsys):
    concluded(written(tmp_path / "then.json", 1.0, 2.0, 4.0), 1.5, 3.0, 6.0, json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["comparisons"][0]["comparison"]["worse"] == ["1K", "2K", "4K"]
    assert json.loads((tmp_path / "then.json").read_text())["comparisons"] == []


def test_what_was_measured_twice_says_so():
    one = result(1.5, 3.0, 6.0)
    past = Baseline(made_ns=1, points=result(1.0, 2.0, 4.0).points)
    judged = JudgedResult(result=one, past=past, comparison=compare(one.points, past), confirmed=True)
    said: list[str] = []
    conclude(results_args(), [one], [judged], {}, said.extend, str)
    assert said[0].endswith("measured twice")


def test_an_emulated_network_is_another_question():
    argv = ("--local-hosts", "4", "--name", "x", "--network", "1gbit,5ms")
    assert network_argv(argv) == ["--local-hosts=4", "--network=1gbit,5ms"]


def test_rows_of_several_types_are_several_results():
    def row(kind, size):
        timing = Timing(time=10.0, iterations=20, median_us=9.0, mad_us=1.0, min_us=8.0, max_us=12.0, nwrong=0)
        return BenchRow(
            size_bytes=size,
            count=1,
            type=kind,
            operation="sum",
            root=-1,
            out_of_place=timing,
            in_place=timing,
        )

    rows = tuple(row(kind, size) for _ in range(2) for kind in ("float", "half") for size in (8, 1024))
    found = results_of(Table(collective="all_reduce", world=WORLD, rows=rows, asked={"aggregate": 1}), ())
    assert [one.name for one in found] == ["float sum", "half sum"]
    assert found[0].points["1K"] == Figure(seconds=9e-6, mad_seconds=1e-6, count=40)


# ------------------------------------------------------------------------------------------------------------------- step


def step_plan(*argv):
    return plan_of(parse(["step", *argv]), {"CUDA_VISIBLE_DEVICES": ""})


def test_step_tries_plain_first_and_the_exact_strategies_unless_told_otherwise(tmp_path):
    (tmp_path / "train.py").write_text("")
    plan = step_plan("train.py", "--lr", "3")
    assert plan.names[0] == "plain" and plan.names[-1] == "auto" and "direct" in plan.names
    assert plan.run_argv("direct", 2) == (
        *("--nproc-per-node", "2"),
        *("--gradients", "direct", "train.py", "--lr", "3"),
    )
    assert "--gradients" not in plan.run_argv("plain", 0)
    plan = step_plan("--gradients", "direct+bf16,ring", "--local-hosts", "2", "train.py")
    assert plan.names == ("plain", "direct+bf16", "ring") and plan.rounds is None
    assert [is_exact(name, plan) for name in plan.names] == [True, False, True]
    plan = step_plan("--gradients", "auto", "--allow-lossy", "train.py")
    assert "allow_lossy=true" in plan.run_argv("auto", 1) and "allow_lossy=true" not in plan.run_argv("plain", 0)
    assert not is_exact("auto", plan)


def test_hosts_of_a_cluster_make_the_same_tries_on_ports_of_their_own(tmp_path):
    (tmp_path / "train.py").write_text("")
    plan = step_plan(
        *("--gradients", "direct", "--nnodes", "2", "--node-rank", "1", "--master-addr", "algo-1", "train.py")
    )
    assert (plan.is_local, plan.rounds, plan.job.is_first) == (False, 1, False)
    ports = [plan.run_argv(name, number) for number, name in enumerate(plan.names)]
    assert "29500" in ports[0] and "29501" in ports[1]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--gradients", "dirct", "train.py"), "U03"),
        (("--gradients", "ring+direct", "train.py"), "U03"),
        (("--nproc-per-node", "1", "train.py"), "U05"),
        (("nowhere.py",), "U02"),
        (("--steps", "0", "train.py"), "U03"),
        (("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "algo-1:29400", "train.py"), "U03"),
    ],
)
def test_a_step_that_cannot_be_tried_is_refused(argv, code, tmp_path):
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError) as refused:
        step_plan(*argv)
    assert refused.value.code == code


def test_samples_are_the_last_steps_averaged_over_the_ranks(recording):
    run = recording()
    run.identity()
    run.segment("algo-1", 0, steps=12, step_ms=100)
    run.segment("algo-1", 1, steps=12, step_ms=120)
    found = samples_of(evidence(run.path), 5)
    assert found == pytest.approx((0.110,) * 5)
    assert len(samples_of(evidence(run.path), 30)) == 6


def test_a_strategy_that_stepped_aside_has_no_figure(recording):
    def said(*texts):
        run = recording(f"r-{abs(hash(texts)):06x}"[:8])
        run.identity()
        for text in texts:
            run.event("notice", topic="gradients", text=text)
        return evidence(run.path)

    aside = "--gradients direct steps aside for one model: it registered its own hook"
    assert what_ranks_said(said(aside), "direct") == ("", aside)
    assert what_ranks_said(said("--gradients direct: at work", aside), "direct") == ("", "")
    assert what_ranks_said(said("--gradients auto: took direct"), "auto") == ("took direct", "")
    assert what_ranks_said(said(), "plain") == ("", "")
