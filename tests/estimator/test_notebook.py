"""The SDK's names in a notebook's first cells, without an AWS account."""

import pytest

from paceline.errors import UsageError
from paceline.estimator import (
    Mode,
    ModelTrainer,
    PyTorch,
    Session,
    SourceCode,
    TensorBoardOutputConfig,
    get_execution_role,
)
from paceline.estimator.model_trainer_parts import Compute
from paceline.launch.engines.sagemaker import aws


@pytest.fixture(autouse=True)
def no_account(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")

    def refused(*_):
        raise UsageError("E40", "AWS has no credentials here", saw="none", next="aws configure")

    monkeypatch.setattr("paceline.estimator.notebook.connect", refused)


def test_a_role_and_a_session_are_there_and_say_what_they_are(capsys):
    session = Session()
    role = get_execution_role(session)
    assert role.startswith("arn:aws:iam::") and "the role is a placeholder" in capsys.readouterr().err
    assert session.boto_region_name is None
    with pytest.raises(UsageError) as refused:
        session.default_bucket()
    assert (refused.value.code, "output_path='out'" in refused.value.next) == ("E40", True)
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

    monkeypatch.setattr("paceline.estimator.notebook.connect", lambda *_: aws.Aws("eu-west-1", lambda _: Client()))
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
    assert (refused.value.code, "no role" in refused.value.what) == ("E43", True)


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
