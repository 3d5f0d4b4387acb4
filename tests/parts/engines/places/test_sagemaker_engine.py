"""Our engine against an S3 server and `paceline sagemaker-local`, which runs the jobs: what is sent, seen, fetched, stopped and refused."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from s3_store import CREDENTIALS, S3Server, s3_is_here
from sagemaker_containers import OPTIONS, a_job
from sagemaker_server import serving
from submissions import changed

from paceline.errors import UsageError
from paceline.facts import Channel, SecondaryStatus, Status
from paceline.parts.engines import conformance, jobs
from paceline.parts.engines.base import Engine
from paceline.parts.sagemaker.engine.engine import engine
from paceline.recording.evidence import evidence

pytestmark = pytest.mark.engine

SECRET = "hush-hush-of-the-account"
ENDS = "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv[1:], flush=True)\n"
LASTS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
FAILS = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)\n"
SAVES = """
import os, pathlib
directory = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints")
number = len(list(directory.iterdir()))
(directory / f"step-{number}").write_text("state")
print("found", number, flush=True)
"""


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options that lead to both servers; this process's own credentials are made up."""
    if missing := s3_is_here():
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("sagemaker")
    with pytest.MonkeyPatch.context() as environment, S3Server(directory) as store:
        for name, value in {**CREDENTIALS, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
            environment.setenv(name, value)
        store.client.create_bucket(Bucket="jobs")
        store.put("jobs", data__part=b"x")
        s3 = f"http://127.0.0.1:{store.port}"
        limits = ("--stop-grace", "20", "--max-jobs", "2")
        with serving(directory, dict(os.environ), "--s3-endpoint", s3, *limits) as server:
            yield {**OPTIONS, "region": "us-east-1", "endpoint_url": server.url, "s3_endpoint_url": s3}


@pytest.fixture
def sagemaker(aws: dict[str, str]) -> Engine:
    return engine(dict(os.environ), aws)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Where places lie; what is left there holds no credentials."""
    yield tmp_path / "runs"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def keys(aws: dict[str, str], prefix: str) -> list[str]:
    import boto3

    with closing(boto3.client("s3", endpoint_url=aws["s3_endpoint_url"])) as client:
        return [entry["Key"] for entry in client.list_objects_v2(Bucket="jobs", Prefix=prefix).get("Contents", ())]


def job_of(tmp_path: Path, script: str, run_id: str, **fields):
    return changed(a_job(tmp_path, script, **fields), run_id=run_id)


def test_a_job_of_two_hosts_ends_and_its_recording_and_its_lines_are_here(sagemaker, tmp_path, root):
    channels = (Channel(name="train-data", source="s3://jobs/data"),)
    secret = {"PASSWORD": "hidden-from-all"}
    job = job_of(tmp_path, ENDS, "r-e00001", channels=channels, hyperparameters={"name": "it's"}, environment=secret)
    conformance.check_plan(sagemaker, job)
    seen = conformance.check_ends(sagemaker, job, root, seconds=90)
    assert seen.nodes == {"algo-1": "algo-1", "algo-2": "algo-2"}
    found = evidence(root / "r-e00001")
    assert (found.run.exit_code, len(found.ranks), found.hosts) == (0, 2, ("algo-1", "algo-2"))
    handle = jobs.submitted(root / "r-e00001").handle
    lines, _ = sagemaker.logs(handle, root / "r-e00001", None)
    assert """algo-2 | rank 1 of 2 ['--name', "it's"]""" in lines
    assert "hidden-from-all" not in (root / "r-e00001/submission.json").read_text()


def test_a_failing_rank_is_the_reason_and_its_code_the_jobs(sagemaker, tmp_path, root):
    seen = conformance.check_ends(sagemaker, job_of(tmp_path, FAILS, "r-e00002"), root, seconds=90, code=3)
    assert "rank 1 on algo-2 ended with code 3" in seen.reason and seen.status is Status.FAILED


def test_a_job_is_stopped(sagemaker, tmp_path, root):
    seen = conformance.check_cancel(sagemaker, job_of(tmp_path, LASTS, "r-e00003", hosts=1), root, seconds=90)
    assert (seen.status, seen.secondary_status) == (Status.STOPPED, SecondaryStatus.STOPPED)


def test_a_time_limit_says_so(sagemaker, tmp_path, root):
    job = job_of(tmp_path, LASTS, "r-e00004", hosts=1, max_run_seconds=4)
    run_dir = jobs.make_run_dir(root, job.run_id)
    jobs.submit_job(job, sagemaker, run_dir)
    seen = until_ended(sagemaker, run_dir)
    assert (seen.status, seen.secondary_status, seen.exit_code) == (
        Status.STOPPED,
        SecondaryStatus.MAX_RUNTIME_EXCEEDED,
        204,
    )
    assert evidence(run_dir).run.exit_code == 204


def test_a_spot_job_goes_on_from_its_checkpoints(aws, tmp_path, root):
    spot = engine(dict(os.environ), {**aws, "spot": "true", "max_wait": "3600"})
    for number in (0, 1):
        job = job_of(
            tmp_path, SAVES, f"r-e0001{number}", hosts=1, max_run_seconds=600, checkpoint_url="s3://jobs/checkpoints"
        )
        conformance.check_ends(spot, job, root, seconds=90)
        run_dir = root / job.run_id
        lines, _ = spot.logs(jobs.submitted(run_dir).handle, run_dir, None)
        assert f"algo-1 | found {number}" in lines
    assert keys(aws, "checkpoints/") == ["checkpoints/step-0", "checkpoints/step-1"]


def test_two_instance_groups_started_by_sagemaker_itself_are_one_job(aws, tmp_path, root):
    groups = [
        {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": 1}
        for name, kind in (("big", "ml.m5.4xlarge"), ("small", "ml.m5.xlarge"))
    ]
    platform = {"ResourceConfig": {"InstanceGroups": groups}}
    direct = engine(dict(os.environ), {**aws, "start": "direct", "keep_alive": "60"})
    job = job_of(tmp_path, ENDS, "r-e0000b", platform=platform, hyperparameters={"lr": 0.1})
    conformance.check_ends(direct, job, root, seconds=90)
    run_dir = root / "r-e0000b"
    lines, _ = direct.logs(jobs.submitted(run_dir).handle, run_dir, None)
    assert "algo-2 | rank 1 of 2 ['--lr', '0.1']" in lines
    assert evidence(run_dir).hosts == ("algo-1", "algo-2")


def test_lines_are_there_while_a_job_runs(sagemaker, tmp_path, root):
    job = job_of(tmp_path, LASTS, "r-e00005", hosts=1)
    run_dir = jobs.make_run_dir(root, job.run_id)
    jobs.submit_job(job, sagemaker, run_dir)
    handle, cursor, lines = jobs.submitted(run_dir).handle, None, []
    deadline = time.monotonic() + 60
    while "algo-1 | ready" not in lines:
        more, cursor = sagemaker.logs(handle, run_dir, cursor)
        lines += more
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)
    assert not sagemaker.observe(handle, run_dir).ended
    sagemaker.cancel(handle, run_dir, now=True)
    until_ended(sagemaker, run_dir)


def until_ended(asked: Engine, run_dir: Path):
    handle, deadline = jobs.submitted(run_dir).handle, time.monotonic() + 90
    while not (seen := asked.observe(handle, run_dir)).ended:
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
    return seen


def test_a_missing_bucket_is_named_and_nothing_is_created(aws, tmp_path, root):
    absent = engine(dict(os.environ), {**aws, "bucket": "no-such-bucket"})
    error = conformance.check_refused(absent, job_of(tmp_path, ENDS, "r-e00006"), root, "E51")
    assert "there is no bucket no-such-bucket" in error.what and "aws s3 mb" in error.next
    with pytest.raises(UsageError, match="does not know"):
        absent.observe({"job_name": "digits-r-e00006", "region": "us-east-1", "run_id": "r-e00006"}, tmp_path)


def test_a_refused_job_takes_its_upload_away_again(sagemaker, aws, tmp_path, root):
    error = conformance.check_refused(sagemaker, job_of(tmp_path, ENDS, "r-e00007", hosts=99), root, "E34")
    assert "more than this account may use" in error.what and SECRET not in str(vars(error))
    assert keys(aws, "paceline/digits-r-e00007/") == []


def test_without_credentials_it_says_so_at_once(aws, tmp_path, root, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    error = conformance.check_refused(engine({}, aws), job_of(tmp_path, ENDS, "r-e00008"), root, "E52")
    assert "AWS_PROFILE" in error.next


def test_without_a_region_or_a_way_there_it_says_which(aws, tmp_path, root, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    nowhere = {key: value for key, value in aws.items() if key != "region"}
    error = conformance.check_refused(engine({}, nowhere), job_of(tmp_path, ENDS, "r-e00009"), root, "E10")
    assert "no AWS region" in error.what
    closed = {**aws, "s3_endpoint_url": "http://127.0.0.1:9"}
    error = conformance.check_refused(engine({}, closed), job_of(tmp_path, ENDS, "r-e0000a"), root, "E10")
    assert "cannot be reached" in error.what
