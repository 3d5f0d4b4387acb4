"""The environment variables of one rank: torchrun's, the contract's, and those for paceline's code in the rank. Pure."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.launch.agent.fork_server_client import STATE_VARIABLE
from paceline.launch.agent.host_attempt import HostAttempt
from paceline.launch.job.messages import StartAttemptMessage
from paceline.part import rank_modules

SITE_DIRECTORY = Path(__file__).resolve().parents[2] / "worker" / "site"


def rank_environment(attempt: HostAttempt, local_rank: int) -> dict[str, str]:
    """All environment variables of the worker process with this local rank.

    The user's value wins if a variable is a tuning choice (OMP_NUM_THREADS, NCCL_RAS_ADDR).
    Our value wins if a variable says which rank the process is.

    Holds:   RANK == first_rank + local_rank; WORLD_SIZE is the same on every rank of an attempt
    Source:  torch 2.13 torch/distributed/elastic/agent/server/local_elastic_agent.py, `_start_workers`
    """
    job, identity, message, placement = attempt.job, attempt.identity, attempt.message, attempt.placement
    inherited, errors = identity.environ, attempt.errors
    rank = placement.first_rank + local_rank
    environment = dict(inherited)
    environment.update(attempt.prepared.environment)
    environment.update(identity.extra_environment)
    environment.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(message.world_size),
            "LOCAL_WORLD_SIZE": str(placement.ranks),
            "GROUP_RANK": str(placement.node_rank),
            "GROUP_WORLD_SIZE": str(len(message.placements)),
            "ROLE_RANK": str(rank),
            "ROLE_NAME": job.role,
            "ROLE_WORLD_SIZE": str(message.world_size),
            "MASTER_ADDR": message.master_addr,
            "MASTER_PORT": str(message.store_port),
            "TORCHELASTIC_RESTART_COUNT": str(message.attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(job.max_restarts),
            "TORCHELASTIC_RUN_ID": attempt.rendezvous_id,
            # "True" makes every rank a client of the store; else rank 0 serves it.
            "TORCHELASTIC_USE_AGENT_STORE": str(message.agent_store),
            "PACELINE_STORE_PORT": str(message.store_port),
            "TORCHELASTIC_ERROR_FILE": str(errors / f"torchelastic_{rank}.json"),
            "PACELINE_RUN_ID": identity.run_id,
            "PACELINE_ATTEMPT": str(message.attempt),
            "PACELINE_HOST": placement.host,
            "PACELINE_MARK": identity.mark,
            "PACELINE_AGENT_PID": str(os.getpid()),
            "PACELINE_RING_DIR": str(attempt.scratch.rings),
            "PACELINE_SOCKET_DIR": str(attempt.scratch.sockets),
            "PACELINE_ERROR_DIR": str(errors),
            "PACELINE_PARTS": rank_modules(),
            "PYTHONPATH": _python_path(attempt.prepared.working_directory, inherited),
        }
    )
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    # Much training code calls setproctitle. It would overwrite the environment, and the mark with it.
    environment.setdefault("SPT_NOENV", "1")
    # A process with the token may join and stop the job. A rank needs neither.
    environment.pop("PACELINE_TOKEN", None)
    # A run that starts inside a rank of another run has ranks of its own.
    environment.pop("PACELINE_RANK_ADDRESSES", None)
    # They may have another Python too.
    environment.pop("PACELINE_PREFIX", None)
    # A run that starts inside a rank of another run must not write to the other rank's state buffer.
    environment.pop(STATE_VARIABLE, None)
    if message.hash_seed is not None:
        environment.setdefault("PYTHONHASHSEED", str(message.hash_seed))
    if placement.ranks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    # Jobs of one user on a host share NCCL's own port, and the answer may be another job's.
    if attempt.ras_address is not None and environment.get("NCCL_RAS_ENABLE") != "0":
        environment.setdefault("NCCL_RAS_ADDR", attempt.ras_address)
    _say_strategy(environment, message)
    if identity.addresses:
        environment["PACELINE_ADDRESSES"] = json.dumps(dict(identity.addresses), sort_keys=True)
    if job.virtual_local_rank:
        environment.update(_virtual_local_rank(local_rank, inherited))
    return environment


def substitute_local_rank(arguments: Sequence[str], local_rank: int) -> list[str]:
    """Replace `${local_rank}`, torchrun's only macro, in each argument. All other text stays as it is."""
    return [argument.replace("${local_rank}", str(local_rank)) for argument in arguments]


def _python_path(code_dir: str | None, inherited: Mapping[str, str]) -> str:
    """Ours, then the job's code, as SageMaker has it for scripts that lie deeper, then the user's.

    Source:  sagemaker-training toolkit 5.1, entry_point.py `run`, environment.py `write_env_vars`
    """
    # Python reads an empty entry as the current directory, so no empty entry may be added.
    return ":".join(filter(None, (str(SITE_DIRECTORY), code_dir, inherited.get("PYTHONPATH"))))


def _say_strategy(environment: dict[str, str], message: StartAttemptMessage) -> None:
    # A run that starts inside a rank of another run must not inherit the other run's strategy.
    for name in ("PACELINE_GRADIENTS", "PACELINE_ALLOW_LOSSY"):
        environment.pop(name, None)
    if message.gradients is not None:
        environment["PACELINE_GRADIENTS"] = message.gradients
        if message.allow_lossy:
            environment["PACELINE_ALLOW_LOSSY"] = "1"


def _virtual_local_rank(local_rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    visible = inherited.get("CUDA_VISIBLE_DEVICES")
    device = visible.split(",")[local_rank].strip() if visible else str(local_rank)
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": device}
