"""K29: DDP without a process group."""

import pytest

from paceline.findings import Severity
from paceline.rules.job_facts import SourceFile

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
        # torch makes one itself for a mesh, and for fully_shard.
        "from torch.distributed.device_mesh import DeviceMesh\nmesh = DeviceMesh('cpu', [0, 1])\n" + DDP,
        "from torch.distributed.fsdp import fully_shard\nfully_shard(other)\n" + DDP,
        "import importlib\nimportlib.import_module('setup').go()\n" + DDP,
        DDP.replace("(net)", "(net, process_group=mine)"),
    ],
)
def test_somebody_may(found, job, text):
    assert not found("K29", job(text, ranks_per_host=2))


WRAPS = (
    "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\ndef build(net):\n    return DDP(net)\n"
)


def test_the_script_makes_the_group_of_a_file_that_it_imports(found, job):
    imported = (SourceFile("model.py", WRAPS),)
    text = "import torch\nimport model\nmodel.build(net)\n"
    (finding,) = found("K29", job(text, ranks_per_host=2, imported=imported))
    assert finding.file == "model.py"
    text = "import torch\nimport model\ntorch.distributed.init_process_group()\nmodel.build(net)\n"
    assert not found("K29", job(text, ranks_per_host=2, imported=imported))


def test_a_library_of_a_file_that_the_script_imports_may(found, job):
    imported = (SourceFile("setup/__init__.py", "import deepspeed\ndeepspeed.init_distributed()\n"),)
    assert not found("K29", job("import setup\n" + DDP, ranks_per_host=2, imported=imported))
