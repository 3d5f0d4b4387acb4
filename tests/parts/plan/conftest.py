"""Rows of the planner, made up."""

import pytest

from paceline.parts.plan.planner.answer import Fit, Memory, Row, StepTime
from paceline.parts.plan.planner.machines import Machines


@pytest.fixture
def plan():
    """A factory of the planner's rows: 2 hours, between 1.5 and 3, in memory that fits."""

    def make(*, verdict=Fit.FITS, need_gib=10, has_gib=16, hours=(1.5, 2.0, 3.0), **fields):
        low, expected, high = hours or (None, None, None)
        memory = Memory(
            verdict=verdict,
            need_bytes=need_gib * 2**30,
            capacity_bytes=has_gib * 2**30,
            parts_bytes={"optimizer": 4 * 2**30, "activations": 5 * 2**30},
            largest_batch=fields.pop("largest_batch", None),
            missing=fields.pop("missing", None),
        )
        step = StepTime(seconds=0.1, low_seconds=0.075, high_seconds=0.15, tier=1, terms={})
        machines = Machines(hosts=1, device=None, devices_per_host=1, intra=None, inter=None)
        return Row(
            machines=machines, memory=memory, step=step, hours=expected, hours_low=low, hours_high=high, **fields
        )

    return make
