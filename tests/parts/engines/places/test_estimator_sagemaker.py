"""PyTorch(...).fit() with an ml. type, through our engine and `paceline sagemaker-local`, which runs the job."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from s3_store import CREDENTIALS, S3Server, s3_is_here
from sagemaker_containers import OPTIONS
from sagemaker_server import serving

from paceline.estimator import PyTorch, TrainingTimeout, UnexpectedStatusException
from paceline.parts.sagemaker.estimator.session import surroundings

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

SAYS = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], "loss=0.25", flush=True)
open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w").write("7")
"""
FAILS = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)\n"
LASTS = "import time\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """engine_options that lead to an S3 server and to sagemaker-local, both of this test."""
    if missing := s3_is_here():
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("sagemaker")
    with pytest.MonkeyPatch.context() as environment, S3Server(directory) as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.client.create_bucket(Bucket="jobs")
        store.put("jobs", data__part=b"x")
        s3 = f"http://127.0.0.1:{store.port}"
        with serving(directory, dict(os.environ), "--s3-endpoint", s3, "--stop-grace", "3") as server:
            ours = ("bucket", "prefix", "start", "wheel")
            kept = {name: value for name, value in OPTIONS.items() if name in ours}
            yield {**kept, "region": "us-east-1", "endpoint_url": server.url, "s3_endpoint_url": s3}


@pytest.fixture
def estimator(options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def build(script: str, **arguments) -> PyTorch:
        (tmp_path / "train.py").write_text(script)
        made = PyTorch(
            "train.py",
            role="arn:aws:iam::123456789012:role/training",
            image_uri="an-image",
            instance_type="ml.c5.xlarge",
            instance_count=2,
            engine_options=options,
            **arguments,
        )
        around = replace(surroundings(), environ=dict(os.environ))
        made.around = lambda: around
        return made

    return build


def test_fit_ends_with_output_metrics_and_a_model_in_s3(estimator, capsys):
    made = estimator(
        SAYS,
        hyperparameters={"name": "it's"},
        output_path="s3://jobs/out",
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    )
    made.fit({"train": "s3://jobs/data"}, job_name="job-1")
    out = capsys.readouterr().out
    assert "Completed" in out and "Training seconds: " in out
    for rank in ("0", "1"):
        assert f"rank {rank} of 2 ['--name', \"it's\"]" in out
    facts = made.describe()
    assert facts["TrainingJobName"] == "job-1" and facts["TrainingJobStatus"] == "Completed"
    assert made.model_data == "s3://jobs/out/job-1/output/model.tar.gz"
    assert [row["value"] for row in made.metrics()] == [0.25, 0.25]
    assert PyTorch.attach("job-1").describe()["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"


def test_a_failure_names_the_rank(estimator):
    with pytest.raises(UnexpectedStatusException) as failed:
        estimator(FAILS).fit(logs=None)
    error = failed.value
    assert "rank 1 on algo-2" in error.reason
    assert (error.rank, error.host, error.rank_exit_code) == (1, "algo-2", 3)


def test_a_time_out_raises(estimator):
    with pytest.raises(TrainingTimeout):
        estimator(LASTS, max_run=3).fit(logs=None)
