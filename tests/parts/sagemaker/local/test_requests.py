"""What a request must be: its shape by botocore's model, and what SageMaker asks for beyond it."""

import pytest

from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.service_model import LOCAL_TYPE, _pattern, checked, operation_of, service, written
from paceline.parts.sagemaker.local.validation import check, groups, max_run_seconds

pytest.importorskip("botocore", reason="pip install 'paceline[sagemaker]'")

ROLE = "arn:aws:iam::123456789012:role/training"
SERVED = {"sagemaker": frozenset({"CreateTrainingJob"}), "logs": frozenset({"GetLogEvents"})}


def create(name="digits-1", **changes):
    """A CreateTrainingJob that is accepted; `changes` replace its members, None takes one away."""
    request = {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "HyperParameters": {
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"s3://b/sourcedir.tar.gz"',
        },
        "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **changes,
    }
    return {key: value for key, value in request.items() if value is not None}


def channel(name="train", url="s3://b/train", **source):
    """One channel of InputDataConfig."""
    return {
        "ChannelName": name,
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": url, **source}},
    }


def shape(request, operation="CreateTrainingJob", service="sagemaker"):
    return checked(service, operation, request)


def refusal_of(request, most_hosts=16):
    with pytest.raises(ApiError) as refused:
        check(shape(request), most_hosts=most_hosts)
    return refused.value


def test_a_good_request_is_taken():
    check(shape(create(InputDataConfig=[channel()])), most_hosts=16)


def test_a_target_names_a_service_and_an_operation():
    assert operation_of("SageMaker.CreateTrainingJob", SERVED) == ("sagemaker", "CreateTrainingJob")
    assert operation_of("Logs_20140328.GetLogEvents", SERVED) == ("logs", "GetLogEvents")


@pytest.mark.parametrize("target", ["SageMaker.CreateEndpoint", "DynamoDB.GetItem", "", "GetLogEvents"])
def test_what_is_not_served_is_refused_with_a_list_of_what_is(target):
    with pytest.raises(ApiError) as refused:
        operation_of(target, SERVED)
    assert refused.value.code == "UnknownOperationException"
    assert "CreateTrainingJob, GetLogEvents" in refused.value.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"TrainingJobName": "n" * 64}, "at 'trainingJobName' failed to satisfy constraint: Member must have length less than"),
        ({"TrainingJobName": "no_underscore"}, "Member must satisfy regular expression pattern"),
        ({"TrainingJobName": "-x"}, "Member must satisfy regular expression pattern"),
        ({"RoleArn": "arn:aws:iam::1:role/short"}, "at 'roleArn'"),
        ({"RoleArn": None}, "Value null at 'roleArn' failed to satisfy constraint: Member must not be null"),
        ({"HyperParameters": {str(n): "1" for n in range(101)}}, "Member must have length less than or equal to 100"),
        ({"Environment": {f"A{n}": "1" for n in range(101)}}, "at 'environment'"),
        ({"InputDataConfig": [channel(f"c{n}") for n in range(21)]}, "Member must have length less than or equal to 20"),
        ({"OutputDataConfig": {"S3OutputPath": "ftp://b"}}, "at 'outputDataConfig.s3OutputPath'"),
        ({"ResourceConfig": {"InstanceType": "ml.m5.huge", "InstanceCount": 1}}, "Member must satisfy enum value set: [ml."),
        ({"ResourceConfig": {"InstanceGroups": [
            {"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": f"g{n}"} for n in range(6)
        ]}}, "Member must have length less than or equal to 5"),
        ({"AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File", "MetricDefinitions": [
            {"Name": "m", "Regex": "x"} for _ in range(41)
        ]}}, "Member must have length less than or equal to 40"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "Member must have value greater than or equal to 1"),
        ({"TrainingJobNam": "typo"}, 'Unknown parameter in input: "TrainingJobNam"'),
    ],
)  # fmt: skip
def test_each_limit_of_the_model_is_refused_in_the_services_words(changes, said):
    with pytest.raises(ApiError) as refused:
        shape(create(**changes))
    assert refused.value.code == "ValidationException"
    assert " detected: " in refused.value.message
    assert said in refused.value.message


def test_several_missed_constraints_are_counted_and_all_told():
    with pytest.raises(ApiError) as refused:
        shape(create(TrainingJobName="", StoppingCondition={"MaxRuntimeInSeconds": 0}))
    assert refused.value.message.startswith("3 validation errors detected: ")


def test_a_value_of_another_type_is_a_serialization_error():
    with pytest.raises(ApiError) as refused:
        shape(create(StoppingCondition={"MaxRuntimeInSeconds": "60"}))
    assert refused.value.code == "SerializationException"


def test_every_pattern_of_what_is_served_can_be_read():
    def patterns(shape, seen):
        if shape.name not in seen:
            seen.add(shape.name)
            yield shape.metadata.get("pattern")
            for name in ("member", "key", "value"):
                if hasattr(shape, name):
                    yield from patterns(getattr(shape, name), seen)
            for member in getattr(shape, "members", {}).values():
                yield from patterns(member, seen)

    for name in ("CreateTrainingJob", "ListTrainingJobs", "AddTags", "ListTags", "DeleteTags"):
        found = set(patterns(service("sagemaker").operation_model(name).input_shape, set())) - {None}
        assert all(_pattern(text) for text in found) and found


def test_a_tag_may_be_of_any_script_and_not_of_any_sign():
    shape(create(Tags=[{"Key": "größe 1", "Value": "値"}]))
    with pytest.raises(ApiError, match=r"at 'tags\.1\.member\.key'"):
        shape(create(Tags=[{"Key": "a;b", "Value": ""}]))


def test_values_of_maps_are_not_repeated_in_a_refusal():
    with pytest.raises(ApiError) as refused:
        shape(create(Environment={f"A{n}": "hunter2" for n in range(101)}))
    assert "hunter2" not in refused.value.message


def test_file_urls_and_the_local_type_are_taken_besides():
    request = create(
        OutputDataConfig={"S3OutputPath": "file:///out"},
        ResourceConfig={"InstanceType": LOCAL_TYPE, "InstanceCount": 1, "VolumeSizeInGB": 1},
        InputDataConfig=[channel(url="file:///data")],
    )
    check(shape(request), most_hosts=16)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ResourceConfig": None}, "ResourceConfig is required"),
        ({"HyperParameters": None}, "give ContainerEntrypoint, or the hyperparameters sagemaker_program"),
        ({"AlgorithmSpecification": {"TrainingInputMode": "File"}}, "exactly one of TrainingImage and AlgorithmName"),
        ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds must be specified"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90}}, "EnableManagedSpotTraining is set to"),
        ({"EnableManagedSpotTraining": True, "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59}},
         "greater than or equal to MaxRuntimeInSeconds"),
        ({"InputDataConfig": [channel(), channel()]}, "Channel names must be unique"),
        ({"InputDataConfig": [channel(InstanceGroupNames=["other"])]}, "instance group other is not in ResourceConfig"),
        ({"InputDataConfig": [channel(S3DataType="AugmentedManifestFile")]}, "AugmentedManifestFile is not served"),
        ({"CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/../x"}}, "is not below /opt/ml"),
        ({"AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File",
                                     "MetricDefinitions": [{"Name": "m", "Regex": "("}]}}, "Invalid regular expression"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_cannot_run_here_is_refused(changes, said):
    refused = refusal_of(create(**changes))
    assert refused.code == "ValidationException"
    assert said in refused.message


def test_more_hosts_than_the_server_starts_are_a_limit_of_the_account():
    refused = refusal_of(create(), most_hosts=1)
    assert refused.code == "ResourceLimitExceeded"
    assert "is 1 Instances" in refused.message and "request delta of 2 Instances" in refused.message


def test_groups_add_up_to_the_hosts():
    two = [{"InstanceType": "local", "InstanceCount": n, "InstanceGroupName": f"g{n}"} for n in (1, 2)]
    assert groups(create(ResourceConfig={"InstanceGroups": two})) == (("g1", "local", 1), ("g2", "local", 2))
    assert groups(create()) == (("homogeneousCluster", "ml.m5.xlarge", 2),)


def test_without_a_stopping_condition_a_job_has_a_day():
    assert max_run_seconds(create(StoppingCondition=None)) == 86_400


def test_answers_have_the_models_members_alone_and_nothing_that_is_none():
    answer = {
        "TrainingJobSummaries": [{"TrainingJobName": "a", "CreationTime": 1.5, "TrainingEndTime": None}],
        "NextToken": None,
    }
    assert written("sagemaker", "ListTrainingJobs", answer) == {
        "TrainingJobSummaries": [{"TrainingJobName": "a", "CreationTime": 1.5}]
    }
    with pytest.raises(KeyError):
        written("sagemaker", "ListTrainingJobs", {"Jobs": []})
