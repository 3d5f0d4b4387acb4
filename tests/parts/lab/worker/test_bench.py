"""The ranks of `paceline bench`: rounds of a tournament, repetitions that fit, numbers that show what went wrong."""

from itertools import combinations

import pytest

from paceline.parts.lab.cli.bench import collective_run
from paceline.parts.lab.worker import bench_group
from paceline.parts.lab.worker.bench_calls import BenchCase
from paceline.parts.lab.worker.bench_collectives import averaged
from paceline.parts.lab.worker.bench_group import fitting
from paceline.parts.lab.worker.bench_pairs import rounds


@pytest.mark.parametrize("count", range(2, 10))
def test_a_tournament_has_every_pair_once_and_nobody_twice_in_a_round(count):
    plan = rounds(count)
    assert sorted(pair for one in plan for pair in one) == sorted(combinations(range(count), 2))
    assert all(len({member for pair in one for member in pair}) == 2 * len(one) for one in plan)
    assert len(plan) == (count - 1 if count % 2 == 0 else count)


def test_iterations_fit_into_the_time_but_are_three_at_least():
    assert [fitting(20, once, 10.0) for once in (0.0, 0.1, 1.0, 60.0)] == [20, 20, 10, 3]
    assert fitting(2, 60.0, 10.0) == 2


def test_times_of_the_ranks_become_one_as_asked():
    assert [averaged([3.0, 1.0, 2.0], how) for how in range(4)] == [3.0, 2.0, 1.0, 3.0]


def test_the_command_line_and_the_ranks_name_the_same_file():
    assert collective_run.OUT == bench_group.OUT


@pytest.mark.parametrize(
    ("collective", "size", "count", "total"),
    [
        ("all_reduce", 10, 2, 2),
        ("broadcast", 3, 0, 0),
        ("all_gather", 1024, 64, 256),
        ("all_to_all", 1000, 60, 240),
        ("reduce_scatter", 60, 0, 0),
    ],
)
def test_elements_are_counted_as_nccl_tests_counts_them(collective, size, count, total):
    pytest.importorskip("torch")
    case = BenchCase(
        collective=collective,
        size_bytes=size,
        type="float",
        operation="sum",
        root=-1,
        rank=0,
        ranks=4,
        device=None,
    )
    assert (case.count, case.total_count) == (count, total)


def test_ranks_and_places_have_numbers_of_their_own():
    torch = pytest.importorskip("torch")
    from paceline.parts.lab.worker.bench_values import copied, fill, reduction, wrong

    first, second = (copied(rank, 0, 4096, 1, None) for rank in range(2))
    assert (first == second).float().mean() < 0.05
    assert (first[:2048] == first[2048:]).float().mean() < 0.05
    assert torch.equal(copied(1, 100, 50, 1, None), second[100:150])
    buffer = torch.empty(3_000_000)
    fill(buffer, lambda place, count: copied(0, place, count, 1, None))
    assert wrong(buffer, lambda place, count: copied(0, place, count, 1, None)) == 0
    buffer[[0, 2_999_999]] += 1
    buffer[7] = float("nan")
    assert wrong(buffer, lambda place, count: copied(0, place, count, 1, None)) == 3
    assert reduction(40, 0, 100, 1, None, "prod").max() <= 256


@pytest.mark.process
def test_every_collective_type_and_reduction_passes_its_own_check(workplace):
    left = workplace.run("bench_cases.py", world_size=3)
    lines = [line for one in left for line in one.out.splitlines()]
    assert [one.code for one in left] == [0, 0, 0], left
    assert sorted(lines) == ["spoilt 0 0", "spoilt 1 0", "spoilt 2 1"]
