"""What AWS answers, as recorded, in our four parts; and what the engine does around a refusal, on a way to AWS that is made up."""

import io
import json

import pytest
from submissions import a_submission

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import nobody_asks
from paceline.parts.sagemaker.engine.aws import Aws, asking, refusal
from paceline.parts.sagemaker.engine.engine import SagemakerEngine

botocore = pytest.importorskip("botocore.exceptions")
OPTIONS = {
    "image": "i",
    "role": "arn:aws:iam::123456789012:role/train",
    "instance_type": "ml.m5.large",
    "bucket": "jobs",
}
JOB = a_submission(run_id="r-7f3a91", name="digits", program=Program(kind=ProgramKind.MODULE, target="train"))
HANDLE = {"job_name": "digits-r-7f3a91", "region": "us-east-1", "run_id": "r-7f3a91"}


def said(code, message="", operation="CreateTrainingJob"):
    return botocore.ClientError({"Error": {"Code": code, "Message": message}}, operation)


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (botocore.NoCredentialsError(), "E52", "no AWS credentials"),
        (botocore.ProfileNotFound(profile="work"), "E52", "no AWS credentials"),
        (botocore.TokenRetrievalError(provider="sso", error_msg="expired"), "E52", "no AWS credentials"),
        (said("ExpiredTokenException", "The security token included in the request is expired"), "E52", "have expired"),
        (said("ExpiredToken", "The provided token has expired.", "PutObject"), "E52", "have expired"),
        (
            said("UnrecognizedClientException", "The security token included in the request is invalid."),
            "E52",
            "does not accept",
        ),
        (said("InvalidAccessKeyId", "does not exist in our records", "PutObject"), "E52", "does not accept"),
        (botocore.NoRegionError(), "E10", "cannot be reached"),
        (botocore.EndpointConnectionError(endpoint_url="https://x"), "E10", "cannot be reached"),
        (said("ThrottlingException", "Rate exceeded"), "E10", "no more requests"),
        (said("NoSuchBucket", "The specified bucket does not exist", "PutObject"), "E51", "there is no bucket jobs"),
        (said("AccessDenied", "Access Denied", "PutObject"), "E52", "is closed to this user"),
        (said("PermanentRedirect", "must be addressed using", "PutObject"), "E52", "in another region"),
        (
            said("AccessDeniedException", "User: arn:aws:iam::1:user/x is not authorized"),
            "E34",
            "may not call CreateTrainingJob",
        ),
        (
            said("ResourceLimitExceeded", "The account-level service limit 'ml.p4d.24xlarge' is 0"),
            "E34",
            "more than this account",
        ),
        (said("ResourceInUse", "Job name must be unique"), "E34", "already"),
        (
            said("ValidationException", "Requested resource not found.", "DescribeTrainingJob"),
            "E34",
            "does not know jobs",
        ),
        (said("ValidationException", "Could not assume role arn:aws:iam::1:role/x"), "E34", "refused it"),
        (botocore.ParamValidationError(report="Missing required parameter"), "E34", "not one that AWS knows"),
    ],
)
def test_an_answer_of_aws_says_which_and_what_to_do(error, code, what):
    found, said_what, saw, step = refusal(error, "creating the job", "jobs")
    assert found == code and what in said_what and saw and step


def test_no_credential_is_ever_in_a_text():
    environ = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SESSION_TOKEN": "IQoJb3JpZ2lu",
    }
    message = "AKIAEXAMPLE with wJalrXUtnFEMI and IQoJb3JpZ2lu does not match"
    with pytest.raises(UsageError) as refused, asking("asking", environ):
        raise said("SignatureDoesNotMatch", message)
    text = " ".join((refused.value.what, refused.value.saw, refused.value.next))
    assert not any(secret in text for secret in environ.values()) and "*** with *** and ***" in refused.value.saw


class Services:
    """S3, SageMaker, STS and the logs, each as far as the engine asks them; `answers`: name of a call -> what it gives or raises."""

    def __init__(self, **answers):
        self.answers, self.calls = answers, []

    class exceptions:
        NoSuchKey = ResourceNotFoundException = KeyError

    def __getattr__(self, name):
        def call(*argv, Callback=None, **fields):
            if Callback is not None:
                Callback(len(argv[0].read()))
            self.calls.append((name, fields or argv[1:]))
            answer = self.answers.get(name, {})
            if isinstance(answer, BaseException):
                raise answer
            return answer.pop(0) if isinstance(answer, list) else answer

        return call

    def names(self):
        return [name for name, _ in self.calls]


def engine_on(services, **options):
    return SagemakerEngine(
        {}, {**OPTIONS, **options}, lambda environ, options, region: Aws("us-east-1", lambda name: services)
    )


def submitted(services, tmp_path, job=JOB, sent=nobody_asks, **options):
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(b"")
    made = engine_on(services, wheel=str(wheel), **options)
    run_dir = tmp_path / "place"
    run_dir.mkdir()
    return made.submit(made.plan(job), run_dir, sent), run_dir


def test_the_upload_says_how_far_it_is(tmp_path):
    told = []
    submitted(Services(create_training_job={"TrainingJobArn": "arn"}), tmp_path, sent=lambda *bytes: told.append(bytes))
    assert [total for _, total in told] == [told[-1][0]] * 2 and 0 < told[0][0] < told[1][0]


def test_a_job_is_uploaded_then_created_and_nothing_of_it_stays_here(tmp_path):
    services = Services(create_training_job={"TrainingJobArn": "arn"})
    job = a_submission(run_id="r-7f3a91", name="digits", program=JOB.program, environment={"TOKEN": "hush"})
    handle, run_dir = submitted(services, tmp_path, job)
    assert services.names() == ["upload_fileobj", "upload_fileobj", "create_training_job"]
    source = "paceline/digits-r-7f3a91/source"
    assert {argv for _, argv in services.calls[:2]} == {
        ("jobs", f"{source}/sourcedir.tar.gz"),
        ("jobs", f"{source}/paceline_entry.py"),
    }
    assert services.calls[2][1]["Environment"] == {"TOKEN": "hush"} and "hush" not in json.dumps(handle)
    assert list(run_dir.iterdir()) == []


def test_the_account_is_asked_for_only_where_a_name_needs_it(tmp_path):
    services = Services(create_training_job={"TrainingJobArn": "arn"}, get_caller_identity={"Account": "123456789012"})
    submitted(services, tmp_path, role="train")
    assert services.names()[0] == "get_caller_identity"
    assert services.calls[-1][1]["RoleArn"] == "arn:aws:iam::123456789012:role/train"


def test_a_refused_creation_takes_the_upload_back(tmp_path):
    services = Services(
        create_training_job=said("ValidationException", "no"), delete_object=said("AccessDenied", "", "DeleteObject")
    )
    with pytest.raises(UsageError) as refused:
        submitted(services, tmp_path)
    assert refused.value.code == "E34" and services.names() == [
        *("upload_fileobj", "upload_fileobj"),
        "create_training_job",
        *("delete_object", "delete_object"),
    ]


def test_a_refused_upload_creates_nothing(tmp_path):
    services = Services(upload_fileobj=said("NoSuchBucket", "", "PutObject"))
    with pytest.raises(UsageError) as refused:
        submitted(services, tmp_path)
    assert refused.value.code == "E51" and services.names() == ["upload_fileobj"]


def test_a_job_that_has_ended_or_ends_meanwhile_is_left_alone(tmp_path):
    services = Services(describe_training_job={"TrainingJobStatus": "Completed"})
    engine_on(services).cancel(HANDLE, tmp_path)
    assert services.names() == ["describe_training_job"]
    looks = [{"TrainingJobStatus": "InProgress"}, {"TrainingJobStatus": "Failed"}]
    services = Services(describe_training_job=looks, stop_training_job=said("ValidationException", "is Failed"))
    engine_on(services).cancel(HANDLE, tmp_path, now=True)
    assert services.names()[-1] == "describe_training_job"


def test_a_recording_that_cannot_be_fetched_is_said_beside_the_end_and_tried_again(tmp_path):
    described = {
        "TrainingJobName": "digits-r-7f3a91",
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "OutputDataConfig": {"S3OutputPath": "s3://jobs/paceline"},
    }
    services = Services(describe_training_job=described, get_object=said("AccessDenied", "no", "GetObject"))
    seen = engine_on(services).observe(HANDLE, tmp_path)
    assert seen.exit_code == 0 and "bucket jobs is closed" in seen.reason
    services.answers["get_object"] = KeyError("no output at all")
    assert engine_on(services).observe(HANDLE, tmp_path).reason == ""
    asked = services.names().count("get_object")
    engine_on(services).observe(HANDLE, tmp_path)
    assert services.names().count("get_object") == asked, "what is not there is not looked for again"


def test_half_an_archive_is_no_recording(tmp_path):
    described = {
        "TrainingJobName": "n",
        "TrainingJobStatus": "Completed",
        "OutputDataConfig": {"S3OutputPath": "s3://jobs/p/"},
    }
    services = Services(describe_training_job=described, get_object={"Body": io.BytesIO(b"\x1f\x8b\x08cut")})
    seen = engine_on(services).observe(HANDLE, tmp_path)
    assert "could not be fetched" in seen.reason and not list(tmp_path.iterdir())
