"""The backend over MPI: its names, what it exchanges between ranks that a real mpirun started, and how a job over it ends."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient
from ports import free_port

from paceline.clone import install_command
from paceline.parts.comm.mpi.register import is_mpi, rewritten

PROGRAM = Path(__file__).parents[1] / "mpi_cases.py"
CASES = re.findall(r"^def (case_\w+)", PROGRAM.read_text(), re.MULTILINE)
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
BEGIN = (
    "import sys, torch, torch.distributed as dist\n"
    "from paceline.parts.comm.backends import register\n"
    "register(lambda: 'here')\n"
    "dist.init_process_group('mpi')\n"
    "rank = dist.get_rank()\n"
)

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None, reason="no mpirun, or no mpi4py"
)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("mpi", "paceline_mpi"),
        ("MPI", "paceline_mpi"),
        ("paceline_mpi", "paceline_mpi"),
        ("cpu:mpi,cuda:nccl", "cpu:paceline_mpi,cuda:nccl"),
        ("gloo", "gloo"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl"),
        (None, None),
    ],
)
def test_the_name_that_torch_would_refuse_is_rewritten(asked, told):
    assert rewritten(asked) == told


def test_a_torch_that_was_built_with_mpi_keeps_its_own():
    assert rewritten("mpi", ()) == "mpi"


def test_the_address_is_mpis_where_the_backend_is_nothing_else():
    assert is_mpi("paceline_mpi") and not is_mpi("cpu:paceline_mpi,cuda:nccl") and not is_mpi(None)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, make_user_environment):
    directory = tmp_path_factory.mktemp("mpi")
    left = mpirun(4, [str(PROGRAM), str(directory)], make_user_environment(directory))
    files = [directory / f"{rank}.json" for rank in range(4)]
    assert all(file.exists() for file in files), left.stderr
    return [json.loads(file.read_text()) for file in files], left


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", CASES)
def test_four_ranks_of_one_mpirun(outcomes, case):
    for rank, outcome in enumerate(outcomes[0]):
        if case in outcome["failed"]:
            pytest.fail(f"rank {rank}: {outcome['failed'][case]}")
        assert CASES.index(case) <= CASES.index(outcome["last"]), f"not reached on rank {rank}"


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
@pytest.mark.timeout(300)
def test_the_conformance_suite(tmp_path, user_environment):
    program = PROGRAM.with_name("run_conformance_mpi.py")
    left = mpirun(4, ["-W", "ignore::FutureWarning", str(program), str(tmp_path)], user_environment, 240)
    files = sorted(tmp_path.glob("*.json"))
    outcomes = [json.loads(file.read_text()) for file in files]
    assert len(outcomes) == 4, left.stderr
    assert not any(outcome["error"] for outcome in outcomes), "\n".join(outcome["error"] for outcome in outcomes)
    assert all(len(outcome["passed"]) > 120 for outcome in outcomes) and left.returncode == 0, left.stderr


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
def test_mpi_was_left_in_order(outcomes):
    assert outcomes[1].returncode == 0 and "MPI_ABORT" not in outcomes[1].stderr, outcomes[1].stderr


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
@pytest.mark.parametrize(
    ("end", "seen"),
    [
        ("raise ValueError('of rank 1')", "of rank 1"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("sys.exit(3)", "rank 1 has left"),
        ("dist.destroy_process_group(); sys.exit()", "rank 1 has left"),
    ],
)
def test_a_rank_that_ends_within_an_exchange_ends_them_all(end, seen, user_environment):
    script = f"{BEGIN}dist.barrier()\nif rank == 1: {end}\ndist.barrier()\n"
    left = mpirun(2, ["-c", script], user_environment)
    assert left.returncode != 0 and seen in left.stdout + left.stderr, left


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
def test_alone_it_is_a_group_of_one(user_environment):
    script = f"{BEGIN}dist.all_reduce(torch.ones(2))\nprint(rank, dist.get_world_size())"
    left = subprocess.run(
        [sys.executable, "-c", script], env=user_environment, capture_output=True, text=True, timeout=60
    )
    assert (left.returncode, left.stdout) == (0, "0 1\n"), left.stderr


@needs_mpi
@pytest.mark.process
@pytest.mark.exchange
def test_ranks_that_mpi_did_not_start_are_told_how_it_can(user_environment):
    address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", BEGIN],
            env=user_environment | address | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=patient(90))
        assert rank.returncode == 1 and "error[X03]: these 2 ranks were not started by MPI" in err
        assert "paceline run --no-python mpirun -n 2 python SCRIPT" in err and "MPI_ABORT" not in err


@pytest.mark.process
@pytest.mark.exchange
def test_without_mpi4py_the_error_says_what_to_install(user_environment):
    script = f"import sys\nsys.modules['mpi4py'] = None\n{BEGIN}"
    left = subprocess.run(
        [sys.executable, "-c", script], env=user_environment, capture_output=True, text=True, timeout=60
    )
    assert left.returncode == 1 and "error[X03]: " in left.stderr and install_command("mpi") in left.stderr


def mpirun(
    ranks: int, words: list[str], environment: dict[str, str], seconds: float = 110
) -> subprocess.CompletedProcess[str]:
    command = [*MPIRUN, "-n", str(ranks), sys.executable, *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # mpirun ends its ranks when it is asked to, and leaves them behind when it is killed.
        process.terminate()
        process.communicate(timeout=10)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
