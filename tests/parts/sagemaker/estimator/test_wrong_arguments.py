"""Each wrong argument gets its four-part error, and nothing has been packed, written or started by then."""

import re

import pytest

from paceline.errors import UsageError
from paceline.estimator import InstanceGroup
from paceline.rules import pages

GROUP = InstanceGroup("workers", "ml.p4d.24xlarge", 2)
ML = {"instance_type": "ml.g5.12xlarge", "role": "arn:aws:iam::1:role/x", "image_uri": "image"}


class NoText:
    """A value of a type that no argument takes, which is always shown in the same way."""

    def __repr__(self) -> str:
        return "NoText()"


NO_TEXT = NoText()
WRONG = [
    ("U31", {"keep_alive_period_in_seconds": -1}),
    ("U31", {"keep_alive_period_in_seconds": 60, "use_spot_instances": True}),
    ("U31", {"volume_size": "big"}),
    ("U31", {"container_log_level": "INFO"}),
    ("U32", {"compiler_config": NO_TEXT}),
    ("U32", {"training_recipe": "llama"}),
    ("U32", {"container_entry_point": ["python"]}),
    ("U31", {"instance_count": None}),
    ("U31", {"instance_count": 0}),
    ("U31", {"instance_count": True}),
    ("U31", {"instance_count": "2"}),
    ("U31", {"instance_type": None, "engine": None}),
    ("U31", {"instance_type": "local-gpu"}),
    ("U31", {"instance_type": "p4d.24xlarge"}),
    ("U31", {"instance_type": "ml.p4d.24xlrge"}),
    ("U31", {"instance_type": "local", "engine": "sagemaker"}),
    ("U31", {"instance_groups": [GROUP], "instance_count": 2}),
    ("U31", {"instance_groups": []}),
    ("U31", {"instance_groups": [GROUP, GROUP]}),
    ("U31", {"instance_groups": [InstanceGroup(str(number), "ml.p4d.24xlarge", 1) for number in range(6)]}),
    ("U31", {"instance_groups": [InstanceGroup("a", "p4d.24xlarge", 1)]}),
    ("U31", {"instance_groups": [GROUP], "engine": "ssh"}),
    ("U31", {"processes_per_instance": 0}),
    ("U31", {"processes_per_instance": 2, "distribution": {"mpi": {"enabled": True, "processes_per_host": 4}}}),
    ("E01", {"engine": "slrum"}),
    ("E01", {"engine_options": ["hosts"]}),
    ("U07", {"hyperparameters": [("lr", 1)]}),
    ("U07", {"hyperparameters": {str(number): 1 for number in range(101)}}),
    ("U07", {"hyperparameters": {"k" * 257: 1}}),
    ("U07", {"hyperparameters": {"a=b": 1}}),
    ("U07", {"hyperparameters": {"": 1}}),
    ("U07", {"hyperparameters": {7: 1}}),
    ("U07", {"hyperparameters": {"sagemaker_program": "x"}}),
    ("U07", {"hyperparameters": {"model": NO_TEXT}}),
    ("U07", {"hyperparameters": {"text": "a\0b"}}),
    ("U31", {"environment": ["A=1"]}),
    ("U31", {"environment": {"A": 1}}),
    ("U31", {"environment": {"A-B": "1"}}),
    ("U31", {"environment": {"A": "x" * 513}}),
    ("U31", {"environment": {f"A{number}": "1" for number in range(101)}}),
    ("U31", {"environment": {"RANK": "0"}}),
    ("U31", {"metric_definitions": {"Name": "loss", "Regex": "x"}}),
    ("U31", {"metric_definitions": [{"Name": "loss"}]}),
    ("U31", {"metric_definitions": [{"Name": "loss", "Regex": "([0-9"}]}),
    ("U31", {"metric_definitions": [{"Name": "loss", "Regex": "loss"}]}),
    ("U31", {"metric_definitions": [{"Name": "loss", "Regex": f"({'x' * 500})"}]}),
    ("U31", {"metric_definitions": [{"Name": str(number), "Regex": "(x)"} for number in range(41)]}),
    ("U31", {"base_job_name": "my_job"}),
    ("U31", {"max_run": "12h"}),
    ("U31", {"max_run": 0}),
    ("U31", {"max_run": 29 * 86400}),
    ("U31", {"max_wait": 100}),
    ("U31", {"max_wait": 100, "max_run": 200, "use_spot_instances": True}),
    ("U31", {"max_retry_attempts": 31}),
    ("U31", {"max_retry_attempts": True}),
    ("U31", {"subnets": ["subnet-1"]}),
    ("U31", {"security_group_ids": ["sg-1"]}),
    ("U31", {"subnets": "subnet-1", "security_group_ids": ["sg-1"]}),
    ("U31", {"subnets": ["s"] * 17, "security_group_ids": ["sg-1"]}),
    ("U31", {"subnets": ["s"], "security_group_ids": ["sg-1"] * 6}),
    ("U06", {"input_mode": "Fast"}),
    ("U31", {"checkpoint_local_path": "/opt/ml/checkpoints"}),
    ("U31", {"checkpoint_s3_uri": "s3://b/c", "checkpoint_local_path": "/tmp/c"}),
    ("U31", {"output_path": 7}),
    ("U31", {**ML, "output_path": "results"}),
    ("U02", {"entry_point": None}),
    ("U02", {"entry_point": "train"}),
    ("U02", {"entry_point": "run.sh", "distribution": {"torch_distributed": {"enabled": True}}}),
    ("U31", {"framework_version": 2.1}),
    ("U31", {"framework_version": "latest"}),
    ("U31", {"py_version": "3.10"}),
    ("U31", {"py_version": "py2"}),
]
WRONG_AT_FIT = [
    ("U02", {"entry_point": "trian.py"}, {}),
    ("U02", {"source_dir": "sources"}, {}),
    ("U02", {"source_dir": "s3://bucket/code.tar.gz"}, {}),
    ("U02", {"entry_point": "../alone.py"}, {}),
    ("U02", {"dependencies": ["libs"]}, {}),
    ("U02", {"dependencies": "src"}, {}),
    ("U02", {"git_config": {"repository": "https://x"}}, {}),
    ("U02", {"git_config": {"branch": "main"}}, {}),
    ("U02", {"git_config": {"repo": "https://x", "tokn": "secret"}}, {}),
    ("U02", {"git_config": {"repo": "git@host:x", "token": "secret"}}, {}),
    ("U02", {"git_config": {"repo": "--upload-pack=x"}}, {}),
    ("U31", {"instance_type": "ml.g5.12xlarge"}, {}),
    ("U31", {}, {"job_name": "my job"}),
    ("U31", {}, {"job_name": "x" * 64}),
    ("U31", {}, {"logs": "Everything"}),
    ("U31", {}, {"experiment_config": "x"}),
    ("U06", {}, {"inputs": 7}),
    ("U06", {}, {"inputs": {f"c{number}": "s3://b/p" for number in range(21)}}),
    ("U06", {}, {"inputs": {"a/b": "s3://b/p"}}),
    ("U06", {"instance_type": "local"}, {"inputs": "nowhere"}),
    ("U06", {**ML}, {"inputs": "file:///tmp"}),
    ("U06", {"model_uri": "s3://b/m"}, {"inputs": {"model": "s3://b/p"}}),
]


def labels(case):
    return "-".join(str(part)[:50] for part in case[1].items()) if isinstance(case, tuple) else None


def assert_four_parts(error, code, project):
    assert error.code == code
    assert all((error.what, error.saw, error.next, error.more)), vars(error)
    assert code in pages() or code == "U06"
    assert any("next" in note for note in error.__notes__), "Python's own traceback would not show what to do"
    assert not (project / ".paceline").exists()


@pytest.mark.parametrize("case", WRONG, ids=labels)
def test_a_wrong_argument_is_refused_when_the_estimator_is_made(make, project, case):
    code, arguments = case
    with pytest.raises(UsageError) as refused:
        make(**arguments)
    assert_four_parts(refused.value, code, project)


@pytest.mark.parametrize("case", WRONG_AT_FIT, ids=lambda case: "-".join(map(str, case))[:60])
def test_what_only_files_and_inputs_can_tell_is_refused_before_anything_is_written(make, project, case):
    code, arguments, fit = case
    made = make(**arguments)
    with pytest.raises(UsageError) as refused:
        made.fit(**fit)
    assert_four_parts(refused.value, code, project)


def test_no_secret_stands_in_an_error(make):
    with pytest.raises(UsageError) as refused:
        make(environment={"TOKEN": "hush-" + "x" * 600})
    error = refused.value
    assert "hush" not in f"{error.what}{error.saw}{error.next}{error.__notes__}"


def test_the_nearest_instance_type_and_engine_are_named(make):
    for arguments, word in (
        ({"instance_type": "local-gpu"}, "local_gpu"),
        ({"engine": "slrum"}, "slurm"),
        ({"instance_type": "p4d.24xlarge"}, "ml.p4d"),
    ):
        with pytest.raises(UsageError) as refused:
            make(**arguments)
        assert word in refused.value.next


def test_a_page_stands_behind_every_code_of_the_room(repository):
    text = "".join(path.read_text() for path in (repository / "src/paceline/parts/sagemaker/estimator").glob("*.py"))
    used = set(re.findall(r'"([UE]\d\d)"', text))
    assert {"U01", "U02", "U06", "U07", "U09", "U31", "U32", "U50"} <= used <= set(pages())
