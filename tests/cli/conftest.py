"""What runs on the machine of the tests is nobody's business here."""

import pytest


@pytest.fixture(autouse=True)
def no_job_runs_here(monkeypatch):
    """`paceline why` where nothing is recorded looks for a job that runs, and there may be one of another test."""
    monkeypatch.setattr("paceline.cli.why_process.answer_only_job", lambda args: None)
