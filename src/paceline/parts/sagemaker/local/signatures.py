"""Authenticates requests: they are signed with the server's key by AWS's Signature Version 4, and botocore's own signer checks them."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paceline.contract.local_key import AccessKey
from paceline.parts.sagemaker.local.errors import ApiError

MOST_SKEW_SECONDS = 15 * 60
_SERVICES = frozenset({"sagemaker", "logs", "sts", "iam"})
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/,\s]{1,128})/(?P<day>\d{8})/(?P<region>[a-z0-9-]{1,64})/(?P<service>[a-z]{1,32})/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[a-z0-9;-]{1,2048}),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
# These headers choose the operation and the time. If they were not signed, an intercepted request could be turned into another one.
_ALWAYS_SIGNED, _SIGNED_WHERE_PRESENT = frozenset({"host", "x-amz-date"}), ("content-type", "x-amz-")


@dataclass(frozen=True, slots=True)
class Claim:
    """The statements of a request's headers about its signature."""

    signature: str
    headers: Sequence[tuple[str, str]]
    time: str
    region: str
    service: str


class Signatures:
    """Checks signatures with one key. `claim` looks only at the headers, before the body is read. `check` looks at the whole request."""

    def __init__(self, key: AccessKey, clock: Callable[[], float] = time.time) -> None:
        self._key, self._clock = key, clock

    def claim(self, headers: Sequence[tuple[str, str]]) -> Claim:
        """`headers`: names in lower case, values unchanged.

        Raises:  ApiError: no signature, another key, too old or in the future, or a signature that leaves out a header that it must cover
        """
        given = [value for name, value in headers if name == "authorization"]
        if not given:
            raise _refused("MissingAuthenticationTokenException", "The request is not signed.")
        found = _AUTHORIZATION.fullmatch(given[0]) if len(given) == 1 else None
        if found is None or found["service"] not in _SERVICES:
            raise _refused(
                "IncompleteSignatureException", "The Authorization header is not one of Signature Version 4."
            )
        if not hmac.compare_digest(found["id"].encode(), self._key.id.encode()):
            raise _refused("UnrecognizedClientException", "The access key of the request is not this server's.")
        signed = found["headers"].split(";")
        needed = _ALWAYS_SIGNED | {name for name, _ in headers if name.startswith(_SIGNED_WHERE_PRESENT)}
        if missing := sorted(needed - set(signed)):
            raise _refused("IncompleteSignatureException", f"The signature leaves out {', '.join(missing)}.")
        chosen = [(name, value) for name, value in headers if name in signed]
        if len(chosen) != len(set(signed)):
            raise _refused(
                "IncompleteSignatureException", "A header that is signed is missing or there more than once."
            )
        return Claim(
            found["signature"], chosen, self._time(dict(chosen), found["day"]), found["region"], found["service"]
        )

    def check(self, claim: Claim, method: str, target: str, body: bytes) -> None:
        """`target`: the path and query of the request.

        Raises:  ApiError InvalidSignatureException: the key gives another signature for this request
        """
        stated = dict(claim.headers).get("x-amz-content-sha256")
        is_body = stated in (None, hashlib.sha256(body).hexdigest())
        if not is_body or not hmac.compare_digest(self._signature(claim, method, target, body), claim.signature):
            raise _refused(
                "InvalidSignatureException", "The signature is not what the server's key makes of this request."
            )

    def _time(self, headers: dict[str, str], day: str) -> str:
        text = headers["x-amz-date"]
        try:
            at = datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise _refused("IncompleteSignatureException", "X-Amz-Date is not a time.") from None
        if not text.startswith(day) or abs(self._clock() - at) > MOST_SKEW_SECONDS:
            raise _refused("InvalidSignatureException", f"Signature expired or not yet current: {text}.")
        return text

    def _signature(self, claim: Claim, method: str, target: str, body: bytes) -> str:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        # Over plain http, the signer always includes the hash of the body.
        url = f"http://{dict(claim.headers)['host']}{target}"
        request: Any = AWSRequest(method=method, url=url, headers=dict(claim.headers), data=body)
        request.context["timestamp"] = claim.time
        signer: Any = SigV4Auth(Credentials(self._key.id, self._key.secret), claim.service, claim.region)
        return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


def _refused(code: str, message: str) -> ApiError:
    hint = "Sign with the key in the credentials file that `paceline sagemaker-local` names as it starts (AWS_SHARED_CREDENTIALS_FILE)."
    return ApiError(code, f"{message} {hint}", status=403)
