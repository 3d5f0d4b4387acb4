"""Names of the SageMaker SDK that its notebooks use around the estimators: Session, get_execution_role, Mode, TensorBoardOutputConfig."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError, UsageError
from paceline.estimator import console
from paceline.estimator.session import surroundings
from paceline.launch.engines.sagemaker.aws import Aws, asking, connect
from paceline.launch.engines.sagemaker.request import NO_ROLE


class Mode(StrEnum):
    """Where a ModelTrainer trains."""

    LOCAL_CONTAINER = "LOCAL_CONTAINER"
    """On this machine."""
    SAGEMAKER_TRAINING_JOB = "SAGEMAKER_TRAINING_JOB"
    """Where the instance type says."""


@dataclass(slots=True)
class TensorBoardOutputConfig:
    """Where event files are to go. They are not copied; a notice says where the script should write them."""

    s3_output_path: str
    """A prefix in S3."""
    container_local_output_path: str | None = None
    """The directory in the container."""


class Session:
    """The account and region of a notebook. Without an AWS account, directories of this machine take the place of S3.

    Other arguments of the SDK's Session are accepted and have no effect: an engine makes its own clients.
    """

    def __init__(self, boto_session: Any = None, *, default_bucket: str | None = None, **_ignored: Any) -> None:
        self.boto_session = boto_session
        """The boto3 session that was given; None: the machine's own credentials count."""
        self._bucket = default_bucket
        self._aws: Aws | UsageError | None = None

    @property
    def boto_region_name(self) -> str | None:
        """The region; None: no region is known here."""
        if self.boto_session is not None:
            return str(self.boto_session.region_name)
        aws = self._connected()
        return aws.region if isinstance(aws, Aws) else None

    def default_bucket(self) -> str:
        """The bucket of this account and region, as SageMaker names it.

        Raises:  UsageError E40, E41, E01: no AWS account can be asked; use directories of this machine instead
        """
        if self._bucket is None:
            aws = self._required()
            self._bucket = f"sagemaker-{aws.region}-{_account(aws)}"
        return self._bucket

    def upload_data(self, path: str, bucket: str | None = None, key_prefix: str = "data", **_ignored: Any) -> str:
        """Upload a file or a directory and return its URL. Without an AWS account: the path itself, which is a channel on this machine too.

        Raises:  UsageError U43: there is nothing at the path; E5x: S3 refused it
        """
        source = Path(path).expanduser().absolute()
        if not source.exists():
            raise UsageError("U43", f"{path} is not there", saw=f"looked for {source}", next=f"ls {source.parent}")
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

    def _connected(self) -> Aws | UsageError:
        """The connection, or why there is none."""
        if self._aws is None:
            try:
                self._aws = connect(
                    surroundings().environ, {}, self.boto_session.region_name if self.boto_session else None
                )
            except UsageError as error:
                self._aws = error
        return self._aws

    def _required(self) -> Aws:
        aws = self._connected()
        if isinstance(aws, Aws):
            return aws
        raise UsageError(
            aws.code,
            f"there is no AWS account here, so there is no bucket: {aws.what}",
            saw=aws.saw,
            next="use directories of this machine: fit({'train': 'data'}), output_path='out'",
        )


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


def _account(aws: Aws) -> str:
    with asking("asking for the account", surroundings().environ):
        return str(aws.client("sts").get_caller_identity()["Account"])
