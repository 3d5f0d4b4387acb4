"""K10: modules and calls that are not there."""

import subprocess
import sys

import pytest

from paceline.findings import Severity
from paceline.parts.sagemaker.smdistributed.unsupported import no_such_call
from paceline.smdistributed_names import NEVER

MODULE = "import smdistributed.dataparallel.torch.distributed as dist\n"


def test_the_call_of_the_article_never_existed_and_the_meant_one_is_named(found, job):
    (finding,) = found("K10", job(MODULE + "dist.init_process_group()\ndist.all_reduce_params(model)\n"))
    assert finding.severity is Severity.ERROR
    assert finding.what == "train.py:3: smdistributed.dataparallel never had 'all_reduce_params'"
    assert finding.next == "dist.average_parameters"


def test_torch_never_had_it_either(found, job):
    (finding,) = found("K10", job("import torch.distributed as dist\ndist.all_reduce_params(model)\n"))
    assert finding.next == "torch.nn.parallel.DistributedDataParallel(model)"


@pytest.mark.parametrize(
    ("line", "next"),
    [
        ("dist.size()", "dist.get_world_size"),
        ("dist.allreduce(t)", "dist.all_reduce"),
        (
            "dist.DistributedDataParallel(m)",
            "from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel",
        ),
    ],
)
def test_names_of_horovod_are_translated(found, job, line, next):
    (finding,) = found("K10", job(f"{MODULE}def main():\n    {line}\n"))
    assert finding.next == next


def test_an_imported_name_counts(found, job):
    (finding,) = found("K10", job("from smdistributed.dataparallel.torch.distributed import local_rank\n"))
    assert finding.next == "get_local_rank"


def test_an_alias_of_either_module_lacks_it_either_way(found, job):
    text = f"try:\n    {MODULE}except ImportError:\n    import torch.distributed as dist\ndist.allreduce(t)\n"
    assert len(found("K10", job(text))) == 1


@pytest.mark.parametrize(
    "line", ["import smdistributed.modelparallel.torch as smp", "from smdistributed.modelparallel.torch import nn"]
)
def test_model_parallelism_stops_the_job_once(found, job, line):
    (finding,) = found("K10", job(f"{line}\n{line}\n"))
    assert finding.severity is Severity.ERROR
    assert "fully_shard" in finding.next


def test_on_sagemaker_an_image_may_hold_it(found, job):
    (finding,) = found("K10", job("import smdistributed.modelparallel\n", engine="sagemaker"))
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "text",
    [
        MODULE + "dist.init_process_group()\ndist.all_reduce(t)\ndist.broadcast_parameters(m)\n",
        "import smdistributed.dataparallel.torch.torch_smddp\n",
        "try:\n    import smdistributed.modelparallel\nexcept ImportError:\n    pass\n",
        "if is_sagemaker_mp_enabled():\n    import smdistributed.modelparallel.torch as smp\n",
        "import horovod.torch as hvd\nhvd.allreduce(t)\nhvd.size()\n",
        "import torch.distributed as dist\ndist = fake()\ndist.size()\n",
        "import torch.distributed as dist\ndist.get_rank()\ndist.rank = 3\n",
        "from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP\nDDP(m)\n",
    ],
)
def test_what_is_there_or_asked_for_first_draws_nothing(found, job, text):
    assert not found("K10", job(text))


@pytest.mark.parametrize("name", NEVER)
def test_the_check_and_the_error_in_a_rank_mean_the_same_name(found, job, name):
    (finding,) = found("K10", job(f"{MODULE}dist.{name}\n"))
    said = str(no_such_call(name, ["all_reduce", "broadcast"]))
    assert finding.next in next(line for line in said.splitlines() if line.startswith("  next"))


@pytest.mark.process
def test_torch_has_none_of_the_names(user_environment):
    program = (
        f"import torch.distributed as dist, sys\nsys.exit(str([n for n in {list(NEVER)!r} if hasattr(dist, n)] or ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=user_environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1) and done.stderr.strip() == ""
