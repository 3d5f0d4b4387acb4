"""K16: the backend "mpi"."""

import pytest

from paceline.findings import Severity

CALL = 'import torch.distributed as dist\ndist.init_process_group("mpi")\n'


@pytest.mark.parametrize(("gpus", "other"), [(8, "nccl"), (0, "gloo"), (None, "gloo")])
def test_it_says_which_backend_works(found, job, gpus, other):
    (finding,) = found("K16", job(CALL, ranks_per_host=2, gpus_per_host=gpus))
    assert finding.severity is Severity.ERROR
    assert finding.next == f'train.py:2: init_process_group("paceline"), or "{other}"'


def test_under_a_condition_it_is_a_warning(found, job):
    text = "import torch.distributed as dist\nif args.mpi:\n    dist.init_process_group(backend='MPI')\n"
    assert found("K16", job(text))[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    "text",
    [
        'import torch.distributed as dist\ndist.init_process_group("gloo")\n',
        "import torch.distributed as dist\ndist.init_process_group(args.backend)\n",
        'import smdistributed.dataparallel.torch.distributed as dist\ndist.init_process_group("mpi")\n',
        "import torch.distributed as dist\ntry:\n    dist.init_process_group('mpi')\nexcept RuntimeError:\n    pass\n",
    ],
)
def test_other_backends_and_the_module_api_draw_nothing(found, job, text):
    assert not found("K16", job(text, ranks_per_host=2))


def test_one_rank_alone_needs_no_other(found, job):
    assert not found("K16", job(CALL, ranks_per_host=1))
