"""Names of the SageMaker SDK that its notebooks use around the estimators: Session, get_execution_role, S3Uploader, Mode and others."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paceline.errors import PacelineError, UsageError
from paceline.parts.sagemaker.engine.aws import Aws, asking, connect
from paceline.parts.sagemaker.engine.request import NO_ROLE
from paceline.parts.sagemaker.estimator import console
from paceline.parts.sagemaker.estimator.inputs import BUCKET_DIRECTORY, NO_BUCKET
from paceline.parts.sagemaker.estimator.job import new_job_name
from paceline.parts.sagemaker.estimator.limits import LONGEST_NAME
from paceline.parts.sagemaker.estimator.session import surroundings


class Mode(StrEnum):
    """Where a ModelTrainer trains."""

    LOCAL_CONTAINER = "LOCAL_CONTAINER"
    """On this machine."""
    SAGEMAKER_TRAINING_JOB = "SAGEMAKER_TRAINING_JOB"
    """Where `Compute.instance_type` says: this machine for "local", SageMaker for an ml. type."""


@dataclass(slots=True)
class TensorBoardOutputConfig:
    """Where event files are to go. They are not copied; a notice says where the script should write them."""

    s3_output_path: str
    """A prefix in S3."""
    container_local_output_path: str | None = None
    """The directory in the container."""
    local_path: str | None = None
    """The same directory, under SDK v3's name."""


class Session:
    """The account and region of a notebook. Without an AWS account, directories of this machine take the place of S3.

    Other arguments of the SDK's Session are accepted and have no effect: an engine makes its own clients.
    """

    def __init__(self, boto_session: Any = None, *, default_bucket: str | None = None, **_ignored: Any) -> None:
        self._given = boto_session
        self._bucket = default_bucket
        self.default_bucket_prefix: str | None = None
        """A prefix below the bucket, which only a configuration file of the SDK sets; always None here."""
        self._aws: Aws | UsageError | None = None

    @property
    def boto_session(self) -> Any:
        """The boto3 session that was given, or one with the machine's own credentials; without boto3, an object with the region's name."""
        if self._given is None:
            try:
                import boto3  # type: ignore[import-untyped,unused-ignore]
            except ImportError:
                return SimpleNamespace(region_name=self.boto_region_name)
            self._given = boto3.session.Session(region_name=self.boto_region_name)
        return self._given

    @property
    def boto_region_name(self) -> str | None:
        """The region; None: no region is known here."""
        if self._given is not None:
            return None if self._given.region_name is None else str(self._given.region_name)
        aws = self._connected()
        return aws.region if isinstance(aws, Aws) else None

    def default_bucket(self) -> str:
        """The bucket of this account and region, as SageMaker names it.

        Without an AWS account, a placeholder: an address in it is a directory below .paceline/bucket for jobs that do not run on SageMaker.
        """
        if self._bucket is None:
            aws = self._connected()
            if not isinstance(aws, Aws):
                console.notices(
                    [f"no AWS account here ({aws.what}); s3://{NO_BUCKET}/ is the directory {BUCKET_DIRECTORY}"]
                )
                self._bucket = NO_BUCKET
            else:
                self._bucket = f"sagemaker-{aws.region}-{_account(aws)}"
        return self._bucket

    def upload_data(self, path: str, bucket: str | None = None, key_prefix: str = "data", **_ignored: Any) -> str:
        """Upload a file or a directory and return its URL. Without an AWS account: the path itself, which is a channel on this machine too.

        Raises:  UsageError U06: there is nothing at the path; E5x: S3 refused it
        """
        source = Path(path).expanduser().absolute()
        if not source.exists():
            raise UsageError("U06", f"{path} is not there", saw=f"looked for {source}", next=f"ls {source.parent}")
        aws = self._connected()
        if not isinstance(aws, Aws):
            console.notices([f"no AWS account here ({aws.what}); {path} itself is the channel"])
            return str(source)
        to = bucket or self.default_bucket()
        with asking("uploading", surroundings().environ, to):
            for file in sorted(one for one in source.rglob("*") if one.is_file()) if source.is_dir() else [source]:
                name = file.relative_to(source).as_posix() if source.is_dir() else file.name
                aws.client("s3").upload_file(str(file), to, f"{key_prefix}/{name}")
        return f"s3://{to}/{key_prefix}" if source.is_dir() else f"s3://{to}/{key_prefix}/{source.name}"

    def update_training_job(self, job_name: str, resource_config: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Change a job on SageMaker, such as the seconds of its warm pool. Without an AWS account, a notice: there is no warm pool."""
        aws = self._connected()
        if not isinstance(aws, Aws):
            console.notices(
                [f"no AWS account here ({aws.what}); there is nothing to change about {job_name} on SageMaker"]
            )
            return
        asked = {
            "TrainingJobName": job_name,
            **({"ResourceConfig": dict(resource_config)} if resource_config else {}),
            **more,
        }
        with asking("changing the job", surroundings().environ):
            aws.client("sagemaker").update_training_job(**asked)

    def _connected(self) -> Aws | UsageError:
        """The connection, or why there is none."""
        if self._aws is None:
            try:
                self._aws = connect(
                    surroundings().environ, {}, self._given.region_name if self._given is not None else None
                )
            except UsageError as error:
                self._aws = error
        return self._aws


class S3Uploader:
    """SDK v2's and v3's uploader. Without an AWS account, directories of this machine take the place of S3."""

    @staticmethod
    def upload(local_path: str, desired_s3_uri: str, kms_key: str | None = None, **_ignored: Any) -> str:
        """Upload a file or a directory below that URL and return its URL; see Session.upload_data."""
        bucket, _, prefix = desired_s3_uri.removeprefix("s3://").partition("/")
        return Session().upload_data(local_path, bucket, prefix.rstrip("/"))


def get_execution_role(sagemaker_session: Session | None = None, use_default: bool = False) -> str:
    """The role of this notebook. Without an AWS account, a placeholder, which every engine but sagemaker takes."""
    aws = (sagemaker_session or Session())._connected()
    if not isinstance(aws, Aws):
        console.notices(["no AWS account here; the role is a placeholder for jobs of this machine"])
        return NO_ROLE
    try:
        with asking("asking for the role", surroundings().environ):
            arn = str(aws.client("sts").get_caller_identity()["Arn"])
            if ":assumed-role/" not in arn:
                return arn
            return str(aws.client("iam").get_role(RoleName=arn.split("/")[1])["Role"]["Arn"])
    except PacelineError as error:
        raise UsageError(
            error.code,
            f"the role cannot be found out: {error.what}",
            saw=error.saw,
            next="role='arn:aws:iam::ACCOUNT:role/NAME'",
        ) from error


def name_from_base(base: str, max_length: int = LONGEST_NAME, short: bool = False) -> str:
    """The base and the time, as the SDK makes names. `short` has no effect: the time is always to the millisecond."""
    stamp = new_job_name("", surroundings().now_ns()).lstrip("-")
    return f"{base[: max_length - len(stamp) - 1].rstrip('-')}-{stamp}"


def unique_name_from_base(base: str, max_length: int = LONGEST_NAME) -> str:
    """The same as name_from_base."""
    return name_from_base(base, max_length)


def _account(aws: Aws) -> str:
    with asking("asking for the account", surroundings().environ):
        return str(aws.client("sts").get_caller_identity()["Account"])
