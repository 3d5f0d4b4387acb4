"""Scripts written for SageMaker's library, or for MPI, unmodified under `paceline run`; and the frameworks that look for that library."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.exchange, pytest.mark.timeout(120)]

SCRIPTS = Path(__file__).parent / "scripts"
WORKER_SCRIPTS = Path(__file__).parent.parent / "worker" / "scripts"
# What the launcher of SageMaker's SDK put among the hyperparameters where the library was asked for.
ASKED = ("--hp", "sagemaker_distributed_dataparallel_enabled=true")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2")
ON_TWO_RANKS = ("run", "--nproc-per-node", "2")


def needs(module: str):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None, reason="no mpirun, or no mpi4py"
)


def steps_by_rank(paceline) -> dict[int, int | None]:
    return {record.rank: record.step_count for record in paceline.evidence().ranks}


def trained(finished) -> list[str]:
    assert finished.code == 0, finished.err
    return sorted(line for line in finished.out.splitlines() if line.startswith(("rank", "trained")))


def test_the_module_api_of_the_first_releases(paceline, tmp_path):
    finished = paceline.run(
        *ON_TWO_RANKS, *ASKED, str(WORKER_SCRIPTS / "smddp_module_api.py"), "--model-dir", str(tmp_path)
    )
    assert trained(finished) == [f"rank {rank} of 2 same weights True" for rank in (0, 1)]
    assert (tmp_path / "model.pt").exists()
    assert steps_by_rank(paceline) == {0: 8, 1: 8}


def test_the_backend_of_the_later_releases(paceline):
    finished = paceline.run(*ON_TWO_RANKS, str(WORKER_SCRIPTS / "smddp_backend.py"))
    assert trained(finished) == [f"rank {rank} smddp same weights True" for rank in (0, 1)]
    assert steps_by_rank(paceline) == {0: 5, 1: 5}


@needs("accelerate")
def test_accelerate_finds_the_library_where_the_job_asked_for_it(paceline):
    asked = {"ACCELERATE_USE_SAGEMAKER": "true", "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE": "DATA_PARALLEL"}
    finished = paceline.run(*ON_TWO_RANKS, str(SCRIPTS / "accelerate_smddp.py"), **asked)
    assert trained(finished) == [f"trained {rank} of 2 by smddp" for rank in (0, 1)]
    assert steps_by_rank(paceline) == {0: 8, 1: 8}


@pytest.mark.wide
@needs("lightning")
def test_lightning_trains_over_the_backend(paceline):
    finished = paceline.run(*ON_TWO_RANKS, str(SCRIPTS / "lightning_smddp.py"))
    assert trained(finished) == [f"trained {rank} of 2 by smddp" for rank in (0, 1)]


@needs("transformers")
def test_transformers_finds_the_library_where_the_job_asked_for_it(paceline, tmp_path):
    finished = paceline.run(*ON_TWO_RANKS, *ASKED, str(SCRIPTS / "transformers_smddp.py"), str(tmp_path / "out"))
    assert trained(finished) == [f"trained {rank} of 2 by smddp sagemaker_data_parallel" for rank in (0, 1)]
    assert steps_by_rank(paceline) == {0: 4, 1: 4}


@needs("transformers")
def test_a_job_that_did_not_ask_is_not_switched(paceline):
    script = "from transformers.utils import is_sagemaker_dp_enabled as asked, is_sagemaker_mp_enabled as split\nprint(asked(), split())\n"
    finished = paceline.run("run", paceline.script("ask.py", script))
    assert (finished.code, finished.out) == (0, "False False\n"), finished.err


@needs_mpi
def test_mpirun_starts_the_ranks_and_paceline_watches_them(paceline):
    finished = paceline.run("run", "--no-python", *MPIRUN, sys.executable, str(SCRIPTS / "mpi_script.py"))
    assert trained(finished) == [f"rank {rank} of 2 paceline_mpi" for rank in (0, 1)]
    assert steps_by_rank(paceline) == {0: 6, 1: 6}


@needs_mpi
def test_an_error_of_a_rank_below_mpirun_is_the_headline(paceline):
    finished = paceline.run("run", "--no-python", *MPIRUN, sys.executable, str(SCRIPTS / "mpi_script.py"), "a reason")
    assert finished.code == 1
    assert "raised ValueError: a reason" in finished.err[finished.err.index("failed  r-") :]
