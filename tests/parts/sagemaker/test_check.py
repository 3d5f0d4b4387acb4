"""Which files may build an estimator, and are read closer for it."""

import pytest

from paceline.parts.sagemaker.check import EstimatorsOnCheck

BUILDS = "PyTorch(entry_point='t.py', role='r', instance_count=1, instance_type='ml.p4d.24xlarge')\n"


@pytest.mark.parametrize(
    ("text", "is_job"),
    [
        ("from sagemaker.pytorch import PyTorch\n" + BUILDS, True),
        ("import os, sagemaker.pytorch\nsagemaker.pytorch." + BUILDS, True),
        ("try:\n    from paceline.estimator import PyTorch\nexcept ImportError:\n    raise\n" + BUILDS, True),
        ("import torch  # as sagemaker would\n", False),
        ("print('paceline run this')\n", False),
        ("import paceline\npaceline.step()\n", False),
    ],
)
def test_a_script_that_builds_an_estimator_is_its_job(tmp_path, text, is_job):
    (tmp_path / "job.py").write_text(text)
    assert (EstimatorsOnCheck().built_by(tmp_path / "job.py", "job.py") is not None) == is_job


def test_what_is_no_python_builds_nothing(tmp_path):
    (tmp_path / "job.sh").write_text("from sagemaker.pytorch import PyTorch\n" + BUILDS)
    assert EstimatorsOnCheck().built_by(tmp_path / "job.sh", "job.sh") is None
