"""The SDK's names in a notebook's first cells, without an AWS account."""

import importlib
import json

import pytest

from paceline.errors import UsageError
from paceline.estimator import (
    Mode,
    ModelTrainer,
    PyTorch,
    S3Uploader,
    Session,
    SourceCode,
    TensorBoardOutputConfig,
    get_execution_role,
    name_from_base,
    unique_name_from_base,
)
from paceline.parts.sagemaker.engine import aws
from paceline.parts.sagemaker.estimator import image_uris
from paceline.parts.sagemaker.estimator.model_trainer_parts import Compute


@pytest.fixture(autouse=True)
def no_account(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")

    def refused(*_):
        raise UsageError("E52", "AWS has no credentials here", saw="none", next="aws configure")

    monkeypatch.setattr("paceline.parts.sagemaker.estimator.notebook.connect", refused)


def test_a_role_and_a_session_are_there_and_say_what_they_are(capsys):
    session = Session()
    role = get_execution_role(session)
    assert role.startswith("arn:aws:iam::") and "the role is a placeholder" in capsys.readouterr().err
    assert session.boto_region_name is None
    assert session.default_bucket() == "no-aws-account-here" and session.default_bucket_prefix is None
    assert "s3://no-aws-account-here/ is the directory .paceline/bucket" in capsys.readouterr().err
    assert session.boto_session.region_name is None
    assert Session(default_bucket="mine").default_bucket() == "mine"


def test_data_that_is_uploaded_is_its_own_directory(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert Session().upload_data("data", key_prefix="mnist") == str(tmp_path / "data")
    assert "data itself is the channel" in capsys.readouterr().err
    with pytest.raises(UsageError, match="nothere"):
        Session().upload_data("nothere")


def test_with_an_account_it_goes_to_its_bucket(tmp_path, monkeypatch):
    pytest.importorskip("botocore")
    sent = []

    class Client:
        def get_caller_identity(self):
            return {"Account": "123", "Arn": "arn:aws:sts::123:assumed-role/Notebook/me"}

        def get_role(self, RoleName):
            return {"Role": {"Arn": f"arn:aws:iam::123:role/service-role/{RoleName}"}}

        def upload_file(self, *words):
            sent.append(words)

    monkeypatch.setattr(
        "paceline.parts.sagemaker.estimator.notebook.connect", lambda *_: aws.Aws("eu-west-1", lambda _: Client())
    )
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x.bin").write_text("x")
    session = Session()
    assert session.default_bucket() == "sagemaker-eu-west-1-123" and session.boto_region_name == "eu-west-1"
    assert session.upload_data("data", key_prefix="p") == "s3://sagemaker-eu-west-1-123/p"
    assert sent == [(str(tmp_path / "data/a/x.bin"), "sagemaker-eu-west-1-123", "p/a/x.bin")]
    assert session.upload_data("train.py", key_prefix="p").endswith("/p/train.py")
    assert get_execution_role(session) == "arn:aws:iam::123:role/service-role/Notebook"


def test_sagemaker_itself_refuses_the_placeholder():
    estimator = PyTorch(
        "train.py", role=get_execution_role(), instance_count=1, instance_type="ml.g5.12xlarge", image_uri="i"
    )
    with pytest.raises(UsageError) as refused:
        estimator.plan()
    assert (refused.value.code, "no role" in refused.value.what) == ("E34", True)


def test_env_is_taken_as_environment_with_a_notice(capsys):
    estimator = PyTorch("train.py", instance_count=1, instance_type="local", env={"A": "1"})
    assert estimator.environment == {"A": "1"}
    with pytest.raises(UsageError, match="env and environment are one argument"):
        PyTorch("train.py", instance_count=1, instance_type="local", env={}, environment={"A": "1"})


def test_the_parts_of_v3_and_a_command(tmp_path):
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER,
        source_code=SourceCode(source_dir=".", command="python train.py --epochs 2 && echo done"),
        compute=Compute(instance_type="local"),
    )
    trainer.with_tensorboard_output_config(TensorBoardOutputConfig(s3_output_path="s3://b/p"))
    request = trainer.train(dry_run=True)
    assert request.document["job"]["job"]["program"]["target"] == "paceline_command.sh"
    with pytest.raises(UsageError, match="both say what runs"):
        ModelTrainer(source_code=SourceCode(source_dir=".", entry_script="train.py", command="python train.py"))


def test_the_bucket_that_is_not_there_is_a_directory(tmp_path, capsys):
    bucket = Session().default_bucket()
    (tmp_path / ".paceline" / "bucket" / "mnist").mkdir(parents=True)
    estimator = PyTorch("train.py", instance_count=1, instance_type="local", output_path=f"s3://{bucket}/out")
    job = estimator.plan({"train": f"s3://{bucket}/mnist"}).job
    assert job.channels[0].source == str(tmp_path / ".paceline/bucket/mnist")
    assert job.output_url == str(tmp_path / ".paceline/bucket/out")
    with pytest.raises(UsageError, match="does not exist"):
        estimator.plan({"train": f"s3://{bucket}/nothing"})


def test_an_uploader_hands_back_the_directory(tmp_path):
    (tmp_path / "data").mkdir()
    assert S3Uploader.upload("data", "s3://no-aws-account-here/cifar10/data") == str(tmp_path / "data")


def test_a_warm_pool_that_is_not_there_is_said(capsys):
    Session().update_training_job("job-1", resource_config={"KeepAlivePeriodInSeconds": 0})
    assert "nothing to change about job-1" in capsys.readouterr().err


def test_an_image_without_a_region_is_a_placeholder_and_with_one_its_address(capsys):
    asked = {"version": "2.0.0", "py_version": "py310", "image_scope": "training"}
    assert image_uris.retrieve("pytorch", None, **asked).startswith("no-aws-region-here/")
    found = image_uris.retrieve(framework="pytorch", region="us-west-2", instance_type="ml.m5.xlarge", **asked)
    assert found == "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.0.0-cpu-py310"
    assert "-gpu-" in image_uris.retrieve("pytorch", "us-west-2", instance_type="ml.p4d.24xlarge", **asked)
    for wrong in ({"framework": "xgboost"}, {"framework": "pytorch", "py_version": None}):
        with pytest.raises(UsageError) as refused:
            image_uris.retrieve(**{"region": "us-west-2", **asked, **wrong})
        assert refused.value.code == "U31"


@pytest.mark.parametrize(
    "name",
    [
        "HuggingFace",
        "DistributedConfig",
        "PyTorchModel",
        "Rule",
        "TrainingQueue",
        "FrameworkProcessor",
        "TrainingJobAnalytics",
    ],
)
def test_a_name_that_paceline_does_not_have_gives_its_reason(name):
    with pytest.raises(UsageError) as refused:
        getattr(importlib.import_module("paceline.estimator"), name)
    assert refused.value.code == "U32" and name in refused.value.what and refused.value.next
    assert not hasattr(importlib.import_module("paceline.estimator"), "PyTroch")


@pytest.mark.parametrize("named", [{"script_mode": True}, {"job_name": "mine"}])
def test_arguments_that_the_sdk_swallows_in_awss_own_notebooks_are_taken_with_a_notice(named, capsys):
    PyTorch("train.py", instance_count=1, instance_type="local", **named)
    assert f"{next(iter(named))}=" in capsys.readouterr().err


def test_a_shell_script_is_a_rank_of_smdistributed(tmp_path):
    (tmp_path / "train.sh").write_text("exec python train.py\n")
    form = {"smdistributed": {"dataparallel": {"enabled": True}}}
    estimator = PyTorch("train.sh", source_dir=".", instance_count=2, instance_type="local", distribution=form)
    assert estimator.plan().job.program.target == "train.sh"
    with pytest.raises(UsageError, match="are Python scripts"):
        PyTorch(
            "train.sh", instance_count=1, instance_type="local", distribution={"torch_distributed": {"enabled": True}}
        )


def test_an_engine_for_every_job_of_a_notebook(monkeypatch, capsys):
    monkeypatch.setenv("PACELINE_ENGINE", "local")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    form = {"smdistributed": {"dataparallel": {"enabled": True}}}
    estimator = PyTorch("train.py", instance_count=2, instance_type="ml.p4d.24xlarge", distribution=form)
    request = estimator.plan()
    assert (request.engine, request.job.hosts, request.job.ranks_per_host) == ("local", 2, "1")
    assert "PACELINE_ENGINE=local: this machine stands in for ml.p4d.24xlarge" in capsys.readouterr().err
    assert estimator.instance_type == "ml.p4d.24xlarge", "what was written is not changed"
    trainer = ModelTrainer(source_code=SourceCode(source_dir=".", entry_script="train.py"))
    assert trainer.train(dry_run=True).engine == "local"
    assert PyTorch("train.py", instance_count=1, instance_type="local").plan().engine == "local"
    named = PyTorch("train.py", instance_count=1, instance_type="ml.g5.12xlarge", engine="fake")
    assert named.plan().engine == "fake", "an engine that is named wins"
    monkeypatch.setenv("PACELINE_ENGINE", "slrum")
    with pytest.raises(UsageError, match="no engine 'slrum'"):
        PyTorch("train.py", instance_count=1, instance_type="ml.g5.12xlarge")


@pytest.mark.parametrize("name", ["hp.json", "hp.yaml"])
def test_hyperparameters_of_a_file_are_an_attribute_as_in_v3(tmp_path, name):
    wanted = {"integer": 1, "list": [1, 2], "dict": {"key": "value"}, "boolean": True}
    # JSON is YAML too.
    (tmp_path / name).write_text(json.dumps(wanted))
    if name.endswith(".yaml"):
        pytest.importorskip("yaml")
    code = SourceCode(source_dir=".", entry_script="train.py")
    trainer = ModelTrainer(source_code=code, compute=Compute(instance_type="local"), hyperparameters=str(name))
    assert trainer.hyperparameters == wanted
    assert trainer.train(dry_run=True).job.hyperparameters == wanted
    assert trainer._latest_training_job is None


def test_a_yaml_file_that_is_none_is_refused(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "hp.yaml").write_text("a: [1\n")
    with pytest.raises(UsageError) as refused:
        ModelTrainer(source_code=SourceCode(source_dir=".", entry_script="train.py"), hyperparameters="hp.yaml")
    assert (refused.value.code, refused.value.next) == ("U07", "correct hp.yaml")


def test_a_job_has_v3s_names_too(tmp_path, monkeypatch):
    code = SourceCode(source_dir=".", entry_script="train.py")
    trainer = ModelTrainer(source_code=code, engine="fake", engine_options={"states": "Training,Completed"})
    trainer.train(wait=False)
    job = trainer._latest_training_job
    assert job.training_job_name == job.name
    assert job.model_artifacts.s3_model_artifacts.endswith("hosts/algo-1/ml/model")


def test_a_directory_for_tensorboard_has_v3s_name():
    assert TensorBoardOutputConfig("s3://b/p", local_path="/opt/ml/output/tensorboard").local_path


def test_the_sdks_rooms_are_written_in_full():
    room = importlib.import_module("paceline.estimator")
    assert room.session.Session is Session and room.pytorch.PyTorch is PyTorch
    assert room.s3.S3Uploader is S3Uploader and room.inputs.TrainingInput is room.TrainingInput
    with pytest.raises(AttributeError, match="Sesion"):
        _ = room.session.Sesion


@pytest.mark.parametrize("length", [63, 30])
def test_a_name_from_a_base_is_no_longer_than_asked(length):
    for made in (name_from_base("a" * 80, length), unique_name_from_base("mnist", length)):
        assert len(made) <= length and made[:1].isalnum()
    assert name_from_base("mnist").startswith("mnist-20")
