"""Jobs whose script names /opt/ml itself: hosts of this machine see their own tree there, or are told what to read instead."""

import os
import subprocess
import sys

import pytest
from patience import patient
from refused_namespaces import REFUSE_UNSHARE

from paceline.launch.agent.opt_ml import opt_ml_refusal

pytestmark = pytest.mark.process

NORMAL_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
SCRIPT = """
import os
with open("/opt/ml/input/data/train/x") as file:
    same = os.path.samefile("/opt/ml", os.environ["SAGEMAKER_BASE_DIR"])
    print(os.environ["SM_CURRENT_HOST"], file.read(), os.getuid(), same, flush=True)
with open("/opt/ml/model/" + os.environ["SM_CURRENT_HOST"], "w") as file:
    file.write("weights")
"""
FIT = """
from paceline.estimator import PyTorch
made = PyTorch("train.py", instance_type="local", instance_count=2, output_path="out")
made.fit({"train": "data"})
print("model", made.model_data)
"""


@pytest.fixture
def project(paceline):
    """A project whose script names /opt/ml, with data."""
    (paceline.directory / "data").mkdir()
    (paceline.directory / "data" / "x").write_text("seven")
    paceline.script("train.py", SCRIPT)
    return paceline


def fit(project, prefix=()):
    return subprocess.run(
        [*prefix, sys.executable, "-c", FIT],
        cwd=project.directory, env=project.environment, capture_output=True, text=True, timeout=patient(110), check=False,
    )  # fmt: skip


@pytest.fixture(params=["as it is", "as a normal user"])
def prefix(request):
    """The words before a command that make it run as this user, or as a user without any right."""
    if refused := opt_ml_refusal():
        pytest.skip(refused)
    if request.param == "as it is":
        return ()
    if os.geteuid() != 0:
        pytest.skip("this test already runs as a normal user")
    return NORMAL_USER


@pytest.mark.slow_but_first
def test_the_hosts_of_an_estimator_see_their_tree_at_opt_ml(project, prefix):
    had = os.path.lexists("/opt/ml")
    done = fit(project, prefix)
    assert done.returncode == 0, done.stdout + done.stderr
    uid = "1000" if prefix else str(os.getuid())
    seen = sorted(line for line in done.stdout.splitlines() if line.startswith("algo-"))
    assert seen == [f"algo-1 seven {uid} True", f"algo-2 seven {uid} True"]
    assert "K24" not in done.stderr
    (model,) = (project.directory / "out").rglob("model.tar.gz")
    names = subprocess.run(["tar", "tzf", model], capture_output=True, text=True, check=True).stdout
    assert "algo-1" in names and "algo-2" in names
    assert os.path.lexists("/opt/ml") == had, "the machine itself has no other /opt/ml than before"


@pytest.mark.slow
def test_run_does_the_same_when_asked(project, prefix):
    done = project.run(
        "run", "--local-hosts", "2", "--set", "opt_ml=true", "--channel", "train=data", "train.py", prefix=prefix
    )
    assert done.code == 0, done.err
    assert sorted(line.split()[0] for line in done.out.splitlines()) == ["algo-1", "algo-2"]


@pytest.mark.slow
def test_a_job_that_does_not_ask_sees_the_machines_own_opt(project):
    if os.path.lexists("/opt/ml"):
        pytest.skip("this machine has an /opt/ml of its own")
    project.script("looks.py", "import os\nprint(os.path.lexists('/opt/ml'), os.access('/opt', os.W_OK), flush=True)\n")
    done = project.run("run", "--local-hosts", "2", "looks.py")
    assert done.out.splitlines() == [f"False {os.access('/opt', os.W_OK)}"] * 2


@pytest.mark.slow
def test_where_namespaces_are_refused_the_advice_names_the_variable(project):
    if os.path.lexists("/opt/ml/input/data/train/x"):
        pytest.skip("this machine has such a file of its own")
    done = fit(project, (sys.executable, "-c", REFUSE_UNSHARE))
    assert done.returncode == 1 and "UnexpectedStatusException" in done.stderr
    assert "K24" in done.stderr and "SM_CHANNEL_TRAIN" in done.stderr
    assert "/opt/ml is not the tree of algo-1: this machine allows no mounts of its own" in done.stdout + done.stderr
    why = project.run("why")
    assert "read the directory from os.environ: SM_CHANNEL_TRAIN" in why.out
