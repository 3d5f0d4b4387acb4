"""The manifests for Kubernetes are those of its documentation page, valid against the official schemas, and start what they say."""

import re
import shlex

import pytest

from paceline.cli.run.verb import would_run

yaml = pytest.importorskip("yaml", reason="the extra [engines] is not installed")
VERSIONS = ("1.28", "1.33", "1.37")


@pytest.fixture
def manifests(examples):
    return {path.name: list(yaml.safe_load_all(path.read_text())) for path in (examples / "kubernetes").glob("*.yaml")}


@pytest.fixture
def script(tmp_path, monkeypatch, user_environment):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return user_environment


@pytest.mark.parametrize("version", VERSIONS)
def test_the_job_and_its_service_are_valid(manifests, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest in manifests["job.yaml"]:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_trainjob_is_valid_and_loses_nothing(manifests):
    models = pytest.importorskip("kubeflow_trainer_api.models")
    (manifest,) = manifests["trainjob.yaml"]
    read = models.TrainerV1alpha1TrainJob.from_dict(manifest)
    assert read.to_dict() == manifest


def test_the_page_shows_the_files(repository, examples):
    page = (repository / "docs/howto/schedulers.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert blocks == [(examples / "kubernetes" / name).read_text() for name in ("job.yaml", "trainjob.yaml")]


def test_the_command_of_the_job_is_that_of_one_of_two_hosts(manifests, script):
    container = manifests["job.yaml"][1]["spec"]["template"]["spec"]["containers"][0]
    line = (
        container["command"][2]
        .replace('"$JOB_COMPLETION_INDEX"', "1")
        .replace("--nproc-per-node gpu", "--nproc-per-node 8")
    )
    words = shlex.split(line)
    assert words[:3] == ["exec", "paceline", "run"]
    job = would_run(words[3:], script)
    assert (job.max_hosts, job.node_rank, job.ranks_per_host, job.master_addr) == (2, 1, 8, "train-0.train")


def test_the_command_of_the_trainjob_takes_what_its_runtime_sets(manifests, script, monkeypatch):
    trainer = manifests["trainjob.yaml"][0]["spec"]["trainer"]
    # Source: kubeflow/trainer pkg/runtime/framework/plugins/torch/torch.go
    runtime = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29500",
    }
    for name, value in runtime.items():
        monkeypatch.setenv(name, value)
    job = would_run(trainer["command"][2:], {**script, **runtime})
    assert (job.max_hosts, job.node_rank, job.ranks_per_host, job.master_addr) == (2, 1, 8, "train-node-0-0.train")
