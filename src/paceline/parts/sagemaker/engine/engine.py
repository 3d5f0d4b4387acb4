"""Runs a job with SageMaker's CreateTrainingJob. Every container unpacks an archive with the agent and the job's code.

    paceline's noun            SageMaker's field
    name, run id               TrainingJobName
    hosts                      ResourceConfig.InstanceCount, or the groups of `platform`
    channels                   InputDataConfig
    hyperparameters            HyperParameters, encoded as SDK v2 or v3 does
    output_url, checkpoint_url OutputDataConfig.S3OutputPath, CheckpointConfig.S3Uri
    max_run_seconds            StoppingCondition.MaxRuntimeInSeconds
    retries                    RetryStrategy.MaximumRetryAttempts
    environment                Environment
    platform                   every other field, as it is

request.py makes the request and checks its limits. package.py makes the archive. entry.py runs in the container. status.py translates
the state of the job. The engine needs the extra [sagemaker].
"""

import json
import secrets
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from paceline.errors import UsageError
from paceline.findings import Unknown
from paceline.part import Observation
from paceline.parts.engines.base import Engine, Handle, Request, Sent, known_options, nobody_asks
from paceline.parts.engines.host_check import StartedHost
from paceline.parts.engines.submission import Submission
from paceline.parts.sagemaker.engine import entry, request
from paceline.parts.sagemaker.engine.aws import Aws, asking, connect
from paceline.parts.sagemaker.engine.output import bucket_and_key, fetch, is_fetched
from paceline.parts.sagemaker.engine.package import pack, wheel_name
from paceline.parts.sagemaker.engine.request import (
    ACCOUNT,
    ARCHIVE,
    ENTRY_FILE,
    JOB_FILE,
    LOG_GROUP,
    OPTIONS,
    archive_url,
    located,
)
from paceline.parts.sagemaker.engine.status import host_of, in_order, observation, read_cursor
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

# CloudWatch returns at most 1 MiB per call. The rest comes with the next cursor.
_MOST_CALLS = 50
_ENDED = ("Completed", "Failed", "Stopped", "Stopping", "Deleting")

Connect = Callable[[Mapping[str, str], Mapping[str, str], str | None], Aws]


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The SageMaker engine, for the account and region of the options or the environment."""
    known_options("sagemaker", options, OPTIONS)
    return SagemakerEngine(environ, options)


@dataclass(frozen=True, slots=True)
class SagemakerEngine:
    """Training jobs of one account and region."""

    requeues: ClassVar[bool] = True
    """SageMaker starts it again after spot interruptions and its own faults."""
    environ: Mapping[str, str]
    """Environment variables of the process that submits or observes."""
    options: Mapping[str, str]
    """The options of `--option`."""
    connect: Connect = connect
    """The function that connects to AWS. Tests pass another function."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "sagemaker"

    def plan(self, job: Submission) -> Request:
        """The CreateTrainingJob request. `<region>` and `<account>` are placeholders if the user has not named a region or an account.

        Raises:  UsageError E34: SageMaker would refuse the request
        """
        region = self.options.get("region") or self.environ.get("AWS_REGION") or self.environ.get("AWS_DEFAULT_REGION")
        made = request.document(job, self.options, region=region)
        description = request.job_file(job, wheel_name(self.options.get("wheel")))
        return Request(engine=self.name, job=job, document=made, files={JOB_FILE: description})

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """No host: a machine of SageMaker exists only as long as a job that is paid for.

        Raises:  Unknown: always
        """
        raise Unknown("the machines of the job: SageMaker starts them for a job only, which is paid for")

    def submit(self, request: Request, run_dir: Path, sent: Sent = nobody_asks) -> Handle:
        """Upload the code, then create the job. If SageMaker refuses the job, the upload is deleted again.

        Raises:  UsageError E52 credentials or a closed bucket, E51 no bucket, E10 region or network, E34 refused
        """
        aws = self.connect(self.environ, self.options, None)
        made = located(request.document, region=aws.region)
        made = located(made, account=self._account(aws) if ACCOUNT in json.dumps(made) else None)
        name = made["TrainingJobName"]
        if request.job.environment:
            made["Environment"] = {**made["Environment"], **request.job.environment}
        with (
            self._uploaded(aws, replace(request, document=made), run_dir, sent),
            asking(f"creating {name}", self.environ, name),
        ):
            answer = aws.client("sagemaker").create_training_job(**made)
        return {
            "job_name": name,
            "arn": answer["TrainingJobArn"],
            "region": aws.region,
            "run_id": request.job.run_id,
            "code": archive_url(made),
        }

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """The state from DescribeTrainingJob. If the job has ended, its recording is copied to `run_dir`.

        Raises:  UsageError E52, E10, E34: SageMaker cannot be asked
        """
        aws = self.connect(self.environ, self.options, handle["region"])
        described = self._described(aws, handle)
        seen = observation(described)
        if not seen.ended:
            return seen
        lost = "" if is_fetched(run_dir) else self._fetch(aws, described, handle, run_dir)
        run, _, _ = read_run((RunDirectory(run_dir),))
        seen = observation(described, recorded_code=run.exit_code, recorded_reason=run.reason)
        return replace(seen, reason=f"{seen.reason}; {lost}".strip("; ")) if lost else seen

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """CloudWatch's lines since the cursor. Each line begins with its host.

        Raises:  UsageError E52, E10, E34: CloudWatch cannot be asked
        """
        aws = self.connect(self.environ, self.options, handle["region"])
        tokens = read_cursor(cursor)
        events: list[tuple[int, str, str]] = []
        with asking(f"reading the logs of {handle['job_name']}", self.environ, handle["job_name"]):
            client = aws.client("logs")
            for stream in _streams(client, handle["job_name"]):
                for event in _new_events(client, stream, tokens):
                    events.append((event["timestamp"], host_of(stream), event["message"]))
        return in_order(events), json.dumps(tokens, sort_keys=True) if tokens else cursor

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """Call StopTrainingJob: SIGTERM and, 120 s later, SIGKILL. SageMaker has no other way to stop, so `now` does the same.

        Raises:  UsageError E52, E10, E34: SageMaker cannot be asked, or refuses
        """
        aws = self.connect(self.environ, self.options, handle["region"])
        if self._described(aws, handle)["TrainingJobStatus"] in _ENDED:
            return
        try:
            with asking(f"stopping {handle['job_name']}", self.environ, handle["job_name"]):
                aws.client("sagemaker").stop_training_job(TrainingJobName=handle["job_name"])
        except UsageError:
            # The job may have ended since it was observed.
            if self._described(aws, handle)["TrainingJobStatus"] not in _ENDED:
                raise

    def _account(self, aws: Aws) -> str:
        with asking("asking AWS who this is", self.environ):
            return str(aws.client("sts").get_caller_identity()["Account"])

    def _described(self, aws: Aws, handle: Handle) -> Mapping[str, Any]:
        with asking(f"looking at {handle['job_name']}", self.environ, handle["job_name"]):
            found: Mapping[str, Any] = aws.client("sagemaker").describe_training_job(TrainingJobName=handle["job_name"])
        return found

    def _fetch(self, aws: Aws, described: Mapping[str, Any], handle: Handle, run_dir: Path) -> str:
        """Copy the recording. Returns why this failed, or ""."""
        try:
            with asking(
                "fetching the recording", self.environ, bucket_and_key(described["OutputDataConfig"]["S3OutputPath"])[0]
            ):
                fetch(described, handle["run_id"], lambda: aws.client("s3"), run_dir)
        except UsageError as error:
            return f"{error} ({error.saw})"
        except (OSError, tarfile.TarError) as error:
            return f"the recording could not be fetched: {error}"
        return ""

    @contextmanager
    def _uploaded(self, aws: Aws, request: Request, run_dir: Path, sent: Sent) -> Iterator[None]:
        """Upload the code to S3. It stays there if the block succeeds."""
        bucket, key = bucket_and_key(archive_url(request.document))
        client, done = aws.client("s3"), list[str]()
        # In the run's directory, and only during the upload, because the archive has the agents' secret.
        with tempfile.TemporaryDirectory(dir=run_dir) as scratch:
            files = {key: Path(scratch, ARCHIVE)}
            wheel = self.options.get("wheel")
            pack(request.job, files[key], description=request.files[JOB_FILE], token=secrets.token_hex(16), wheel=wheel)
            if "ContainerEntrypoint" in request.document["AlgorithmSpecification"]:
                files[f"{key.rpartition('/')[0]}/{ENTRY_FILE}"] = Path(entry.__file__)
            more = _counted(sum(path.stat().st_size for path in files.values()), sent)
            try:
                for name, path in files.items():
                    with asking("uploading the code", self.environ, bucket), path.open("rb") as content:
                        client.upload_fileobj(content, bucket, name, Callback=more)
                    done.append(name)
                yield
            except BaseException:
                for name in done:
                    # The refusal of the job is the error to report. A failure of this deletion is not.
                    with suppress(UsageError), asking("deleting the code again", self.environ, bucket):
                        client.delete_object(Bucket=bucket, Key=name)
                raise


def _counted(total_bytes: int, sent: Sent) -> Callable[[int], None]:
    """What boto3 calls with the bytes that it has sent since the last call."""
    sent_bytes = 0

    def more(count: int) -> None:
        nonlocal sent_bytes
        sent_bytes += count
        sent(sent_bytes, total_bytes)

    return more


def _streams(client: Any, job_name: str) -> Iterator[str]:
    pages = client.get_paginator("describe_log_streams").paginate(
        logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job_name}/"
    )
    try:
        for page in pages:
            yield from (stream["logStreamName"] for stream in page["logStreams"])
    except client.exceptions.ResourceNotFoundException:
        return  # no job in this account and region has written a line yet


def _new_events(client: Any, stream: str, tokens: dict[str, str]) -> Iterator[Mapping[str, Any]]:
    for _ in range(_MOST_CALLS):
        more = {"nextToken": tokens[stream]} if stream in tokens else {}
        page = client.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **more)
        yield from page["events"]
        at_end = page["nextForwardToken"] == tokens.get(stream)
        tokens[stream] = page["nextForwardToken"]
        # At the end CloudWatch returns the same token again. Before the end it may return an empty page.
        if at_end:
            return
