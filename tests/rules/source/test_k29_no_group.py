"""K29: DDP, and calls of torch.distributed, without a process group."""

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


DIST = "import torch.distributed as dist\n"


@pytest.mark.parametrize(
    ("text", "line", "severity"),
    [
        (DIST + "rank = dist.get_rank()\n", 2, Severity.ERROR),
        ("import torch\nfor step in range(3):\n    torch.distributed.all_reduce(tensor)\n", 3, Severity.ERROR),
        (DIST + "if __name__ == '__main__':\n    dist.barrier()\n", 3, Severity.ERROR),
        (DIST + "def sync():\n    dist.barrier()\ndef main():\n    sync()\nmain()\n", 3, Severity.WARNING),
        # The first one is named, a wrapping or not.
        (DIST + "dist.get_rank()\n" + DDP, 2, Severity.ERROR),
    ],
)
def test_a_call_that_certainly_runs_needs_the_group(found, job, text, line, severity):
    (finding,) = found("K29", job(text, ranks_per_host=2))
    assert (finding.line, finding.severity) == (line, severity)


@pytest.mark.parametrize(
    "text",
    [
        "if dist.is_initialized():\n    dist.barrier()\n",
        "rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0\n",
        "def rank():\n    if not dist.is_initialized():\n        return 0\n    return dist.get_rank()\nrank()\n",
        "try:\n    rank = dist.get_rank()\nexcept ValueError:\n    rank = 0\n",
        # Nobody calls it, or only under a condition.
        "def sync():\n    dist.barrier()\n",
        "def sync():\n    dist.barrier()\nif args.distributed:\n    sync()\n",
        "if distributed:\n    def sync():\n        dist.barrier()\nsync()\n",
        "def sync():\n    dist.barrier()\n    sync()\n",
        "class Meter:\n    def all_reduce(self):\n        dist.barrier()\nall_reduce()\n",
        "later = lambda: dist.barrier()\n",
        # Another group, or one that somebody else makes.
        "dist.all_reduce(tensor, group=mine)\n",
        "import deepspeed\ndeepspeed.init_distributed()\ndist.get_rank()\n",
        "from lightning import Trainer\ndist.get_rank()\n",
        "dist.init_process_group()\ndist.get_rank()\n",
        "dist.is_available()\n",
    ],
)
def test_a_call_that_may_never_run_or_finds_a_group_is_not_reported(found, job, text):
    assert not found("K29", job(DIST + text, ranks_per_host=2))


@pytest.mark.parametrize(
    "text",
    ["import tools\ntools.sync()\n", "from tools import sync\nsync()\n", "from lib.tools import sync as s\ns()\n"],
)
def test_the_function_of_a_file_counts_where_the_script_calls_it(found, job, text):
    imported = (SourceFile("lib/tools.py", DIST + "def sync():\n    dist.barrier()\n"),)
    (finding,) = found("K29", job(text, ranks_per_host=2, imported=imported))
    assert (finding.file, finding.line) == ("lib/tools.py", 3)
    assert not found("K29", job(text.replace("s()\n", "s\n").replace("sync()\n", "sync\n"), imported=imported))


@pytest.mark.parametrize("starts", [False, True])
def test_the_callers_of_a_function_are_looked_at_once_however_many_ways_lead_to_it(found, job, starts):
    layers = "".join(f"def f{layer}():\n    f{layer - 1}()\n    f{layer - 1}()\n" for layer in range(1, 40))
    text = DIST + "def f0():\n    dist.barrier()\n" + layers + ("f39()\n" if starts else "")
    assert [finding.line for finding in found("K29", job(text, ranks_per_host=2))] == [3] * starts
