"""Answers SDKs that ask for the caller's identity before they create a job: STS's GetCallerIdentity, and a refusal of IAM's operations.

Both use AWS's older query protocol: a form in, XML out. This server has no accounts and no permissions.
"""

from urllib.parse import parse_qs
from xml.sax.saxutils import escape

ACCOUNT = "000000000000"
FORM = "application/x-www-form-urlencoded"
_STS = "https://sts.amazonaws.com/doc/2011-06-15/"
_IAM = "https://iam.amazonaws.com/doc/2010-05-08/"


def answer(body: bytes) -> tuple[int, str]:
    """Status and XML for a request of the query protocol.

    Holds:   any action but GetCallerIdentity is 403 AccessDenied, which the SageMaker SDK takes for "cannot be checked"
    """
    action = parse_qs(body.decode(errors="replace")).get("Action", [""])[0]
    if action == "GetCallerIdentity":
        arn = f"arn:aws:iam::{ACCOUNT}:user/local"
        result = f"<Arn>{arn}</Arn><UserId>LOCAL</UserId><Account>{ACCOUNT}</Account>"
        return 200, (
            f'<GetCallerIdentityResponse xmlns="{_STS}"><GetCallerIdentityResult>{result}</GetCallerIdentityResult>'
            "<ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
        )
    message = (
        f"{action or 'an action without a name'} is not served: paceline sagemaker-local has no permissions to check"
    )
    return 403, refused("AccessDenied", message)


def refused(code: str, message: str) -> str:
    """An error of the query protocol. Its codes lack the suffix that codes of the JSON protocol have."""
    return (
        f'<ErrorResponse xmlns="{_IAM}"><Error><Type>Sender</Type><Code>{code.removesuffix("Exception")}</Code>'
        f"<Message>{escape(message)}</Message></Error><RequestId>local</RequestId></ErrorResponse>"
    )
