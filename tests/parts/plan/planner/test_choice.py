"""The choice keeps the limits, and says why there is none where there is none."""

from dataclasses import replace

import pytest

from paceline.parts.plan.planner.answer import Fit, Memory, Row, StepTime
from paceline.parts.plan.planner.choice import choose, keeps
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.question import PlanLimits

HOUR = 3600.0


def row(name, hours=1.0, usd=10.0, *, verdict=Fit.FITS, hosts=1, step=True, refused=(), capacity=None) -> Row:
    """Hours and USD may be 20 % less or 50 % more."""
    return Row(
        name=name,
        machines=Machines(device=None, devices_per_host=1, hosts=hosts),
        memory=Memory(verdict=verdict, capacity_bytes=capacity),
        step=StepTime(seconds=1.0, low_seconds=0.8, high_seconds=1.5, tier=1, terms={"compute": 1.0}) if step else None,
        refused=refused,
        samples_per_second=10.0,
        usd_per_hour=None if usd is None else usd,
        **(
            {}
            if hours is None
            else {"hours": hours, "hours_low": hours * 0.8, "hours_high": hours * 1.5}
            | ({} if usd is None else {"usd": usd, "usd_low": usd * 0.8, "usd_high": usd * 1.5})
        ),
    )


def test_the_cheapest_is_chosen_where_nothing_limits():
    choice = choose([row("slow", 9, 5), row("fast", 1, 50)], PlanLimits())
    assert (choice.row.name, choice.why) == ("slow", "the cheapest")


def test_what_keeps_a_cost_from_being_known_is_named():
    stepless = replace(row("one", None, 20.0), samples_per_second=None)
    assert "neither a number of steps (--steps" in choose([stepless], PlanLimits()).why
    assert "no price" not in choose([stepless], PlanLimits(budget_usd=5)).why
    assert "no price is known" in choose([replace(row("one", None, None), samples_per_second=None)], PlanLimits()).why


def test_a_deadline_is_held_against_the_far_end_of_the_interval():
    rows = [row("slow", 8, 5), row("fast", 1, 50)]
    assert choose(rows, PlanLimits(deadline_seconds=9 * HOUR)).row.name == "fast"
    assert choose(rows, PlanLimits(max_run_seconds=12 * HOUR)).row.name == "slow"


def test_a_budget_alone_buys_the_fastest():
    rows = [row("slow", 9, 5), row("fast", 2, 50), row("faster", 1, 500)]
    assert choose(rows, PlanLimits(budget_usd=80)).row.name == "fast"
    assert choose(rows, PlanLimits(budget_usd=80, deadline_seconds=40 * HOUR)).row.name == "slow"


@pytest.mark.parametrize(
    ("limits", "nearest"),
    [
        (PlanLimits(deadline_seconds=HOUR), "fast"),
        (PlanLimits(budget_usd=1), "slow"),
        (PlanLimits(budget_usd=1, deadline_seconds=20 * HOUR), "slow"),
        (PlanLimits(budget_usd=10, deadline_seconds=2 * HOUR), "fast"),
    ],
)
def test_where_nothing_keeps_the_limits_the_nearest_is_named(limits, nearest):
    choice = choose([row("slow", 9, 5), row("fast", 1, 50)], limits)
    assert (choice.row, choice.code, choice.nearest.name) == (None, "P10", nearest)


def test_what_does_not_fit_is_refused_or_unknown_is_never_chosen():
    out = [row("tight", verdict=Fit.DOES_NOT_FIT), row("refused", refused=("no GPU",)), row("unknown", step=False)]
    assert choose([*out, row("left", usd=99.0)], PlanLimits()).row.name == "left"
    assert choose(out, PlanLimits()).row is None


def test_the_grey_zone_is_chosen_only_where_nothing_fits_clearly():
    assert choose([row("grey", usd=1.0, verdict=Fit.GREY), row("clear", usd=9.0)], PlanLimits()).row.name == "clear"
    assert "grey zone" in choose([row("grey", verdict=Fit.GREY)], PlanLimits()).why


def test_where_nothing_fits_the_roomiest_is_named():
    rows = [row("small", verdict=Fit.DOES_NOT_FIT, capacity=1), row("large", verdict=Fit.DOES_NOT_FIT, capacity=2)]
    assert choose(rows, PlanLimits()).nearest.name == "large"


def test_without_hours_a_limit_cannot_be_judged_and_is_not_kept():
    assert not keeps(row("unknown", hours=None), PlanLimits(deadline_seconds=HOUR))
    assert choose([row("unknown", hours=None)], PlanLimits(deadline_seconds=HOUR)).code == "P10"


def test_without_a_price_the_fewest_devices_that_keep_the_deadline_are_taken():
    rows = [row("many", 1, None, hosts=8), row("few", 2, None, hosts=2), row("one", 9, None)]
    assert choose(rows, PlanLimits(deadline_seconds=4 * HOUR)).row.name == "few"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (PlanLimits(budget_usd=12), ": 12 USD buy 3 hours of slow, enough for 9,000 of 34,200 steps"),
        (PlanLimits(budget_usd=12, max_run_seconds=2 * HOUR), ": 2h of slow are enough for 5,400 of 34,200 steps"),
        (PlanLimits(budget_usd=0.5), ": 0.5 USD buy 0.125 hours of slow, enough for 0 of 34,200 steps"),
    ],
)
def test_what_a_budget_buys_is_said(limits, words):
    # Half an hour of ten goes into the start.
    slow = replace(row("slow", 10, 40.0), usd_per_hour=4.0, step_count=34_200)
    assert choose([slow], limits).why.endswith(words)


def test_no_row_is_said_to_fit_nowhere_beside_one_that_may():
    tight, grey = row("tight", verdict=Fit.DOES_NOT_FIT, step=False), row("grey", verdict=Fit.GREY, step=False)
    assert choose([tight, grey], PlanLimits()).why == "no step time could be judged"
    assert "memory of none" in choose([tight, row("no", refused=("no GPU",))], PlanLimits()).why
