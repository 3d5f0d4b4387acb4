"""The number of a rank, from the variables that its launcher or its script set. They are another program's words, and are checked. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_LOCAL = 4096
"""Ranks that one host is believed to have."""
_MOST_DIGITS, _MOST_PORT = 7, 65535
_LONGEST_VALUE = 512
_PREFIXES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "MPI_LOCAL")
_NAMES = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID",
    "SLURM_NTASKS_PER_NODE", "SLURM_RESTART_COUNT",
    "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "PACELINE_RUN_ID", "PACELINE_ATTEMPT", "PACELINE_MARK",
})  # fmt: skip
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|KEY", re.IGNORECASE)
_HOST = re.compile(r"[\w.:%\[\]-]{1,253}", re.ASCII)
# Rank, world size, rank on this host, ranks on this host. What a script sets itself comes before what its launcher set.
_FAMILIES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ("SLURM_NTASKS_PER_NODE",)),
)
# Slurm's steps that are no srun: batch, interactive, external.
_FIRST_SPECIAL_STEP = 4_294_967_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNumbers:
    """What variables say about a rank."""

    rank: int
    """Its global number."""
    world_size: int | None = None
    """Ranks of the job; None: not said, or not to be believed."""
    local_rank: int | None = None
    """Its number on its host."""
    local_size: int | None = None
    """Ranks that its launcher started on its host."""
    variable: str = "RANK"
    """The variable that its number is from."""
    port: int | None = None
    """Port of the store."""


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are kept of an environment: those that tell which rank of which job it is. No secret is among them."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name) and len(value) <= _LONGEST_VALUE
    }


def numbers_in(environment: Mapping[str, str]) -> RankNumbers | None:
    """The numbers of a rank; None: the variables name none that can be one.

    Holds:   numbers_in({"RANK": "2", "WORLD_SIZE": "2"}) is None
    """
    for rank_name, size_name, local_name, local_sizes in _FAMILIES:
        rank, size = number(environment.get(rank_name)), number(environment.get(size_name))
        if rank is None or (size is None and rank_name != "RANK") or (size is not None and rank >= size):
            continue
        if rank_name == "SLURM_PROCID" and not _is_step(environment):
            continue
        local = number(environment.get(local_name))
        local_size = next((found for name in local_sizes if (found := number(environment.get(name))) is not None), None)
        if rank_name == "SLURM_PROCID" and environment.get("SLURM_NNODES") == "1":
            local_size = size
        if local_size is not None and not 0 < local_size <= min(MOST_LOCAL, size or MOST_LOCAL):
            local_size = None
        if local is not None and local >= (local_size or size or MOST_LOCAL):
            local = None
        return RankNumbers(
            rank=rank,
            world_size=size,
            local_rank=local,
            local_size=local_size,
            variable=rank_name,
            port=_port(environment),
        )
    return None


def master_of(environment: Mapping[str, str]) -> str | None:
    """host:port of the job's store; None: not said, or no such address."""
    host, port = environment.get("MASTER_ADDR", ""), _port(environment)
    return f"{host}:{port}" if port and _HOST.fullmatch(host) else None


def number(text: str | None) -> int | None:
    """A number of few digits; None: it is none.

    Holds:   number("-1") is None; number("99999999999") is None
    """
    return int(text) if text and len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None


def _port(environment: Mapping[str, str]) -> int | None:
    port = number(environment.get("MASTER_PORT"))
    return port if port and port <= _MOST_PORT else None


def _is_step(environment: Mapping[str, str]) -> bool:
    """Whether srun started it. A batch script has the variables of its job, and is no task of a step."""
    step = environment.get("SLURM_STEP_ID", "")
    return step.isascii() and step.isdigit() and len(step) <= 10 and int(step) < _FIRST_SPECIAL_STEP
