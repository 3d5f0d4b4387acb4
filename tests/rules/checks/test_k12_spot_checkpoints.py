"""K12: spot without a place for checkpoints."""

from types import SimpleNamespace

from paceline.findings import Severity


def test_spot_without_checkpoints_is_a_warning(found, job):
    (finding,) = found("K12", job(engine="sagemaker", use_spot=True, plan=SimpleNamespace(hours=2.0)))
    assert finding.severity is Severity.WARNING
    assert "the plan expects 2 hours" in finding.saw


def test_spot_with_checkpoints_and_no_spot_draw_nothing(found, job):
    assert not found("K12", job(engine="sagemaker", use_spot=True, checkpoint_url="s3://bucket/checkpoints"))
    assert not found("K12", job(engine="sagemaker"))


def test_off_aws_there_is_no_spot(found, job):
    assert not found("K12", job(engine="local", use_spot=True))
