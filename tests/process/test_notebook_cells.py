"""Calls of the kinds that AWS's own example notebooks make, in our words: they run on hosts of this machine, without an account."""

import subprocess
import sys
import textwrap

import pytest
from patience import patient

from paceline.launch.agent.opt_ml import opt_ml_refusal

pytestmark = pytest.mark.process

RANKS = """
import json, os, sys
import smdistributed.dataparallel.torch.torch_smddp
import torch.distributed as dist
dist.init_process_group("smddp")
channels = json.loads(os.environ["SM_CHANNELS"])
print("rank", dist.get_rank(), "of", dist.get_world_size(), channels, sys.argv[1:], os.environ.get("MINE"), flush=True)
if dist.get_rank() == 0:
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.pth"), "w") as file:
        file.write("weights")
dist.destroy_process_group()
"""
NAMES_OPT_ML = """
import os
names = sorted(os.listdir("/opt/ml/input/data"))
with open("/opt/ml/input/data/train/x") as file:
    print("host", os.environ["SM_CURRENT_HOST"], names, file.read(), os.environ["WORLD_SIZE"], flush=True)
"""
NO_TOOLKIT = """
import sys
class Absent:
    # The toolkit may be installed where the tests run.
    def find_spec(self, name, path=None, target=None):
        if name == "sagemaker_training":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from sagemaker_training import environment
"""


@pytest.fixture
def cells(paceline):
    """Runs the cells of a notebook as one program in a project with data. Returns what it printed."""
    for name in ("train", "test"):
        (paceline.directory / "data" / name).mkdir(parents=True)
        (paceline.directory / "data" / name / "x").write_text(name)
    paceline.script("ranks.py", RANKS)
    paceline.script("names_opt_ml.py", NAMES_OPT_ML)
    paceline.script("no_toolkit.py", NO_TOOLKIT)
    # No account, and nobody who could be asked for one.
    nothing = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(paceline.directory / "nothing"))
    environment = {**paceline.environment, **nothing, "AWS_EC2_METADATA_DISABLED": "true"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        environment.pop(name, None)
    environment |= {"PACELINE_ENGINE": "local", "CUDA_VISIBLE_DEVICES": ""}

    def run(text, *, code=0):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            cwd=paceline.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(110),
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_cells_of_sdk_v2(cells, paceline):
    out, err = cells(
        """
        import paceline.estimator as sagemaker
        session = sagemaker.Session()
        bucket, role = session.default_bucket(), sagemaker.get_execution_role()
        prefix = session.default_bucket_prefix or "mnist"
        inputs = session.upload_data(path="data/train", bucket=bucket, key_prefix=prefix)

        from paceline.estimator import TensorBoardOutputConfig
        board = TensorBoardOutputConfig(f"s3://{bucket}/{prefix}", container_local_output_path="/opt/ml/output/tensorboard")

        from paceline.estimator import PyTorch
        estimator = PyTorch(
            base_job_name="cells", entry_point="ranks.py", role=role, framework_version="2.0.1", py_version="py310",
            train_instance_count=2, instance_type="ml.p4d.24xlarge", sagemaker_session=session, env={"MINE": "yes"},
            distribution={"smdistributed": {"dataparallel": {"enabled": True}}}, hyperparameters={"epochs": 1},
            tensorboard_output_config=board, debugger_hook_config=False, output_path=f"s3://{bucket}/out", job_name="mine",
        )
        estimator.fit({"training": inputs})
        print("model", estimator.model_data)
        session.update_training_job(estimator.latest_training_job.job_name, resource_config={"KeepAlivePeriodInSeconds": 0})
        """
    )
    ranks = sorted(line for line in out.splitlines() if line.startswith("rank "))
    assert ranks == [f"rank {rank} of 2 ['training'] ['--epochs', '1'] yes" for rank in (0, 1)]
    assert "this machine stands in for ml.p4d.24xlarge" in err
    (model,) = (paceline.directory / ".paceline" / "bucket" / "out").rglob("model.tar.gz")
    assert f"model {model}" in out


@pytest.mark.slow
def test_cells_of_sdk_v3(cells):
    if refused := opt_ml_refusal():
        pytest.skip(refused)
    out, _ = cells(
        """
        from paceline.estimator import Compute, InputData, Mode, ModelTrainer, Session, SourceCode, Torchrun, image_uris
        session = Session()
        image = image_uris.retrieve(framework="pytorch", region=session.boto_region_name, version="2.0.0", py_version="py310",
                                    instance_type="ml.m5.xlarge", image_scope="training")
        data = [InputData(channel_name=name, data_source=f"data/{name}") for name in ("train", "test")]
        trainer = ModelTrainer(
            training_image=image, sagemaker_session=session, training_mode=Mode.LOCAL_CONTAINER, input_data_config=data,
            source_code=SourceCode(source_dir=".", entry_script="names_opt_ml.py"), distributed=Torchrun(process_count_per_node=1),
            compute=Compute(instance_type="local_cpu", instance_count=2), base_job_name="local_mode_two_containers",
        )
        trainer.train()
        job = trainer._latest_training_job
        print("job", job.training_job_name, job.model_artifacts.s3_model_artifacts)
        ModelTrainer(training_image=image, source_code=SourceCode(command="echo said $SM_CURRENT_HOST by a shell")).train()
        """
    )
    hosts = sorted(line for line in out.splitlines() if line.startswith("host "))
    assert hosts == [f"host algo-{number} ['test', 'train'] train 2" for number in (1, 2)]
    assert "job local-mode-two-containers-" in out
    assert "said algo-1 by a shell" in out


@pytest.mark.slow
def test_a_script_that_needs_the_toolkit_of_a_container_is_told_what_to_do(cells, paceline):
    cells(
        """
        from paceline.estimator import PyTorch
        PyTorch("no_toolkit.py", instance_count=1, instance_type="ml.p3.16xlarge").fit()
        """,
        code=1,
    )
    said = paceline.run("why").out
    assert "add sagemaker-training to requirements.txt beside the script, or read SM_HPS" in said, said
