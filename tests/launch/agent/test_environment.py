"""The variables of one rank, as torchrun would set them and as paceline differs on purpose."""

import os

import pytest
from host_attempts import host_attempt

from paceline.facts import Placement
from paceline.launch.agent.environment import (
    SITE_DIRECTORY,
    rank_environment,
    substitute_local_rank,
)
from paceline.parts.plan.trace import script as traced_script


def test_a_rank_knows_its_place_on_its_host_and_in_the_job():
    environment = rank_environment(host_attempt(job={"rendezvous_id": "mine", "role": "trainer", "max_restarts": 3}), 2)
    expected = {
        "RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2", "ROLE_RANK": "6", "ROLE_NAME": "trainer", "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "algo-1", "MASTER_PORT": "20001", "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RUN_ID": "mine", "TORCHELASTIC_USE_AGENT_STORE": "False",
    }  # fmt: skip
    assert {name: environment[name] for name in expected} == expected


def test_a_script_that_is_traced_finds_the_variables_of_a_rank(monkeypatch):
    """Frameworks that find no run id of torchrun try the next launcher, mpi4py among them, whether or not there is an MPI library."""
    ours = {"PYTHONPATH", "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "SPT_NOENV"}
    of_a_rank = {name for name in rank_environment(host_attempt(), 0) if name not in ours}
    monkeypatch.setattr(os, "environ", {})
    traced_script.environment(4)
    assert {name for name in of_a_rank if not name.startswith("PACELINE_")} <= os.environ.keys()
    assert os.environ["WORLD_SIZE"] == os.environ["ROLE_WORLD_SIZE"] == "4"


@pytest.mark.parametrize(
    ("own", "address"),
    [
        ({}, "127.0.0.1:31000"),
        ({"NCCL_RAS_ADDR": "localhost:5"}, "localhost:5"),
        ({"NCCL_RAS_ENABLE": "0"}, None),
        ({"NCCL_RAS_ENABLE": "1"}, "127.0.0.1:31000"),
    ],
)
def test_what_the_user_says_about_nccls_ras_service_is_kept(own, address):
    environment = rank_environment(host_attempt(ras_address="127.0.0.1:31000", environ=own), 0)
    assert environment.get("NCCL_RAS_ADDR") == address
    assert rank_environment(host_attempt(environ=own), 0).get("NCCL_RAS_ADDR") == own.get("NCCL_RAS_ADDR")


def test_what_the_shell_says_about_ranks_is_overruled():
    environment = rank_environment(host_attempt(environ={"RANK": "77", "WORLD_SIZE": "2", "MASTER_PORT": "1"}), 0)
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["MASTER_PORT"]) == ("4", "8", "20001")


def test_the_users_own_tuning_wins():
    inherited = {"OMP_NUM_THREADS": "6", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    environment = rank_environment(host_attempt(environ=inherited), 0)
    assert {name: environment[name] for name in inherited} == inherited


def test_one_rank_on_a_host_keeps_all_its_threads_as_with_torchrun():
    alone = Placement(host="a", address="1", node_rank=0, first_rank=0, ranks=1)
    assert "OMP_NUM_THREADS" not in rank_environment(host_attempt(placements=(alone,)), 0)


@pytest.mark.parametrize(
    ("users", "code_dir", "expected"),
    [
        (None, None, f"{SITE_DIRECTORY}"),
        ("/a:/b", None, f"{SITE_DIRECTORY}:/a:/b"),
        ("", None, f"{SITE_DIRECTORY}"),
        (None, "/code", f"{SITE_DIRECTORY}:/code"),
        ("/a", "/code", f"{SITE_DIRECTORY}:/code:/a"),
    ],
)
def test_our_site_directory_comes_first_then_the_jobs_code_and_no_empty_entry(users, code_dir, expected):
    inherited = {} if users is None else {"PYTHONPATH": users}
    assert rank_environment(host_attempt(code_dir=code_dir, environ=inherited), 0)["PYTHONPATH"] == expected


def test_a_virtual_local_rank_is_0_and_sees_its_own_device():
    environment = rank_environment(
        host_attempt(job={"virtual_local_rank": True}, environ={"CUDA_VISIBLE_DEVICES": "4,6,7"}), 1
    )
    assert (environment["LOCAL_RANK"], environment["CUDA_VISIBLE_DEVICES"]) == ("0", "6")
    assert rank_environment(host_attempt(job={"virtual_local_rank": True}), 1)["CUDA_VISIBLE_DEVICES"] == "1"


def test_the_strategy_is_the_first_hosts_and_never_that_of_a_run_around_this_one():
    around = {"PACELINE_GRADIENTS": "ring", "PACELINE_ALLOW_LOSSY": "1"}
    names = sorted(name for name in rank_environment(host_attempt(environ=around), 0) if name in around)
    assert names == []
    chosen = rank_environment(host_attempt(gradients="auto", allow_lossy=True), 0)
    assert (chosen["PACELINE_GRADIENTS"], chosen["PACELINE_ALLOW_LOSSY"]) == ("auto", "1")
    exact = rank_environment(host_attempt(gradients="direct", environ=around), 0)
    assert exact["PACELINE_GRADIENTS"] == "direct" and "PACELINE_ALLOW_LOSSY" not in exact


def test_the_one_macro_of_torchrun_is_replaced_and_nothing_else():
    assert substitute_local_rank(["--r=${local_rank}", "$HOME", "${x}", "it's"], 3) == [
        "--r=3",
        "$HOME",
        "${x}",
        "it's",
    ]


def test_a_title_does_not_overwrite_the_mark_and_the_jobs_token_stays_with_the_agent():
    environment = rank_environment(host_attempt(environ={"PACELINE_TOKEN": "secret"}), 0)
    assert environment["SPT_NOENV"] == "1" and "PACELINE_TOKEN" not in environment
    assert rank_environment(host_attempt(environ={"SPT_NOENV": "0"}), 0)["SPT_NOENV"] == "0"
