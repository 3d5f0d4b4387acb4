"""K09: variables that the launcher owns."""

import pytest
from host_attempts import host_attempt

from paceline.findings import Severity
from paceline.launch.agent.environment import rank_environment
from paceline.rules.checks.k09_own_variables import OF_A_RANK


def test_conflicting_variables_are_named_with_harmless_values(found, job):
    environment = {"WORLD_SIZE": "16", "MASTER_ADDR": "algo-1", "LR": "1"}
    (finding,) = found("K09", job(environment=environment, hosts=2, ranks_per_host=4))
    assert finding.severity is Severity.WARNING
    assert "WORLD_SIZE and MASTER_ADDR" in finding.what
    assert finding.saw == "WORLD_SIZE=16, MASTER_ADDR=algo-1; this job: hosts: 2, 8 ranks"


@pytest.mark.parametrize("name", ["SM_HPS", "SM_HP_TOKEN", "SM_TRAINING_ENV", "MASTER_ADDR"])
def test_other_values_are_not_shown(found, job, name):
    (finding,) = found("K09", job(environment={name: "hunter2 secret"}))
    assert "hunter2" not in finding.what + finding.saw + finding.next
    assert finding.saw == f"{name}=***"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0"},
        {"SM_MODEL_DIR": "/tmp/model", "SM_OUTPUT_DATA_DIR": "/tmp/out"},
        {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
    ],
)
def test_what_is_the_jobs_own_or_agrees_draws_nothing(found, job, environment):
    assert not found("K09", job(environment=environment, hosts=2, ranks_per_host=4))


def test_the_table_is_what_the_launcher_sets():
    tuning = {"PYTHONPATH", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "SPT_NOENV"}
    names = {name for name in rank_environment(host_attempt(), 0) if not name.startswith("PACELINE_")}
    assert names - tuning == set(OF_A_RANK)
