"""Makes `jax.distributed.initialize()` without arguments find the ranks of the job.

Source:  jax 0.10 jax/_src/clusters/cluster.py, `ClusterEnv`, whose subclasses are asked in the order of a list
"""

import json
import os
from types import ModuleType

_ADDRESSES = "PACELINE_RANK_ADDRESSES"


def register(module: ModuleType) -> None:
    """Add the ranks of this job before all other clusters: paceline may itself run on Slurm, whose variables count its agents."""

    class Ranks(module.ClusterEnv):  # type: ignore[misc, name-defined]
        """The ranks of a job of paceline. The first rank serves the others at its port."""

        name = "paceline"

        @classmethod
        def is_env_present(cls) -> bool:
            return _ADDRESSES in os.environ

        @classmethod
        def get_coordinator_address(
            cls, timeout_secs: int | None = None, override_coordinator_port: str | None = None
        ) -> str:
            first: str = json.loads(os.environ[_ADDRESSES])[0]
            return f"{first.rpartition(':')[0]}:{override_coordinator_port}" if override_coordinator_port else first

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["RANK"])

        @classmethod
        def get_local_process_id(cls) -> int | None:
            # A rank that is alone on its host has all its devices.
            return int(os.environ["LOCAL_RANK"]) if os.environ["LOCAL_WORLD_SIZE"] != "1" else None

    known = module.ClusterEnv._cluster_types
    known.remove(Ranks)
    known.insert(0, Ranks)
