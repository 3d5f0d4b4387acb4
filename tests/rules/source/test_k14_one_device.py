"""K14: every rank of a host on the same GPU."""

import pytest

HEAD = "import os, torch\nimport torch.distributed as dist\ndist.init_process_group()\n"


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.set_device(0)",
        "torch.cuda.set_device('cuda:0')",
        "model = net.cuda(0)",
        "model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])",
    ],
)
def test_a_fixed_device_is_everybodys(found, job, line):
    (finding,) = found("K14", job(HEAD + line, ranks_per_host=8))
    assert finding.line == 4 and "8 ranks" in finding.what and "LOCAL_RANK" in finding.next


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        "model = net.cuda()",
        "if dist.get_rank() == 0:\n    torch.cuda.set_device(0)",
        "def alone():\n    torch.cuda.set_device(0)",
        "class A:\n    def go(self):\n        self.net.cuda(0)",
        "net.cuda(False)",
    ],
)
def test_what_may_be_one_ranks_is_not_reported(found, job, line):
    assert not found("K14", job(HEAD + line, ranks_per_host=8))


def test_one_rank_a_host_or_hosts_without_gpus_are_right(found, job):
    text = HEAD + "torch.cuda.set_device(0)"
    assert not found("K14", job(text, ranks_per_host=1)) and not found(
        "K14", job(text, ranks_per_host=2, gpus_per_host=0)
    )
    assert not found("K14", job("import torch\ntorch.cuda.set_device(0)", ranks_per_host=2))
