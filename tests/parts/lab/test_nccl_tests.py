"""Sizes, factors and averages as nccl-tests defines them."""

import pytest

from paceline.parts.lab.nccl_tests import (
    FACTORS,
    BenchRow,
    BenchWorld,
    Rank,
    Table,
    Timing,
    algbw,
    average_busbw,
    busbw,
    own_timing,
    size_bytes,
    size_text,
    sizes,
    wrong_elements,
)


def timing(time_us, wrong=0):
    return Timing(
        time=time_us, iterations=20, median_us=time_us, mad_us=1.0, min_us=time_us, max_us=time_us, nwrong=wrong
    )


def row(size, time_us=1000.0, in_place_us=500.0, wrong=0):
    return BenchRow(
        size_bytes=size,
        count=size // 4,
        type="float",
        operation="sum",
        root=-1,
        out_of_place=timing(time_us, wrong),
        in_place=timing(in_place_us, None),
    )


def world(ranks, hosts=1):
    return BenchWorld(
        ranks=tuple(
            Rank(
                rank=n,
                hostname=f"algo-{n % hosts + 1}",
                machine="m",
                pid=1,
                device=-1,
                device_hex="cpu",
                device_info="x",
            )
            for n in range(ranks)
        ),
        backend="gloo",
        device="cpu",
        torch="2.13.0",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", 8),
        ("4K", 4096),
        ("4k", 4096),
        ("1.5M", 1572864),
        ("128MiB", 128 * 1024**2),
        ("128MB", 128 * 1024**2),
        ("2 G", 2 * 1024**3),
        ("0", 0),
        ("12x", None),
        ("-8", None),
        ("", None),
        ("M", None),
    ],
)
def test_sizes_are_read_as_nccl_tests_reads_them(text, expected):
    assert size_bytes(text) == expected


def test_a_size_is_written_as_the_options_take_it():
    assert [size_text(value) for value in (8, 1000, 1024, 1536, 1024**2, 3 * 1024**3)] == [
        *("8", "1000", "1K", "1536", "1M", "3G")
    ]
    assert all(size_bytes(size_text(value)) == value for value in range(1, 5000))


def test_one_size_leads_to_the_next_by_a_factor_or_by_bytes():
    assert sizes(8, 32, factor=2) == [8, 16, 32]
    assert sizes(8, 31, factor=2) == [8, 16]
    assert sizes(1, 4, step=2) == [1, 3]
    assert sizes(5, 5, factor=2) == [5]


@pytest.mark.parametrize(
    ("collective", "of_two", "of_four"),
    [
        ("all_reduce", 1.0, 1.5),
        ("all_gather", 0.5, 0.75),
        ("reduce_scatter", 0.5, 0.75),
        ("all_to_all", 0.5, 0.75),
        ("broadcast", 1.0, 1.0),
        ("sendrecv", 1.0, 1.0),
    ],
)
def test_the_bus_carries_what_performance_md_says(collective, of_two, of_four):
    assert (FACTORS[collective](2), FACTORS[collective](4)) == (of_two, of_four)
    one = row(1_000_000)
    assert algbw(one, one.out_of_place) == pytest.approx(1.0)
    assert busbw(one, one.out_of_place, collective, 4) == pytest.approx(of_four)


def test_the_average_is_over_rows_and_both_column_groups():
    table = Table(collective="all_reduce", world=world(2), rows=(row(1_000_000), row(4_000_000)))
    assert average_busbw(table) == pytest.approx((1 + 2 + 4 + 8) / 4)
    assert average_busbw(Table(collective="all_reduce", world=world(2), rows=())) == 0.0


def test_what_was_not_checked_is_not_wrong():
    assert wrong_elements([row(8), row(8, wrong=3)]) == 3


def test_torchs_own_call_is_the_one_that_works_in_place_where_torch_has_no_other():
    assert own_timing(row(8), "all_reduce").time == 500.0
    assert own_timing(row(8), "all_gather").time == 1000.0


def test_hosts_keep_the_order_of_their_first_rank():
    assert world(4, hosts=2).hosts == ("algo-1", "algo-2")
