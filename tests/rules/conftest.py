"""Made-up jobs before their start: one host with 8 GPUs on this engine or that, changed by each test in what it is about.

def test_it_fires(found, job):
    (finding,) = found("K12", job(engine="sagemaker", use_spot=True))
"""

from textwrap import dedent

import pytest

from paceline.catalog.lookup import find_machine_type
from paceline.findings import Judgement
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
