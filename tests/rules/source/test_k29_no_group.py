"""K29: DDP without a process group."""

import pytest

from paceline.findings import Severity

DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("import torch\n" + DDP, Severity.ERROR),
        ("import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
         "if dist.is_initialized():\n    model = DDP(net)\n", Severity.WARNING),
        ("import os, argparse\nimport numpy as np\nimport torch\ndef main():\n    torch.nn.parallel.DistributedDataParallel(net)\nmain()\n",
         Severity.WARNING),
    ],
)  # fmt: skip
def test_nobody_makes_a_group(found, job, text, severity):
    (finding,) = found("K29", job(text, ranks_per_host=2))
    assert finding.severity is severity and "init_process_group" in finding.what


@pytest.mark.parametrize(
    "text",
    [
        "import torch.distributed as dist\ndist.init_process_group()\n" + DDP,
        "from torch.distributed import init_process_group as init\ninit()\n" + DDP,
        "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cpu', (2,))\n" + DDP,
        # A library that may make one.
        "import deepspeed\n" + DDP,
        "from accelerate import Accelerator\n" + DDP,
        "from mytools import setup\nsetup()\n" + DDP,
        "from . import setup\nsetup()\n" + DDP,
        "import torch\nmodel = torch.nn.Linear(1, 1)\n",
    ],
)
def test_somebody_may(found, job, text):
    assert not found("K29", job(text, ranks_per_host=2))
