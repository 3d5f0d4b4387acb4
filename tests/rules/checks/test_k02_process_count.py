"""K02: ranks of a host against its GPUs and CPUs."""

import pytest

from paceline.findings import Severity

ALONE = "import torch\nmodel = torch.nn.Linear(2, 2)\n"
GLOO = 'import torch.distributed as dist\ndist.init_process_group("gloo")\n'


def test_more_ranks_than_gpus_stop_the_job(found, job):
    (finding,) = found("K02", job(of="g4dn.12xlarge", ranks_per_host=8, launcher="mpi"))
    assert finding.severity is Severity.ERROR
    assert "8 ranks on a host with 4 GPUs (NVIDIA T4)" in finding.saw
    assert finding.next.endswith("processes_per_host=4")


def test_with_gloo_alone_they_take_turns_which_is_a_warning(found, job):
    (finding,) = found("K02", job(GLOO, of="g4dn.12xlarge", ranks_per_host=8, launcher="torch_distributed"))
    assert finding.severity is Severity.WARNING


def test_gpus_without_a_rank_are_a_warning(found, job):
    (finding,) = found("K02", job(ALONE, of="p4d.24xlarge", engine="sagemaker", ranks_per_host=1))
    assert finding.severity is Severity.WARNING
    assert finding.what == "7 of 8 GPUs of each host would be idle"
    assert "torch_distributed" in finding.next


@pytest.mark.parametrize(
    "text",
    [
        "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=8)\n",
        "import torch\nmodel = torch.nn.DataParallel(model)\n",
        "from transformers import Trainer\nTrainer(model).train()\n",
        'import subprocess\nsubprocess.run(["torchrun", "real.py"])\n',
    ],
)
def test_one_process_that_drives_all_gpus_itself_is_right(found, job, text):
    for launcher in ("plain", "torch_distributed"):
        assert not found("K02", job(text, of="p4d.24xlarge", ranks_per_host=1, launcher=launcher))


@pytest.mark.parametrize("launcher", ["parameter_server", "multi_worker_mirrored_strategy"])
def test_tensorflow_has_one_process_for_all_gpus(found, job, launcher):
    assert not found("K02", job(of="p3.16xlarge", ranks_per_host=1, launcher=launcher))


def test_more_ranks_than_cpus_are_a_warning(found, job):
    (finding,) = found("K02", job(of="m5.large", ranks_per_host=4))
    assert finding.severity is Severity.WARNING
    assert "4 ranks on each host share 2 CPUs" in finding.what


def test_ranks_of_a_machine_that_certainly_has_no_gpu_are_judged_by_its_cpus(found, job):
    (finding,) = found("K02", job(ranks_per_host=64, cpus_per_host=2))
    assert finding.severity is Severity.WARNING and finding.saw == "this machine has 2 CPUs and no GPU"
    assert not found("K02", job(ranks_per_host=2, cpus_per_host=2))


@pytest.mark.parametrize(("of", "ranks"), [("p4d.24xlarge", 8), ("m5.large", 2), ("g5.xlarge", 1)])
def test_one_rank_for_each_is_right(found, job, of, ranks):
    assert not found("K02", job(of=of, ranks_per_host=ranks, launcher="torch_distributed"))


def test_what_is_decided_on_the_host_is_not_judged(missing, job):
    assert "ranks" in missing("K02", job(of="p4d.24xlarge"))
    assert "GPUs" in missing("K02", job(ranks_per_host=2))
    assert "CPUs" in missing("K02", job(ranks_per_host=2, gpus_per_host=0))
    assert "script" in missing("K02", job(of="p4d.24xlarge", ranks_per_host=1))
