"""The page of a plan at the widths of real terminals, and its explanation."""

import re
from dataclasses import replace

import pytest

from paceline.catalog.types import Accelerator, MachineType
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.fleet import Fleet, candidates_of_type
from paceline.parts.plan.planner.question import Goal, PlanLimits, PlanQuestion, Prices
from paceline.parts.plan.planner.workload import Assumption, Measurement, Workload
from paceline.parts.plan.views.plan import PlanPage, dollars, figure, interval, plan_text
from paceline.parts.plan.views.plan_explain import explain_text
from paceline.terminal_text import visible

GIB = 2**30
DEVICE = Accelerator(name="NVIDIA A100", bf16_tflops=312, memory_gb_per_second=1555)
STEP = Workload(
    name="train.py",
    parameter_count=340_000_000,
    gradient_bytes=1272 * 2**20,
    activation_bytes=9 * GIB,
    batch=32,
    assumptions=(Assumption(what="loss.item() stands for 1.0", file="train.py", line=31),),
)


def kind(name, vcpus, count=8):
    return MachineType(
        name=name,
        vcpu_count=vcpus,
        accelerator="NVIDIA A100",
        accelerator_count=count,
        intra_link="nvlink3",
        network_gbps=400,
        efa=True,
    )


@pytest.fixture(scope="module")
def plan():
    fleet = Fleet(hosts=(1, 2, 4))
    prices = Prices(on_demand=21.96, spot=9.0, spot_zone="use1-az1", sagemaker=25.0, source="a list")
    candidates = [*candidates_of_type(kind("p4d.24xlarge", 96), DEVICE, fleet, capacity_bytes=40 * GIB, prices=prices)]
    for vcpus in (2, 64, 192):
        refused = (f"no GPU: {vcpus} vCPUs",)
        candidates += candidates_of_type(kind(f"c5.{vcpus}", vcpus), None, fleet, refused=refused)
    question = PlanQuestion(
        workload=STEP,
        candidates=tuple(candidates),
        measurements=(Measurement(hosts=1, devices=1, step_seconds=0.31),),
        goal=Goal(epochs=3, samples=10**7),
        limits=PlanLimits(max_run_seconds=48 * 3600),
    )
    return evaluate(question)


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_every_line_fits_and_the_memory_verdict_and_an_interval_are_there(plan, width):
    text = plan_text(plan, PlanPage(width=width))
    assert max(map(len, text.splitlines())) <= width
    header = next(line for line in text.splitlines() if line.startswith("TYPE"))
    assert {"MEMORY", "HOSTS", "HOURS", "USD"} <= set(header.split())
    assert len(re.findall(r"^p4d\.24xlarge .*fits .*\d \(\d+\.\.\d+\)", text, re.MULTILINE)) == 3
    assert "…" not in text


def test_a_wide_page_has_every_column(plan):
    header = next(line for line in plan_text(plan, PlanPage(width=160)).splitlines() if line.startswith("TYPE"))
    assert {"DEVICES", "SAMPLES/S", "EFF", "SPOT"} <= set(header.split())


def test_refusals_that_differ_in_a_number_are_one_line(plan):
    text = plan_text(plan, PlanPage())
    assert "  no GPU: 2..192 vCPUs: c5.2, c5.64, c5.192" in text.splitlines()


def test_the_page_says_what_it_rests_on(plan):
    text = plan_text(plan, PlanPage())
    assert "tier 1: one measured step" in text
    assert "loss.item() stands for 1.0 (train.py:31)" in text
    assert "on spot" in text and "(use1-az1)" in text


def test_the_chosen_row_is_bold_only_in_colour(plan):
    assert "\x1b" not in plan_text(plan, PlanPage())
    assert visible(plan_text(plan, PlanPage(color=True))).count("\x1b[1m") == 1


def test_the_explanation_has_numbers_and_sources_for_every_row_shown(plan):
    text = explain_text(plan, PlanPage(width=80))
    assert text.count("scaling efficiency = ") == 3
    assert text.count("usd_per_hour=21.96") == 3
    assert max(map(len, text.splitlines())) <= 80


def test_a_plan_without_machines_says_so(plan):
    empty = replace(plan, rows=tuple(row for row in plan.rows if row.refused))
    assert "no machines left to judge" in plan_text(empty, PlanPage())


def test_a_job_below_an_hour_is_shown_in_minutes_and_small_amounts_in_cents(plan):
    goal = replace(plan.question.goal, epochs=1, samples=40_000)
    text = plan_text(evaluate(replace(plan.question, goal=goal)), PlanPage(width=160))
    header = next(line for line in text.splitlines() if line.startswith("TYPE"))
    assert "MINUTES" in header.split() and "HOURS" not in header.split()
    amounts = [line.split()[-2:] for line in text.splitlines() if line.startswith("p4d")]
    assert amounts and all(
        re.fullmatch(r"(\d+\.\d\d|\d\d\.\d|\d+)\)?", cell.split("..")[-1]) for row in amounts for cell in row
    )


def test_an_amount_below_ten_dollars_has_cents():
    assert [dollars(value) for value in (0, 0.004, 0.0447, 0.5, 9.994, 9.996, 31.25, 414.2)] == [
        *("0", "<0.01", "0.04", "0.50", "9.99", "10", "31.2", "414"),
    ]


def test_figures_keep_three_digits():
    assert [figure(value) for value in (0, 0.0123, 0.5, 3.14159, 31.4, 314.2, 3141.6, 31416)] == [
        *("0", "0.0123", "0.5", "3.14", "31.4", "314", "3140", "31400"),
    ]
    assert interval(310, 290.2, 335.4) == "310 (290..335)"
    assert interval(None, None, None) == "-"
    assert interval(310.0, 310.1, 310.2) == "310"
