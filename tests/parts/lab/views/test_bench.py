"""The pages of `paceline bench`: nccl-tests' own lines, read here as its readers read them, and ours beside them."""

import re

import pytest

from paceline.parts.comm.planner.regression import Baseline, Figure, compare
from paceline.parts.comm.planner.strategy_times import Try, combined, strategy_time
from paceline.parts.lab.nccl_tests import BenchRow, BenchWorld, Rank, Skipped, Table, Timing
from paceline.parts.lab.slow_pairs import Pair, slow_pairs
from paceline.parts.lab.views.bench import (
    comparison_facts,
    comparison_lines,
    float_text,
    footer,
    header,
    row_line,
    table_json,
)
from paceline.parts.lab.views.bench_pairs import pairs_json, pairs_text
from paceline.parts.lab.views.bench_step import step_json, step_text

ASKED = {"sizes": [8, 1048576], "iterations": 20, "warmup": 5, "aggregate": 1, "check": 1}
SETTING = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 131072(factor) warmup iters: 5 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0 unalign: 0"
)
DAY_NS = 1_795_132_800_000_000_000  # 2026-11-20
WORLD = BenchWorld(
    ranks=tuple(
        Rank(
            rank=n,
            hostname=f"algo-{n // 2 + 1}",
            machine="vm",
            pid=31649 + n,
            device=-1,
            device_hex="cpu",
            device_info="x86_64",
        )
        for n in range(4)
    ),
    backend="gloo",
    device="cpu",
    torch="2.13.0",
)


def timing(time_us, wrong=0, iterations=20):
    return Timing(
        time=time_us,
        iterations=iterations,
        median_us=time_us,
        mad_us=time_us / 50,
        min_us=time_us,
        max_us=time_us,
        nwrong=wrong,
    )


def row(size, out_us, in_us, **more):
    return BenchRow(
        size_bytes=size,
        count=size // 4,
        type="float",
        operation="sum",
        root=-1,
        out_of_place=timing(out_us, **more),
        in_place=timing(in_us, **more),
    )


TABLE = Table(
    collective="all_reduce", world=WORLD, rows=(row(8, 41.5, 39.25), row(1048576, 1300.0, 1250.5)), asked=ASKED
)


def page(table=TABLE):
    rows = [row_line(one, table.collective, table.world.size) for one in table.rows]
    return "\n".join([header(table.collective, table.world, ASKED, "0.1.0"), *rows, footer(table)])


def test_the_table_is_nccl_tests_own():
    assert (
        page()
        == f"""\
# paceline 0.1.0, columns and definitions of nccl-tests; backend gloo, 4 ranks on 2 hosts, tensors on cpu, torch 2.13.0
# Collective test starting: all_reduce_perf
{SETTING}
#
# Using devices
#  Rank  0 Group  0 Pid  31649 on     algo-1 device  0 [cpu] x86_64
#  Rank  1 Group  0 Pid  31650 on     algo-1 device  0 [cpu] x86_64
#  Rank  2 Group  0 Pid  31651 on     algo-2 device  0 [cpu] x86_64
#  Rank  3 Group  0 Pid  31652 on     algo-2 device  0 [cpu] x86_64
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    41.50    0.00    0.00       0    39.25    0.00    0.00       0
     1048576        262144     float     sum      -1  1300.00    0.81    1.21       0  1250.50    0.84    1.26       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.61707
#
# Collective test concluded: all_reduce_perf"""
    )


def by_regular_expression(text):
    """A row as the readers that match a whole line see it."""
    number = r"([\d.eE+-]+)"
    group = rf"\s+{number}\s+{number}\s+{number}\s+(\S+)"
    pattern = rf"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+){group}{group}\s*$"
    return [match.groups() for line in text.splitlines() if (match := re.match(pattern, line))]


def by_position(text):
    """Bus bandwidths as the readers see them that count lines from "out-of-place" on and columns from the end."""
    lines = text.splitlines()
    first = next(place for place, line in enumerate(lines) if "out-of-place" in line) + 3
    last = next(place for place, line in enumerate(lines) if "Out of bounds values" in line)
    return [float(re.sub(" +", " ", line.strip()).split(" ")[-6]) for line in lines[first:last]]


def test_its_readers_find_their_figures():
    rows = by_regular_expression(page())
    assert rows[1][:8] == ("1048576", "262144", "float", "sum", "-1", "1300.00", "0.81", "1.21")
    assert rows[1][8:] == ("0", "1250.50", "0.84", "1.26", "0")
    assert by_position(page()) == [0.00, 1.21]
    average = next(line for line in page().splitlines() if "Avg bus bandwidth" in line)
    assert float(average.split()[-1]) == pytest.approx(0.61707)


def test_what_has_no_check_says_so_in_its_column():
    line = row_line(row(64, 10.0, 9.0, wrong=None), "sendrecv", 2)
    assert by_regular_expression(line)[0][8::4] == ("N/A", "N/A")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2345, "   1.23"),
        (9999.994, "9999.99"),
        (12345.67, "12345.7"),
        (123456.7, " 123457"),
        (1234567.0, "1234567"),
        (12345678.0, "1.2e+07"),
    ],
)
def test_a_time_fits_its_column(value, text):
    assert float_text(value, 7) == text


def test_wrong_data_and_what_was_left_out_stand_under_the_table():
    table = Table(
        collective="all_gather",
        world=WORLD,
        rows=(row(1024, 10.0, 10.0, wrong=3), row(1048576, 1e7, 1e7, iterations=3)),
        left=(
            Skipped(what="8", reason="less than one element for each rank"),
            Skipped(what="half avg", reason="no such thing"),
        ),
        asked=ASKED,
    )
    text = footer(table)
    assert "# Out of bounds values : 6 FAILED" in text
    assert "# fewer than 20 iterations, 3 at least, so that no size takes too long: 1M" in text
    assert (
        "# left out: 8: less than one element for each rank" in text and "# left out: half avg: no such thing" in text
    )


def test_json_has_nccl_tests_keys_and_the_schema():
    facts = table_json(TABLE)
    assert facts["schema"] == "paceline.bench/2" and facts["world"]["ranks"] == 4
    result = facts["results"][1]
    assert (result["size"], result["count"], result["type"], result["redop"], result["root"]) == (
        *(1048576, 262144, "float", "sum", "-1"),
    )
    assert result["out_of_place"]["time"] == 1300.0 and result["in_place"]["nwrong"] == 0
    assert result["out_of_place"]["bus_bw"] == pytest.approx(1.2099, rel=1e-3)
    assert facts["out_of_bounds"] == {"count": 0, "okay": True}
    assert facts["average_bus_bandwidth"]["bandwidth"] == pytest.approx(0.61707, rel=1e-4)


# ------------------------------------------------------------------------------------------------------------- baselines


def compared(*now, then=(1.0, 2.0, 4.0), mad=0.01):
    def points(values):
        return {
            f"{2**place}M": Figure(seconds=one, mad_seconds=one * mad, count=20) for place, one in enumerate(values)
        }

    return compare(points(now), Baseline(made_ns=DAY_NS, points=points(then)))


def test_a_slower_cluster_is_said_with_its_day_and_sizes():
    comparison = compared(1.31, 2.5, 4.1)
    assert comparison_lines("", comparison, confirmed=True) == [
        "slower than on 2026-11-20 by 31% at 1M (1310 ms, 1000 ms then; margin 12%); measured twice",
        "slower too: 2M 25%",
    ]
    facts = comparison_facts(comparison, confirmed=True)
    assert facts["worse"] == ["1M", "2M"] and facts["confirmed"] and facts["since_ns"] == DAY_NS


def test_as_fast_as_before_noisy_and_new_are_three_things():
    (line,) = comparison_lines("", compared(1.0, 2.0, 4.0))
    assert line == "as fast as on 2026-11-20 at 3 of 3 figures"
    noisy = comparison_lines("half sum", compared(1.0, 2.0, 4.0, mad=0.5))
    assert noisy[0].startswith("half sum: not judged") and noisy[1].endswith("1M, 2M, 4M")
    assert comparison_lines("", compared(1.0, 2.0, then=(1.0,)))[-1] == "not judged, not measured then: 2M"


# ----------------------------------------------------------------------------------------------------------------- pairs


def pair(a, b, gb_per_second):
    return Pair(
        a=a,
        b=b,
        size_bytes=4 * 1024**2,
        seconds=4 * 1024**2 / gb_per_second / 1e9,
        mad_seconds=1e-5,
        latency_seconds=52.25e-6,
        iterations=20,
    )


def test_the_matrix_names_the_slow_pair():
    hosts = [f"algo-{n}" for n in range(1, 4)]
    pairs = [pair(hosts[0], hosts[1], 1.1), pair(hosts[0], hosts[2], 0.12), pair(hosts[1], hosts[2], 1.12)]
    world = BenchWorld(
        ranks=tuple(
            Rank(rank=n, hostname=host, machine=host, pid=1, device=-1, device_hex="cpu", device_info="x")
            for n, host in enumerate(hosts)
        ),
        backend="gloo",
        device="cpu",
        torch="2.13.0",
    )
    slow = slow_pairs(pairs)
    assert (
        pairs_text(pairs, slow, world)
        == """\
# sendrecv between each two of 3 hosts, backend gloo; GB/s each way of 4M, below the diagonal us of the smallest message
        algo-1  algo-2  algo-3
algo-1       -     1.1    0.12
algo-2    52.2       -    1.12
algo-3    52.2    52.2       -
# slow: algo-1 - algo-3: 0.12 GB/s, others 1.11"""
    )
    facts = pairs_json(pairs, slow, world, {})
    assert facts["slow"][0]["members"] == ("algo-1", "algo-3") and len(facts["pairs"]) == 3
    assert "1 pair cannot tell" in pairs_text(pairs[:1], slow_pairs(pairs[:1]), world)


def test_many_hosts_are_a_list_of_the_slowest_pairs():
    hosts = [f"algo-{n}" for n in range(1, 19)]
    pairs = [pair(a, b, 0.2 if (a, b) == ("algo-4", "algo-9") else 1.1) for a in hosts for b in hosts if a < b]
    lines = pairs_text(pairs, slow_pairs(pairs), WORLD).splitlines()
    assert lines[2].split() == ["algo-4", "-", "algo-9", "0.2", "52.2"] and len(lines) == 23
    assert lines[-1] == "# slow: algo-4 - algo-9: 0.2 GB/s, others 1.1"


# ------------------------------------------------------------------------------------------------------------------ step


def strategies():
    plain = [Try(strategy="plain", run="r-1", samples=(0.040,) * 30, exchange_seconds=0.014)]
    direct = [Try(strategy="direct", run="r-2", samples=(0.0205,) * 30, exchange_seconds=0.001)]
    reference = combined([one.samples for one in plain])
    return [
        strategy_time("plain", plain, reference, is_exact=True),
        strategy_time("direct", direct, reference, is_exact=True),
        strategy_time("int8", [], reference, is_exact=False, failure="the script failed with 2 ranks: no numpy"),
    ]


def test_strategies_stand_side_by_side_with_the_one_to_take():
    assert (
        step_text(strategies(), ("train.py", "--lr", "3"), ("--local-hosts", "2"))
        == """\
GRADIENTS  STEP MS    +-  TIMES PLAIN  EXCHANGE  AVERAGE
plain         40.0  0.00        1.00×       35%  exact
direct        20.5  0.00        1.95×        5%  exact
int8             -     -            -         -  lossy

failed      int8: the script failed with 2 ranks: no numpy

take        paceline run --gradients direct --local-hosts 2 train.py --lr 3"""
    )
    facts = step_json(strategies(), ("train.py",), {})
    assert facts["take"] == "direct" and facts["strategies"][2]["step_seconds"] is None
    assert step_json(strategies()[:1], ("train.py",), {})["take"] == "plain"
