"""Who has the key may ask; a request that differs from what was signed, or was signed too long ago, is refused."""

import time
from types import SimpleNamespace

import pytest

from paceline.contract.local_key import AccessKey, new_access_key
from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.signatures import MOST_SKEW_SECONDS, Signatures

pytest.importorskip("botocore", reason="pip install 'paceline[sagemaker]'")

KEY = new_access_key()
BODY = b'{"TrainingJobName": "a"}'
TARGET = "SageMaker.DescribeTrainingJob"


def signed(key=KEY, body=BODY, service="sagemaker", headers=(), url="http://127.0.0.1:8090/"):
    """The headers of a request as a client has signed them now, in small letters."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    given = {"X-Amz-Target": TARGET, "Content-Type": "application/x-amz-json-1.1", **dict(headers)}
    request = AWSRequest(method="POST", url=url, headers=given, data=body)
    SigV4Auth(Credentials(key.id, key.secret), service, "us-east-1").add_auth(request)
    made = {name.lower(): value for name, value in request.headers.items()}
    return {"host": url.split("/")[2], **made}


def judged(headers, body=BODY, *, later=0.0, method="POST", target="/", key=KEY):
    """None where the request is taken, else the code of the refusal."""
    signatures = Signatures(key, clock=lambda: time.time() + later)
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    try:
        signatures.check(signatures.claim(pairs), method, target, body)
    except ApiError as refusal:
        assert refusal.status == 403 and "AWS_SHARED_CREDENTIALS_FILE" in refusal.message
        assert key.secret not in refusal.message and key.id not in refusal.message
        return refusal.code
    return None


@pytest.mark.parametrize("service", ["sagemaker", "logs", "sts", "iam"])
def test_a_request_signed_with_the_key_is_taken(service):
    assert judged(signed(service=service)) is None
    assert judged(signed(body=b"", service=service), b"") is None


def test_headers_that_are_not_signed_may_be_added_on_the_way():
    assert judged({**signed(), "user-agent": "x", "accept-encoding": "gzip", "content-length": "24"}) is None


def test_what_is_not_signed_at_all_is_refused():
    headers = signed()
    del headers["authorization"]
    assert judged(headers) == "MissingAuthenticationTokenException"


def test_another_key_is_refused_and_so_is_another_secret():
    assert judged(signed(new_access_key())) == "UnrecognizedClientException"
    assert judged(signed(AccessKey(KEY.id, "guessed"))) == "InvalidSignatureException"


@pytest.mark.parametrize("later", [MOST_SKEW_SECONDS + 2, -MOST_SKEW_SECONDS - 2, 86400.0])
def test_an_old_request_is_not_taken_again(later):
    headers = signed()
    assert judged(headers, later=later * 0.9 if abs(later) < 1000 else 0) is None
    assert judged(headers, later=later) == "InvalidSignatureException"


def test_an_old_request_with_a_new_time_has_the_wrong_signature():
    headers = signed()
    new = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + 60))
    assert judged({**headers, "x-amz-date": new}) == "InvalidSignatureException"


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-amz-target", "SageMaker.CreateTrainingJob"), ("host", "other"), ("content-type", "application/x")],
)
def test_a_signed_request_is_good_for_nothing_else(name, value):
    assert judged({**signed(), name: value}) == "InvalidSignatureException"


def test_the_body_the_method_and_the_query_are_signed_too():
    headers = signed()
    assert judged(headers, BODY + b" ") == "InvalidSignatureException"
    assert judged(headers, method="GET") == "InvalidSignatureException"
    assert judged(headers, target="/?a=b") == "InvalidSignatureException"


@pytest.mark.parametrize("stated", ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "0" * 64])
def test_a_body_is_never_left_out_of_the_signature(stated):
    headers = signed(headers=[("X-Amz-Content-SHA256", stated)])
    assert judged(headers) == "InvalidSignatureException"


def test_what_decides_the_operation_is_part_of_the_signature():
    headers = signed()
    for name in ("x-amz-target", "content-type", "x-amz-date", "host"):
        less = headers["authorization"].replace(f"{name};", "").replace(f";{name},", ",")
        assert judged({**headers, "authorization": less}) == "IncompleteSignatureException", name
    assert judged({**headers, "x-amz-extra": "1"}) == "IncompleteSignatureException"


def test_no_header_counts_twice():
    pairs = list(signed().items())
    assert judged([*pairs, ("x-amz-target", "SageMaker.CreateTrainingJob")]) == "IncompleteSignatureException"
    assert judged([*pairs, ("authorization", dict(pairs)["authorization"])]) == "IncompleteSignatureException"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer x",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request, SignedHeaders=;, Signature=",
        "x" * 60_000,
    ],
)
def test_what_is_no_signature_is_refused(text):
    assert judged({**signed(), "authorization": text}) == "IncompleteSignatureException"


@pytest.mark.parametrize("text", ["", "now", "20269999T999999Z", "2026-11-22T00:00:00Z"])
def test_what_is_no_time_is_refused(text):
    assert judged({**signed(), "x-amz-date": text}) == "IncompleteSignatureException"


def test_a_client_of_boto3_is_taken_as_it_is():
    boto3 = pytest.importorskip("boto3")
    client = boto3.client("sagemaker", endpoint_url="http://127.0.0.1:8090", region_name="eu-west-1",
                          aws_access_key_id=KEY.id, aws_secret_access_key=KEY.secret)  # fmt: skip
    sent = {}

    def keep(request, **_):
        sent.update(method=request.method, body=request.body, headers=dict(request.headers))
        return SimpleNamespace(status_code=200, headers={}, content=b"{}", text="{}")

    client.meta.events.register("before-send.sagemaker", keep)
    client.list_training_jobs()
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in sent["headers"].items()
    }
    assert judged({"host": "127.0.0.1:8090", **headers}, sent["body"]) is None
