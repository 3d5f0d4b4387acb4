"""Two runs: a real difference is found and placed, chance is none, and too little is said to be too little."""

import random
from dataclasses import replace

import pytest

from paceline.diagnosis.run_comparison import PARTS, PaceAnswer, compare_runs
from paceline.facts import Evidence, RankRecord, Run, Step

RUN = Run(
    id="r-1",
    name="",
    directory="/r",
    command=("paceline", "run", "train.py"),
    started_ns=1,
    first_host="a",
    version="0.1.0",
)
MS = 1_000_000


def a_run(
    seed, *, steps=600, compute=80.0, data=2.0, communication=18.0, checkpoint=0.0, noise=0.05, alike=0.6, ranks=3
):
    """Steps with these parts in ms, each with noise of which a share lasts from step to step."""
    rng, level, made = random.Random(seed), 0.0, []
    for index in range(1, steps + 1):
        level = alike * level + rng.gauss(0, noise)
        made.append(
            (
                index,
                [
                    max(0.0, part * (1 + level + rng.gauss(0, noise)))
                    for part in (compute, data, communication, checkpoint)
                ],
            )
        )
    records = []
    for rank in range(ranks):
        shown = tuple(
            Step(
                index=index,
                end_ns=index,
                duration_ns=round(sum(parts) * MS),
                data_ns=round(parts[1] * MS),
                communication_ns=round(parts[2] * MS),
                checkpoint_ns=round(parts[3] * MS),
            )
            for index, parts in made
        )
        records.append(RankRecord(host="a", rank=rank, attempt=0, world_size=ranks, step_count=steps, steps=shown))
    return Evidence(run=RUN, hosts=("a",), ranks=tuple(records), events=(), telemetry={})


@pytest.mark.parametrize(
    ("slower", "mostly"),
    [({"communication": 30.0}, "exposed communication"), ({"compute": 92.0}, "compute"), ({"data": 14.0}, "data")],
)
def test_a_real_difference_is_found_and_placed(slower, mostly):
    first, second = a_run(1), a_run(2, **slower)
    found = compare_runs(first, second)
    assert (found.answer, found.mostly) == (PaceAnswer.SLOWER, mostly)
    assert found.step.low_seconds <= 0.012 <= found.step.high_seconds
    back = compare_runs(second, first)
    assert (back.answer, back.mostly) == (PaceAnswer.FASTER, mostly)


def test_chance_is_no_difference():
    answers = [compare_runs(a_run(2 * seed), a_run(2 * seed + 1)).answer for seed in range(200)]
    assert PaceAnswer.SLOWER not in answers and PaceAnswer.FASTER not in answers


def test_quiet_runs_of_the_same_pace_are_the_same_and_loud_ones_cannot_be_told():
    assert compare_runs(a_run(1, noise=0.002), a_run(2, noise=0.002)).answer is PaceAnswer.SAME
    assert compare_runs(a_run(1, noise=0.3, steps=100), a_run(2, noise=0.3, steps=100)).answer is PaceAnswer.CANNOT_TELL


@pytest.mark.parametrize("steps", [0, 1, 20])
def test_too_few_steps_tell_nothing(steps):
    found = compare_runs(a_run(1, steps=steps), a_run(2, compute=200.0))
    assert found.answer is PaceAnswer.CANNOT_TELL and found.step.low_seconds is None and found.mostly is None


def test_the_parts_of_a_step_add_up_to_it():
    found = compare_runs(a_run(1), a_run(2, checkpoint=4.0))
    assert [part.name for part in found.parts] == list(PARTS)
    for side in ("before_seconds", "after_seconds"):
        assert sum(getattr(part, side) for part in found.parts) == pytest.approx(getattr(found.step, side))


def test_only_the_newest_attempt_and_the_steps_of_all_ranks_count():
    whole = a_run(1)
    short = replace(whole.ranks[0], steps=whole.ranks[0].steps[:300])
    old = replace(whole.ranks[0], attempt=0, steps=whole.ranks[0].steps[:5])
    newest = tuple(replace(record, attempt=1) for record in (short, *whole.ranks[1:]))
    found = compare_runs(replace(whole, ranks=(old, *newest)), whole)
    assert found.before_steps < 300 < found.after_steps


def test_what_else_differs_is_told():
    def joined(**told):
        return {"event": "rank_joined", "rendezvous": {"MASTER_PORT": str(random.random()), **told}}

    first = replace(a_run(1), events=(joined(torch="2.13.0", backend="gloo"),))
    other = replace(RUN, command=("paceline", "run", "--gradients", "bf16", "train.py"))
    second = replace(a_run(2, ranks=2), run=other, events=(joined(torch="2.8.0", backend="gloo", script_crc="1"),))
    found = compare_runs(first, second, ({"kernel": "6.1", "cpu_count": 2}, {"kernel": "6.1", "cpu_count": 4}))
    assert [(one.name, one.before, one.after) for one in found.differences] == [
        ("command", "paceline run train.py", "paceline run --gradients bf16 train.py"),
        ("ranks", "3", "2"),
        ("torch", "2.13.0", "2.8.0"),
        ("CPUs", "2", "4"),
        ("text of the script", None, "1"),
    ]


def test_code_and_variables_that_differ_are_told_and_what_names_the_run_is_not():
    before = {"torch": "2.13.0", "commit": "aaa", "dirty": [], "variables": {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "1"}}
    after = {
        "torch": "2.13.0", "commit": "bbb", "dirty": [f"f{number}.py" for number in range(7)],
        "variables": {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8", "SLURM_JOB_ID": "2"},
    }  # fmt: skip
    found = compare_runs(a_run(1), a_run(2), (before, after))
    assert [(one.name, one.before, one.after) for one in found.differences] == [
        ("commit of the code", "aaa", "bbb"),
        ("NCCL_DEBUG", "INFO", "WARN"),
        ("files that differ from the commit", None, "f0.py, f1.py, f2.py, f3.py, f4.py and 2 more"),
        ("OMP_NUM_THREADS", None, "8"),
    ]
