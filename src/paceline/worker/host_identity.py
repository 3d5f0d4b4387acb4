"""A string that is equal for ranks on the same host and different otherwise."""

import os

from ..process_identity import machine_key


def host_key() -> str:
    """What the agent calls this host, which tells emulated hosts of one machine apart; without an agent this machine since its start."""
    return os.environ.get("PACELINE_HOST") or machine_key()
