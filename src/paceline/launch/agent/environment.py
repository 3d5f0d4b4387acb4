"""The environment of one rank: torchrun's variables, the contract's, and what paceline's own part in the rank needs. Pure."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.launch.job.state import Placement

SITE_DIRECTORY = Path(__file__).resolve().parents[2] / "worker" / "site"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnvironment:
    """What the ranks of one host share in one attempt."""

    run_id: str
    """Id of the run."""
    rendezvous_id: str
    """torchrun's name of the rendezvous, in TORCHELASTIC_RUN_ID."""
    role: str
    """torchrun's name for the group of ranks."""
    attempt: int
    """The attempt, counted from 0."""
    max_restarts: int
    """How often all ranks may be started again after a failure."""
    placement: Placement
    """This host's part of the attempt."""
    host_count: int
    """Hosts of the attempt."""
    world_size: int
    """Ranks of the attempt, over all hosts."""
    master_addr: str
    """The host on which rank 0 serves the store, as this host reaches it."""
    store_port: int
    """The store's port there."""
    mark: str
    """What every process of the job on this host carries in PACELINE_MARK."""
    ring_dir: Path
    """Where ranks put their rings."""
    socket_dir: Path
    """Where ranks put their sockets."""
    error_dir: Path
    """Where a rank leaves the exception that ended it."""
    virtual_local_rank: bool = False
    """Every rank sees LOCAL_RANK 0 and its own device alone."""
    contract: Mapping[str, str] = field(default_factory=dict)
    """Variables of the SageMaker contract."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Host name -> address, for names that nothing else resolves; empty: all names are resolved."""
    gradients: str | None = None
    """The strategy of --gradients; None: the script's own exchange."""
    allow_lossy: bool = False
    """`auto` may choose a strategy that is not exact."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further variables of every rank."""


def rank_environment(shared: AttemptEnvironment, local_rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Everything the worker process with this local rank gets.

    The user's own settings win where a variable is a tuning choice (OMP_NUM_THREADS);
    ours win where it says who the rank is.

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
            # The store belongs to rank 0 of this attempt: "True" would make every rank a client of an agent's store.
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": str(shared.error_dir / f"torchelastic_{rank}.json"),
            "PACELINE_RUN_ID": shared.run_id,
            "PACELINE_ATTEMPT": str(shared.attempt),
            "PACELINE_HOST": placement.host,
            "PACELINE_MARK": shared.mark,
            "PACELINE_AGENT_PID": str(os.getpid()),
            "PACELINE_RING_DIR": str(shared.ring_dir),
            "PACELINE_SOCKET_DIR": str(shared.socket_dir),
            "PACELINE_ERROR_DIR": str(shared.error_dir),
            "PYTHONPATH": _python_path(inherited),
        }
    )
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    # setproctitle, which much training code calls, would write the title over the environment, and with it over the mark.
    environment.setdefault("SPT_NOENV", "1")
    # Whoever has it may join and stop the job; a rank needs neither.
    environment.pop("PACELINE_TOKEN", None)
    if placement.ranks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    _say_strategy(environment, shared)
    if shared.addresses:
        environment["PACELINE_ADDRESSES"] = json.dumps(dict(shared.addresses), sort_keys=True)
    if shared.virtual_local_rank:
        environment.update(_virtual_local_rank(local_rank, inherited))
    return environment


def substitute_local_rank(arguments: Sequence[str], local_rank: int) -> list[str]:
    """torchrun's one macro: `${local_rank}` in an argument; everything else stays untouched."""
    return [argument.replace("${local_rank}", str(local_rank)) for argument in arguments]


def _python_path(inherited: Mapping[str, str]) -> str:
    users = inherited.get("PYTHONPATH")
    # An empty entry means the current directory to Python, so it must not appear where the user had none.
    return f"{SITE_DIRECTORY}:{users}" if users else str(SITE_DIRECTORY)


def _say_strategy(environment: dict[str, str], shared: AttemptEnvironment) -> None:
    # A run inside a rank of another one must not take over that one's strategy.
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
