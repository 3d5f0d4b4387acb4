"""Connects to AWS through boto3, and translates refusals of AWS and network errors into errors in four parts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.contract.local_key import access_key_of
from paceline.errors import UsageError
from paceline.parts.engines.base import missing_extra

# Attempts of one call, including the first. botocore waits longer each time, and slows down by itself if it is throttled.
_TRIES = 5
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ACCESS_KEY_ID")
_EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"))
_NOT_ACCEPTED = frozenset(
    ("InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException",
     "AuthFailure", "InvalidToken", "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException")
)  # fmt: skip
_NO_CREDENTIALS = frozenset(
    ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError", "UnauthorizedSSOTokenError",
     "SSOTokenLoadError", "SSOError", "ProfileNotFound", "RefreshWithMFAUnsupportedError", "NoAuthTokenError", "LoginError")
)  # fmt: skip
_NO_WAY = frozenset(
    ("NoRegionError", "InvalidRegionError", "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError",
     "ConnectionError", "HTTPClientError", "ProxyConnectionError", "SSLError")
)  # fmt: skip
_SLOWED = frozenset(
    ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown")
)
_DENIED = frozenset(
    ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "Forbidden", "403", "AllAccessDisabled")
)
_NO_BUCKET = frozenset(("NoSuchBucket", "404", "InvalidBucketName"))
_OTHER_REGION = frozenset(
    ("PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
)
_OF_S3 = frozenset(
    (
        "PutObject",
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
        "GetObject",
        "ListObjectsV2",
        "DeleteObject",
    )
)


@dataclass(frozen=True, slots=True)
class Aws:
    """Access to one account in one region."""

    region: str
    """Name of the region."""
    client: Callable[[str], Any]
    """Name of a service -> boto3's client for it."""


def connect(environ: Mapping[str, str], options: Mapping[str, str], region: str | None = None) -> Aws:
    """Access to AWS, without a request. Credentials are found in the same way as by every AWS tool (variables, profile, machine's role).

    Raises:  UsageError E01: boto3 is not installed; E52: no credentials; E10: no region
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise missing_extra("sagemaker", "sagemaker", error) from error
    region = region or options.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    with asking("finding the credentials", environ):
        session = boto3.Session(profile_name=options.get("profile"), region_name=region)
        if session.get_credentials() is None:
            raise _no_credentials("no variable, profile or role of this machine gives any")
    if not session.region_name:
        raise UsageError(
            "E10",
            "no AWS region was given",
            saw="no --option region, AWS_REGION, AWS_DEFAULT_REGION or region in the profile",
            next="paceline submit --engine sagemaker --option region=us-east-1 ...",
        )
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": _TRIES},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
    )
    theirs = {"sagemaker": "endpoint_url", "logs": "endpoint_url", "s3": "s3_endpoint_url", "sts": "s3_endpoint_url"}

    def client(service: str) -> Any:
        endpoint = options.get(theirs.get(service, ""))
        # The user's own server on this machine has its own key. AWS never gets that key, and the server never gets the AWS key.
        key = access_key_of(endpoint) if endpoint and theirs.get(service) == "endpoint_url" else None
        own = {"aws_access_key_id": key.id, "aws_secret_access_key": key.secret} if key is not None else {}
        return session.client(service, config=config, endpoint_url=endpoint, **own)

    return Aws(session.region_name, client)


@contextmanager
def asking(doing: str, environ: Mapping[str, str], subject: str = "") -> Iterator[None]:
    """Turn boto3's exceptions into errors in four parts. `subject`: the bucket or the job of the request.

    Raises:  UsageError E10, E34, E51, E52
    """
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error) as error:
        code, what, saw, step = refusal(error, doing, subject)
        raise UsageError(code, what, saw=_hidden(saw, environ), next=step) from error


def refusal(error: BaseException, doing: str, subject: str) -> tuple[str, str, str, str]:
    """Code, what happened, what was seen, what to do. Pure: errors are recognized by their names."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "ClientError" in kinds:
        return _refused_by_aws(error, doing, subject)
    saw = str(error)
    if kinds & _NO_CREDENTIALS:
        found = _no_credentials(saw)
        return found.code, found.what, found.saw, found.next
    if kinds & _NO_WAY:
        return (
            "E10",
            f"{doing}: AWS cannot be reached",
            saw,
            "check the network, --option region=NAME and --option endpoint_url=URL",
        )
    if "ParamValidationError" in kinds:
        return "E34", f"{doing}: the request is not one that AWS knows", saw, "paceline submit --dry-run ..."
    return "E34", f"{doing} failed", f"{type(error).__name__}: {saw}", "paceline submit --dry-run ..."


def _refused_by_aws(error: Any, doing: str, subject: str) -> tuple[str, str, str, str]:
    answer = error.response.get("Error", {})
    code, operation = str(answer.get("Code", "")), str(getattr(error, "operation_name", ""))
    saw = f"{operation}: {code}: {answer.get('Message', '')}".rstrip(": ")
    if code in _EXPIRED:
        return (
            "E52",
            f"{doing}: the AWS credentials have expired",
            saw,
            "aws sso login, or fetch new ones the way you got these",
        )
    if code in _NOT_ACCEPTED:
        return "E52", f"{doing}: AWS does not accept these credentials", saw, "aws sts get-caller-identity"
    if code in _SLOWED:
        return "E10", f"{doing}: AWS takes no more requests for now", saw, "wait a minute, then the same again"
    if operation in _OF_S3:
        return _refused_by_s3(code, saw, doing, subject)
    if code in _DENIED:
        return (
            "E34",
            f"{doing}: this user may not call {operation}",
            saw,
            f"allow sagemaker:{operation} and iam:PassRole to it in IAM",
        )
    if code == "ResourceLimitExceeded":
        step = "aws service-quotas list-service-quotas --service-code sagemaker"
        return "E34", f"{doing}: more than this account may use at once", saw, step
    if code == "ResourceInUse":
        return (
            "E34",
            f"{doing}: there is a job {subject} already",
            saw,
            "submit it again: each submission has a name of its own",
        )
    if code == "ResourceNotFound" or "not found" in str(answer.get("Message", "")).lower():
        return (
            "E34",
            f"{doing}: SageMaker does not know {subject or 'it'}",
            saw,
            "check --option region=NAME and --option profile=NAME",
        )
    return "E34", f"{doing}: SageMaker refused it", saw, "paceline submit --dry-run ... shows the whole request"


def _refused_by_s3(code: str, saw: str, doing: str, bucket: str) -> tuple[str, str, str, str]:
    if code in _NO_BUCKET:
        return "E51", f"{doing}: there is no bucket {bucket}", saw, f"aws s3 mb s3://{bucket}, or --option bucket=NAME"
    if code in _DENIED:
        return (
            "E52",
            f"{doing}: bucket {bucket} is closed to this user",
            saw,
            f"allow s3:PutObject and s3:GetObject on {bucket} in IAM",
        )
    if code in _OTHER_REGION:
        return (
            "E52",
            f"{doing}: bucket {bucket} is in another region",
            saw,
            f"aws s3api get-bucket-location --bucket {bucket}",
        )
    return "E52", f"{doing}: S3 refused it for {bucket}", saw, f"aws s3 ls s3://{bucket}"


def _no_credentials(saw: str) -> UsageError:
    step = "export AWS_PROFILE=NAME, or --option profile=NAME; aws configure makes one"
    return UsageError("E52", "no AWS credentials were found", saw=saw, next=step)


def _hidden(text: str, environ: Mapping[str, str]) -> str:
    for name in _SECRETS:
        if secret := environ.get(name):
            text = text.replace(secret, "***")
    return text
