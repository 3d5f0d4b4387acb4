"""K23: a rank or a number of ranks that is written into the script."""

import pytest

GROUP = "import torch.distributed as dist\ndist.init_process_group({})\n"
SAMPLER = "from torch.utils.data import DistributedSampler\nDistributedSampler(data, {})\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GROUP.format("'gloo', rank=0, world_size=4"), "rank=0 is the same on all ranks"),
        (GROUP.format("'gloo', world_size=8"), "world_size=8, and this job has 4 ranks"),
        (SAMPLER.format("num_replicas=2"), "num_replicas=2, and this job has 4 ranks"),
        (SAMPLER.format("4, 0"), "rank=0 is the same"),
    ],
)
def test_a_number_that_is_not_the_jobs_is_reported(found, job, text, says):
    (finding,) = found("K23", job(text, hosts=2, ranks_per_host=2))
    assert says in finding.what and finding.next.startswith("leave ")


@pytest.mark.parametrize(
    "text",
    [
        GROUP.format("'gloo', world_size=4"),
        GROUP.format("'gloo', rank=rank, world_size=world_size"),
        GROUP.format("'fake', rank=0, world_size=64"),
        "import torch.distributed as dist\nif alone:\n    dist.init_process_group('gloo', rank=0, world_size=1)\n",
        SAMPLER.format("num_replicas=dist.get_world_size()"),
        GROUP.format("'gloo', world_size=-1"),
    ],
)
def test_the_jobs_own_number_or_one_that_is_asked_for_is_right(found, job, text):
    assert not found("K23", job(text, hosts=2, ranks_per_host=2))


def test_without_the_number_of_ranks_nothing_is_said(found, job):
    assert not found("K23", job(GROUP.format("'gloo', world_size=8"), ranks_per_host=None))
    assert not found("K23", job(GROUP.format("'gloo', rank=0, world_size=1"), ranks_per_host=1))
