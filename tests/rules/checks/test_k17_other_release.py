"""K17: a framework that is replaced at the start."""

import pytest

from paceline.findings import Severity

PYTORCH = {"engine": "sagemaker", "framework": "pytorch", "framework_version": "2.1.0"}


def test_another_release_is_a_warning_with_its_line(found, job):
    (finding,) = found("K17", job(requirements="numpy\ntorch == 1.13.1  # old\n", **PYTORCH))
    assert finding.severity is Severity.WARNING
    assert finding.what == "requirements.txt:2 replaces torch 2.1.0 of the image by 1.13.1 on every host"
    assert finding.next.startswith("framework_version='1.13.1'")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "torch\n",
        "torch>=2.0\n",
        "torch==2.1\n",
        "torch==2.1.0+cu121\n",
        "torchvision==0.1\n",
        "torch==1.13; python_version < '3.8'\n",
        "tensorflow==2.9\n",
    ],
)
def test_the_same_release_and_open_ends_draw_nothing(found, job, text):
    assert not found("K17", job(requirements=text, **PYTORCH))


def test_where_there_is_no_image_it_does_not_apply(found, job):
    assert not found("K17", job(requirements="torch==1.13\n", framework="pytorch", framework_version="2.1"))


def test_an_image_of_ones_own_is_not_judged(missing, job):
    assert "torch in the image" in missing("K17", job(requirements="torch==1.13\n", image_uri="me/image", **PYTORCH))
