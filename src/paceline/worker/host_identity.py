"""A string that is equal for ranks on the same host and different otherwise."""

import os


def host_key() -> str:
    """What the agent calls this host, which tells emulated hosts of one machine apart; without an agent this machine since its start."""
    return os.environ.get("PACELINE_HOST") or f"{os.uname().nodename} {_boot_id()}"


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
