"""The environment variables of one rank: torchrun's, the contract's, and those for paceline's code in the rank. Pure."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.facts import Placement
from paceline.launch.agent.fork_server_client import STATE_VARIABLE
from paceline.part import rank_modules

SITE_DIRECTORY = Path(__file__).resolve().parents[2] / "worker" / "site"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnvironment:
    """The values that the ranks of one host share in one attempt."""

    run_id: str
    """Id of the run."""
    rendezvous_id: str
    """torchrun's name of the rendezvous, in TORCHELASTIC_RUN_ID."""
    role: str
    """torchrun's name for the group of ranks."""
    attempt: int
    """Number of the attempt, counted from 0."""
    max_restarts: int
    """How many times all ranks may be started again after a failure."""
    placement: Placement
    """This host's part of the attempt."""
    host_count: int
    """Number of hosts of the attempt."""
    world_size: int
    """Number of ranks of the attempt, over all hosts."""
    master_addr: str
    """The address at which this host reaches the ranks' store."""
    store_port: int
    """The port of that store."""
    agent_store: bool = False
    """A process of the first host's agent holds the store; False: rank 0 does."""
    mark: str
    """The value of PACELINE_MARK in every process of the job on this host."""
    ring_dir: Path
    """The directory of the ranks' rings."""
    socket_dir: Path
    """The directory of the ranks' sockets."""
    error_dir: Path
    """The directory in which a rank writes the exception that ended it."""
    virtual_local_rank: bool = False
    """Every rank sees LOCAL_RANK 0 and only its own device."""
    contract: Mapping[str, str] = field(default_factory=dict)
    """Variables of the SageMaker contract."""
    code_dir: str | None = None
    """The directory of the job's code, in which the ranks start; None: they start where the job was started."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Host name -> address, for names that the resolver does not know; empty: the resolver knows all names."""
    gradients: str | None = None
    """The strategy of --gradients; None: the script's own exchange."""
    allow_lossy: bool = False
    """`auto` may choose a strategy that is not exact."""
    hash_seed: int | None = None
    """PYTHONHASHSEED of every rank, if the user has set none; None: ranks have none."""
    ras_address: str | None = None
    """Where NCCL's RAS service of this host's ranks listens, if the user has set nothing about it; None: at its own port."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further variables of every rank."""


def rank_environment(shared: AttemptEnvironment, local_rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """All environment variables of the worker process with this local rank.

    The user's value wins if a variable is a tuning choice (OMP_NUM_THREADS, NCCL_RAS_ADDR).
    Our value wins if a variable says which rank the process is.

    Holds:   RANK == first_rank + local_rank; WORLD_SIZE is the same on every rank of an attempt
    Source:  torch 2.13 torch/distributed/elastic/agent/server/local_elastic_agent.py, `_start_workers`
    """
    placement = shared.placement
    rank = placement.first_rank + local_rank
    environment = dict(inherited)
    environment.update(shared.contract)
    environment.update(shared.extra)
    environment.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(shared.world_size),
            "LOCAL_WORLD_SIZE": str(placement.ranks),
            "GROUP_RANK": str(placement.node_rank),
            "GROUP_WORLD_SIZE": str(shared.host_count),
            "ROLE_RANK": str(rank),
            "ROLE_NAME": shared.role,
            "ROLE_WORLD_SIZE": str(shared.world_size),
            "MASTER_ADDR": shared.master_addr,
            "MASTER_PORT": str(shared.store_port),
            "TORCHELASTIC_RESTART_COUNT": str(shared.attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(shared.max_restarts),
            "TORCHELASTIC_RUN_ID": shared.rendezvous_id,
            # "True" makes every rank a client of the store; else rank 0 serves it.
            "TORCHELASTIC_USE_AGENT_STORE": str(shared.agent_store),
            "PACELINE_STORE_PORT": str(shared.store_port),
            "TORCHELASTIC_ERROR_FILE": str(shared.error_dir / f"torchelastic_{rank}.json"),
            "PACELINE_RUN_ID": shared.run_id,
            "PACELINE_ATTEMPT": str(shared.attempt),
            "PACELINE_HOST": placement.host,
            "PACELINE_MARK": shared.mark,
            "PACELINE_AGENT_PID": str(os.getpid()),
            "PACELINE_RING_DIR": str(shared.ring_dir),
            "PACELINE_SOCKET_DIR": str(shared.socket_dir),
            "PACELINE_ERROR_DIR": str(shared.error_dir),
            "PACELINE_PARTS": rank_modules(),
            "PYTHONPATH": _python_path(shared.code_dir, inherited),
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
    if shared.hash_seed is not None:
        environment.setdefault("PYTHONHASHSEED", str(shared.hash_seed))
    if placement.ranks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    # Jobs of one user on a host share NCCL's own port, and the answer may be another job's.
    if shared.ras_address is not None and environment.get("NCCL_RAS_ENABLE") != "0":
        environment.setdefault("NCCL_RAS_ADDR", shared.ras_address)
    _say_strategy(environment, shared)
    if shared.addresses:
        environment["PACELINE_ADDRESSES"] = json.dumps(dict(shared.addresses), sort_keys=True)
    if shared.virtual_local_rank:
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


def _say_strategy(environment: dict[str, str], shared: AttemptEnvironment) -> None:
    # A run that starts inside a rank of another run must not inherit the other run's strategy.
    for name in ("PACELINE_GRADIENTS", "PACELINE_ALLOW_LOSSY"):
        environment.pop(name, None)
    if shared.gradients is not None:
        environment["PACELINE_GRADIENTS"] = shared.gradients
        if shared.allow_lossy:
            environment["PACELINE_ALLOW_LOSSY"] = "1"


def _virtual_local_rank(local_rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    visible = inherited.get("CUDA_VISIBLE_DEVICES")
    device = visible.split(",")[local_rank].strip() if visible else str(local_rank)
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": device}
