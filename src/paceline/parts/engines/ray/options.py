"""The `--option KEY=VALUE` options of the Ray engine: the cluster, and the resources that each host of the job takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.errors import UsageError
from paceline.parts.engines.base import known_options

NAMES = ("address", "cpus_per_host", "gpus_per_host", "memory_per_host", "resources", "strategy", "wait")
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
EMBEDDED = "local"
AUTO = "auto"
_UNITS = {
    "": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """The cluster of a job, and the resources that the job takes."""

    address: str
    """HOST:PORT of a cluster's head, "auto", or "local" for an embedded cluster on this machine."""
    bundle: Mapping[str, float] = field(default_factory=dict)
    """Ray's name of a resource -> the amount that one host takes. Memory is in bytes."""
    strategy: str | None = None
    """Ray's placement strategy; None: every host has its own node."""
    wait_seconds: float = 0.0
    """How long the first attempt waits for missing nodes to join the cluster."""

    def strategy_for(self, hosts: int) -> str:
        """Ray's placement strategy. Each host of the job has its own node, unless the user chooses another strategy."""
        return self.strategy or ("STRICT_SPREAD" if hosts > 1 else "PACK")


def read_options(options: Mapping[str, str], address: str | None) -> RayOptions:
    """The options of `--option`. `address`: RAY_ADDRESS of the submitting process, for a job that names no address.

    Raises:  UsageError U03: an unknown option, or an invalid value
    """
    known_options("ray", options, NAMES)
    bundle = {
        "CPU": _number("cpus_per_host", options.get("cpus_per_host", "1")),
        "GPU": _number("gpus_per_host", options.get("gpus_per_host", "0")),
        "memory": float(_bytes(options.get("memory_per_host", "0"))),
        **_resources(options.get("resources", "")),
    }
    taken = {name: amount for name, amount in bundle.items() if amount}
    if not taken:
        raise _bad("cpus_per_host", "0", "something that a host takes of the cluster", "1")
    return RayOptions(
        address=_address(options.get("address") or address or EMBEDDED),
        bundle=taken,
        strategy=_strategy(options.get("strategy")),
        wait_seconds=_seconds(options.get("wait", "0")),
    )


def _address(text: str) -> str:
    if text in (EMBEDDED, AUTO) or re.fullmatch(r"(ray://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):\d{1,5}(/.*)?", text):
        return text
    raise _bad("address", text, "HOST:PORT of a cluster's head, auto, or local", "10.0.0.1:6379")


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    # Ray accepts fractions below one, and only whole numbers above one.
    if not 0 <= number < 1e6 or (number > 1 and number != int(number)):
        raise _bad(name, text, "a whole number, or a part of one", "4")
    return number


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise _bad("memory_per_host", text, "bytes, or a size such as 8GiB", "8GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise _bad("wait", text, "a duration", "10m")
    return float(match[1]) * _SECONDS[match[2]]


def _strategy(text: str | None) -> str | None:
    if text is not None and text.upper() not in STRATEGIES:
        raise _bad("strategy", text, "one of " + ", ".join(STRATEGIES), "PACK")
    return text and text.upper()


def _resources(text: str) -> dict[str, float]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, equals, amount in pairs:
        if not equals or not name.strip() or name.strip() in ("CPU", "GPU", "memory"):
            raise _bad("resources", text, "NAME=AMOUNT,NAME=AMOUNT of the cluster's own resources", "fast_network=1")
        _number("resources", amount)
    return {name.strip(): float(amount) for name, _, amount in pairs}


def _bad(name: str, value: str, expected: str, example: str) -> UsageError:
    return UsageError(
        "U03", f"--option {name}={value} is not {expected}", saw=f"{name}={value}", next=f"--option {name}={example}"
    )
