"""Pictures: each number at its place, nothing outside, no style.

`python tests/parts/web/views/test_svg.py` writes data/*.svg anew, after a change that was meant.
"""

import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parts.comm.planner.regression import Figure
from paceline.parts.comm.planner.strategy_times import StrategyTime
from paceline.parts.lab.nccl_tests import BenchRow, BenchWorld, Rank, Skipped, Table, Timing
from paceline.parts.lab.slow_pairs import Pair
from paceline.parts.lab.views.bench_picture import collective_svg, pairs_svg, strategies_svg
from paceline.parts.lab.views.rehearsal_picture import rehearsal_svg
from paceline.parts.plan.planner.answer import StepTime
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.rehearsal import Prediction, Rehearsal, RehearsedSize
from paceline.parts.plan.planner.workload import Measurement
from paceline.parts.plan.views.plan_picture import plan_svg
from paceline.parts.web.views.svg import BOTH, DARK, LIGHT, Axis, Bar, Bars, Chart, Draw, Point, Series, picture

DATA = Path(__file__).parent / "data"
SVG = "{http://www.w3.org/2000/svg}"


def plan(*words):
    from paceline.parts.plan.cli.options import parse_plan
    from paceline.parts.plan.cli.question import question_of

    return evaluate(question_of(parse_plan(words)))


def of_sizes():
    return plan(
        *(
            "--instance",
            "p4d.24xlarge,p5.48xlarge",
            "--host-counts",
            "1,2,4",
            "--gradient-mib",
            "1272",
            "--batch",
            "32",
        ),
        *("--measured-step-ms", "310", "--measured-instance", "p4d.24xlarge", "--steps", "9000", "--max-run", "4h"),
        *("--usd-per-hour", "20"),
    )


def of_types():
    return plan(
        *("--instance", "p4d.24xlarge,g5.48xlarge,p2.16xlarge", "--parameters", "3B", "--batch", "8"),
        *("--gflops-per-sample", "100", "--steps", "9000", "--usd-per-hour", "20", "--budget", "100"),
    )


def timing(time_us, spread=0.1):
    return Timing(
        time=time_us, iterations=20, median_us=time_us, mad_us=1.0,
        min_us=time_us * (1 - spread), max_us=time_us * (1 + 3 * spread),
    )  # fmt: skip


def a_table():
    ranks = tuple(
        Rank(rank=rank, hostname="localhost", machine="m", pid=1, device=-1, device_hex="cpu", device_info="x86_64")
        for rank in range(2)
    )
    rows = tuple(
        BenchRow(
            size_bytes=size, count=size // 4, type="float", operation=operation, root=-1,
            out_of_place=timing(100 + size / 900), in_place=timing(80 + size / 1200),
        )
        for operation in ("sum", "avg")
        for size in (1 << 10, 1 << 16, 1 << 22)
    )  # fmt: skip
    return Table(
        collective="all_reduce",
        world=BenchWorld(ranks=ranks, backend="gloo", device="cpu", torch="2.13.0"),
        rows=rows,
        left=(Skipped(what="half avg", reason="not there"),),
    )


def strategies():
    def one(name, seconds, *, is_exact=True, failure=""):
        step = Figure(seconds=seconds, mad_seconds=seconds / 20, count=60) if seconds else None
        plain = 0.1 / seconds if seconds else None
        return StrategyTime(strategy=name, is_exact=is_exact, step=step, times_plain=plain, failure=failure)

    return [
        one("plain", 0.1), one("direct", 0.082), one("flat", 0.131), one("int8", 0.07, is_exact=False),
        one("hierarchical", None, failure="it needs two hosts"),
    ]  # fmt: skip


def rehearsal():
    def size(devices, seconds, crowding=1.0):
        measured = Measurement(hosts=1, devices=devices, step_seconds=seconds)
        return RehearsedSize(
            measurement=measured, run_id="r-1", step_count=30, mean_step_seconds=seconds, crowding=crowding
        )

    def prediction(devices, seconds, here=None):
        step = StepTime(seconds=seconds, low_seconds=seconds * 0.9, high_seconds=seconds * 1.5, tier=2, terms={})
        return Prediction(
            hosts=1, ranks_per_host=devices, step=step, efficiency_fraction=0.9, crowding=2.0, here_seconds=here
        )

    found = Rehearsal(id="h-1", program=("train.py",), sizes=(size(1, 0.07), size(2, 0.08), size(4, 0.2, 2.0)))
    return found, (prediction(8, 0.085, 0.4), prediction(16, 0.09))


def pairs():
    return [
        Pair(
            a=f"algo-{a}", b=f"algo-{b}", size_bytes=4 << 20, seconds=0.01 * (1 + 3 * (a == 1)), mad_seconds=0.001,
            latency_seconds=1e-5, iterations=20,
        )
        for a in (1, 2, 3)
        for b in range(a + 1, 5)
    ]  # fmt: skip


GOLDEN = {
    "plan_sizes": lambda: plan_svg(of_sizes()),
    "plan_types": lambda: plan_svg(of_types()),
    "bench_collective": lambda: collective_svg(a_table()),
    "bench_step": lambda: strategies_svg(strategies(), ("train.py",)),
    "bench_pairs": lambda: pairs_svg(pairs(), None),
    "rehearsal": lambda: rehearsal_svg(*rehearsal()),
}


@pytest.fixture(params=GOLDEN)
def svg(request):
    return GOLDEN[request.param]()


def texts(svg):
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_picture_is_the_kept_one(name):
    assert GOLDEN[name]() == (DATA / f"{name}.svg").read_text(encoding="utf-8")


def test_a_picture_has_a_title_a_description_and_no_style(svg):
    root = ElementTree.fromstring(svg)
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert root.get("role") == "img" and root.get("aria-labelledby") == "title desc"
    assert all(child.text for child in root[:2])
    assert not any(name in ("style", "class") for one in root.iter() for name in one.keys())  # noqa: SIM118
    assert not any(one.tag in (f"{SVG}style", f"{SVG}script", f"{SVG}image") for one in root.iter())
    assert "nan" not in svg and "inf" not in svg


def test_every_mark_is_inside_the_picture(svg):
    assert_inside(svg)


def assert_inside(svg):
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    for one in root.iter():
        for name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy"):
            if one.get(name) is not None:
                assert 0 <= float(one.get(name)) <= (width if "x" in name else height)
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", one.get("d") or "")]
        assert all(0 <= x <= width for x in numbers[::2]) and all(0 <= y <= height for y in numbers[1::2])


def contrast(a, b):
    def light(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    less, more = sorted((light(a), light(b)))
    return (more + 0.05) / (less + 0.05)


@pytest.mark.parametrize(
    ("palette", "grounds"), [(BOTH, ("#ffffff", "#000000")), (LIGHT, ("#ffffff",)), (DARK, ("#0d1117",))]
)
def test_colours_can_be_read_on_their_grounds(palette, grounds):
    for ground in grounds:
        assert contrast(palette.text, ground) >= 4.5
        assert min(contrast(color, ground) for color in palette.series) >= 3.0


def test_what_loses_or_failed_is_in_the_picture():
    shown = texts(GOLDEN["bench_step"]())
    assert "flat" in shown and "131, 0.76× plain" in shown
    assert "failed: it needs two hosts" in shown
    assert "Not measured: half avg; the table says why." in texts(GOLDEN["bench_collective"]())
    assert any("does not fit" in text for text in texts(GOLDEN["plan_types"]()))


def test_the_picture_of_a_plan_says_what_is_not_in_it():
    assert any(text.startswith("Not drawn: 3 rows without a known step") for text in texts(plan_svg(of_sizes())))
    nothing = texts(plan_svg(plan("--instance", "p4d.24xlarge", "--gradient-mib", "100")))
    assert "Nothing to draw: no row has a step time." in nothing


def test_a_plan_of_many_types_has_as_many_lines_as_colours():
    found = plan(
        "--where", "gpus>=4", "--host-counts", "1,2", "--parameters", "340M", "--batch", "8", "--gflops-per-sample", "9"
    )
    names = [text for text in texts(plan_svg(found)) if text.endswith(("xlarge", ".metal"))]
    assert len(names) == len(set(names)) == len(BOTH.series)


def test_a_point_is_where_its_value_is():
    x, y = Axis(title="x", is_log=True, at=(1, 10, 100)), Axis(title="y")
    chart = Chart(title="t", x=x, y=y, series=(Series(name="s", points=(Point(1, 0), Point(10, 50), Point(100, 100))),))
    dots = list(ElementTree.fromstring(picture("t", "d", [chart])).iter(f"{SVG}circle"))
    across = [float(one.get("cx")) for one in dots]
    up = [float(one.get("cy")) for one in dots]
    assert across[1] == pytest.approx((across[0] + across[2]) / 2, abs=0.2)
    assert up[1] == pytest.approx((up[0] + up[2]) / 2, abs=0.2) and up[0] > up[2]


def test_text_from_elsewhere_changes_no_element():
    evil = "</text><script>alert(1)</script>\x1b[2J\x00\u202e]]>"
    bars = Bars(title=evil, bars=(Bar(label=evil, value=1, text=evil),))
    root = ElementTree.fromstring(picture(evil, evil, [bars], notes=[evil]))
    assert {one.tag for one in root.iter()} == {
        f"{SVG}{tag}" for tag in ("svg", "title", "desc", "text", "rect", "line")
    }


numbers = st.floats(min_value=1e-6, max_value=1e9, allow_nan=False)
points = st.builds(
    lambda x, y, low, high: Point(x, y, y * low, y * high), numbers, numbers, st.floats(0.1, 1), st.floats(1, 9)
)


@given(
    st.lists(st.lists(points, max_size=5), max_size=9),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(Draw)),
    st.none() | st.tuples(numbers, st.just("limit")),
)
def test_any_values_give_a_picture_whose_marks_are_inside(found, log_x, log_y, draw, limit):
    series = tuple(Series(name=f"series {place}", points=tuple(one), draw=draw) for place, one in enumerate(found))
    chart = Chart(
        title="t", x=Axis(title="x", is_log=log_x), y=Axis(title="y", is_log=log_y), series=series, limit=limit
    )
    assert_inside(picture("t", "d", [chart]))


def test_an_axis_has_round_labels_and_none_over_another():
    from paceline.parts.web.views.svg import _log_ticks, _round_ticks

    assert _round_ticks(0, 930) == [0, 200, 400, 600, 800]
    assert _log_ticks(0.5, 2000) == [1, 10, 100, 1000]
    assert _log_ticks(30, 200) == [50, 100, 200]
    assert all(math.isfinite(tick) for tick in _log_ticks(40, 45))


if __name__ == "__main__":
    for name, made in GOLDEN.items():
        (DATA / f"{name}.svg").write_text(made(), encoding="utf-8")
    sys.exit()
