"""Made-up jobs before their start: one host with 8 GPUs on this engine or that, changed by each test in what it is about.

def test_it_fires(found, job):
    (finding,) = found("K12", job(engine="sagemaker", use_spot=True))
"""

from textwrap import dedent

import pytest

from paceline.catalog.lookup import find_machine_type
from paceline.findings import Judgement
from paceline.planner.answer import Fit, Memory, Row, StepTime
from paceline.planner.machines import Machines
from paceline.rules.collect import gpu_count
from paceline.rules.job_facts import BeforeRun, checks_of


@pytest.fixture
def job():
    """A factory of jobs; `of` names a type of the catalogue, `text` is the script."""

    def make(text=None, *, of=None, **fields):
        machine = find_machine_type(of) if of else None
        if of:
            fields = {"instance_type": of, "machine": machine, "gpus_per_host": gpu_count(machine), **fields}
        if text is not None:
            fields = {"script": dedent(text), "script_path": "train.py", **fields}
        return BeforeRun(**fields)

    return make


@pytest.fixture
def verdict():
    """What the check with this code says of a job."""
    return lambda code, before: next(one for one in checks_of(before) if one.code == code)


@pytest.fixture
def found(verdict):
    """What the check with this code finds in a job that it can judge."""

    def findings(code, before):
        said = verdict(code, before)
        assert said.judgement is not Judgement.NOT_JUDGED, said.missing
        return said.findings

    return findings


@pytest.fixture
def missing(verdict):
    """What the check with this code would have to know of a job."""

    def of(code, before):
        said = verdict(code, before)
        assert said.judgement is Judgement.NOT_JUDGED, said.findings
        return said.missing

    return of


@pytest.fixture
def plan():
    """A factory of the planner's rows: 2 hours, between 1.5 and 3, in memory that fits."""

    def make(*, fit=Fit.FITS, need_gib=10, has_gib=16, hours=(1.5, 2.0, 3.0), **fields):
        low, expected, high = hours or (None, None, None)
        memory = Memory(
            fit=fit,
            need_bytes=need_gib * 2**30,
            capacity_bytes=has_gib * 2**30,
            parts={"optimizer": 4 * 2**30, "activations": 5 * 2**30},
            largest_batch=fields.pop("largest_batch", None),
            missing=fields.pop("missing", ""),
        )
        step = StepTime(seconds=0.1, low_seconds=0.075, high_seconds=0.15, tier=1, terms={})
        machines = Machines(hosts=1, device=None, devices_per_host=1, intra=None, inter=None)
        return Row(
            machines=machines, memory=memory, step=step, hours=expected, hours_low=low, hours_high=high, **fields
        )

    return make
