"""A string that is equal for ranks on the same host and different otherwise."""

import os

from ..process_identity import machine_key


def host_key() -> str:
    """The agent's name for this host, which differs between emulated hosts of one machine. Without an agent: host name and boot id."""
    return os.environ.get("PACELINE_HOST") or machine_key()
