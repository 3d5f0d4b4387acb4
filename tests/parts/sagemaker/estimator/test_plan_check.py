"""The planner's checks of an estimator: from a saved trace, for the machines that are named."""

import json

import pytest

from paceline.errors import UsageError
from paceline.parts.plan.k04_memory import RULE as MEMORY
from paceline.parts.plan.planner.answer import Fit
from paceline.parts.plan.planner.trace_json import to_plain
from paceline.parts.plan.planner.workload import Workload
from paceline.parts.sagemaker.estimator.plan_check import planned_row
from paceline.rules.job_facts import BeforeRun, checks_of


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "step.json"
    file.write_text(json.dumps(to_plain(Workload(gradient_bytes=1 << 40))))
    return file


def test_without_a_plan_nothing_is_planned():
    assert planned_row(None, "ml.g5.12xlarge", 2, 3600) is None


def test_the_row_is_about_the_machines_that_are_named(trace):
    row = planned_row({"trace": str(trace), "steps": 100}, "ml.g5.12xlarge", 2, 3600)
    assert (row.name, row.machines.hosts, row.machines.devices_per_host) == ("g5.12xlarge", 2, 4)
    assert row.memory.verdict in (Fit.DOES_NOT_FIT, Fit.NOT_JUDGED)


def test_the_checks_look_at_it(trace):
    row = planned_row({"trace": str(trace), "steps": 100}, "ml.g5.12xlarge", 2, 3600)
    judged = {verdict.code: verdict for verdict in checks_of(BeforeRun(plan=row))}
    assert "a plan (" not in judged[MEMORY.code].missing


@pytest.mark.parametrize(
    ("plan", "kind", "what"),
    [
        ("step.json", "ml.g5.12xlarge", "a dict with a trace"),
        ({"steps": 3}, "ml.g5.12xlarge", "a dict with a trace"),
        ({"trace": "{trace}", "stps": 3}, "ml.g5.12xlarge", "has no 'stps'"),
        ({"trace": "{trace}", "steps": "many"}, "ml.g5.12xlarge", "no number above 0"),
        ({"trace": "{trace}", "epochs": 0}, "ml.g5.12xlarge", "no number above 0"),
        ({"trace": "/nowhere/step.json"}, "ml.g5.12xlarge", "cannot be read"),
        ({"trace": "{trace}"}, None, "machine type of the catalogue"),
        ({"trace": "{trace}"}, "local", "machine type of the catalogue"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(trace, plan, kind, what):
    if isinstance(plan, dict):
        plan = {key: value.format(trace=trace) if isinstance(value, str) else value for key, value in plan.items()}
    with pytest.raises(UsageError) as refused:
        planned_row(plan, kind, 1, None)
    assert refused.value.code == "U31" and what in refused.value.what and refused.value.saw and refused.value.next
