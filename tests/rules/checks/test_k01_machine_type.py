"""K01: types that do not exist, and types that are not for the job."""

import pytest

from paceline.catalog.types import MachineType
from paceline.findings import Severity


def test_a_type_that_never_existed_stops_a_job_on_sagemaker_with_the_nearest_name(found, job):
    (finding,) = found("K01", job(engine="sagemaker", instance_type="ml.p3dn.48xlarge"))
    assert finding.severity is Severity.ERROR
    assert "'ml.p3dn.48xlarge'" in finding.what
    assert finding.next == "instance_type='ml.p3dn.24xlarge'"


@pytest.mark.parametrize("engine", ["local", "ssh", "ray", "slurm"])
def test_elsewhere_the_name_decides_nothing_and_is_a_warning(found, job, engine):
    (finding,) = found("K01", job(engine=engine, instance_type="ml.p3dn.48xlarge"))
    assert finding.severity is Severity.WARNING


def test_a_family_newer_than_the_catalogue_does_not_stop_a_job(found, job):
    (finding,) = found("K01", job(engine="sagemaker", instance_type="ml.p99.48xlarge"))
    assert finding.severity is Severity.WARNING
    assert "may be newer" in finding.what


def test_a_misspelt_local_gpu_is_put_right(found, job):
    (finding,) = found("K01", job(engine="sagemaker", instance_type="local-gpu"))
    assert finding.next == "instance_type='local_gpu'"


def test_a_type_that_sagemaker_does_not_take_stops_the_job_with_the_nearest(found, job):
    (finding,) = found("K01", job(of="c5.12xlarge", engine="sagemaker", instance_type="ml.c5.12xlarge"))
    assert finding.severity is Severity.ERROR
    assert "CreateTrainingJob does not accept it" in finding.saw
    assert finding.next.startswith("instance_type='ml.c6i.12xlarge'")


def test_smdistributed_elsewhere_is_a_warning_with_the_hardware_reason_in_numbers(found, job):
    (finding,) = found("K01", job(of="p3.8xlarge", engine="sagemaker", launcher="smdistributed"))
    assert finding.severity is Severity.WARNING
    assert "paceline uses its own exchange" in finding.what
    assert "4 GPUs: it wants 8" in finding.saw
    assert "TCP at 10 Gbit/s" in finding.saw
    assert "p4d.24xlarge" in finding.next


def test_an_accelerator_that_torch_does_not_reach_is_a_warning(found, job):
    (finding,) = found("K01", job(of="trn1.32xlarge", engine="sagemaker"))
    assert "Trainium1 is not a GPU" in finding.saw


GLOO = 'import torch.distributed as dist\ndist.init_process_group("gloo")\n'


@pytest.mark.parametrize("launcher", ["torch_distributed", "pytorchddp"])
def test_a_rank_for_each_gpu_on_a_type_without_one_is_a_warning(found, job, launcher):
    fields = {"of": "m5.large", "engine": "sagemaker", "instance_type": "ml.m5.large", "launcher": launcher}
    (finding,) = found("K01", job("import torch\n", **fields))
    assert (
        finding.severity is Severity.WARNING
        and finding.what == "ml.m5.large has no GPU: DDP can train on its CPUs only, with gloo"
    )
    assert "2 vCPUs" in finding.saw and finding.next.startswith("instance_type='ml.")
    # The script or its launcher asks for no GPU.
    assert not found("K01", job(GLOO, **fields)) and not found(
        "K01", job("import torch\n", **{**fields, "launcher": "plain"})
    )


@pytest.mark.parametrize("launcher", ["plain", "torch_distributed", "pytorchddp", "smdistributed"])
def test_a_type_that_is_right_draws_nothing(found, job, launcher):
    assert not found("K01", job(of="p4d.24xlarge", engine="sagemaker", launcher=launcher))


@pytest.mark.parametrize("name", ["local", "local_gpu", None])
def test_this_machine_needs_no_type(found, job, name):
    assert not found("K01", job(instance_type=name))


def test_a_machine_of_ones_own_is_not_judged_for_sagemaker(missing, job):
    machine = MachineType(name="rack-7", accelerator_count=0)
    assert "SageMaker" in missing("K01", job(engine="sagemaker", machine=machine))
