"""Makes a Network of the options of `paceline run --local-hosts` for links, zones and limits. It has no side effects.

Each option raises UsageError X30 if its value is implausible, X31 without --local-hosts, X32 if options do not fit
together.
"""

import argparse
import re
from collections.abc import Mapping

from paceline.errors import UsageError
from paceline.parts.lab.emulate.network import Network

OPTIONS = ("link-rate", "link-delay", "link-loss", "zones", "zone-delay", "host-cpus", "host-memory")

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_QUANTITY = re.compile(rf"{_NUMBER}\s*(\D*)")
_MBIT = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "tbit": 1e6}
_MILLISECONDS = {"us": 1e-3, "usec": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "msec": 1.0, "s": 1e3, "sec": 1e3}
_BYTES = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
# Units that tc reads as bytes and most people mean as bits, with the probable meaning.
_DOUBTFUL = {
    f"{size}{word}": f"{size}bit" for size in ("k", "m", "g", "t") for word in ("bps", "b", "b/s", "bits", "bytes")
}
_LEAST_RATE_MBIT, _MOST_DELAY_MS, _LEAST_MEMORY_BYTES, _LEAST_CPUS = 0.1, 10_000.0, 16 << 20, 0.01


def network_of(args: argparse.Namespace) -> Network | None:
    """The requested network; None if no option of it is given.

    Raises:  UsageError X30 value, X31 no --local-hosts, X32 options that do not fit together
    """
    given = [f"--{name} {value}" for name in OPTIONS if (value := getattr(args, name.replace("-", "_"))) is not None]
    if not given:
        return None
    if args.local_hosts is None:
        raise UsageError(
            "X31",
            f"{given[0].split()[0]} is for hosts on this machine, and --local-hosts is not given",
            saw=" ".join(given),
            next=f"paceline run --local-hosts 2 {' '.join(given)} ...",
        )
    network = Network(
        rate_mbit=None if args.link_rate is None else rate_mbit(args.link_rate),
        delay_ms=0.0 if args.link_delay is None else delay_ms("--link-delay", args.link_delay),
        loss_fraction=0.0 if args.link_loss is None else loss_fraction(args.link_loss),
        zone_count=1 if args.zones is None else args.zones,
        zone_delay_ms=0.0 if args.zone_delay is None else delay_ms("--zone-delay", args.zone_delay),
        host_cpus=None if args.host_cpus is None else cpus(args.host_cpus),
        host_memory_bytes=None if args.host_memory is None else memory_bytes(args.host_memory),
    )
    _fit(args, network, given)
    return network


def rate_mbit(text: str) -> float:
    """10^6 bits per second of a rate in tc's notation, or in a data sheet's.

    Holds:   "1gbit" -> 1000.0; "100mbit" == "100 Mbit/s"
    Source:  tc(8), RATES, where bps is bytes per second
    """
    number, unit = _split("--link-rate", text, _MBIT, "100mbit", doubtful=_DOUBTFUL, slash=True)
    rate = number * _MBIT[unit]
    if rate < _LEAST_RATE_MBIT:
        raise _bad("--link-rate", text, f"a rate of {_LEAST_RATE_MBIT * 1e3:g} kbit or more", "100mbit")
    return rate


def delay_ms(option: str, text: str) -> float:
    """Milliseconds of "5ms", "200us" or "0.1s".

    Holds:   "0.1s" -> 100.0
    """
    number, unit = _split(option, text, _MILLISECONDS, "5ms")
    delay = number * _MILLISECONDS[unit]
    if delay > _MOST_DELAY_MS:
        raise _bad(option, text, f"a delay of {_MOST_DELAY_MS / 1e3:g} s or less", "5ms")
    return delay


def loss_fraction(text: str) -> float:
    """Holds:   "0.1%" -> 0.001"""
    number, _ = _split("--link-loss", text, {"%": 1.0}, "0.1%")
    if number >= 100:
        raise _bad("--link-loss", text, "a loss below 100%", "0.1%")
    return number / 100


def memory_bytes(text: str) -> int:
    """Holds:   "2gib" -> 2147483648"""
    doubtful = {f"{size}{word}": f"{size}ib" for size in ("k", "m", "g", "t") for word in ("", "b")}
    number, unit = _split("--host-memory", text, _BYTES, "2gib", doubtful=doubtful)
    size = round(number * _BYTES[unit])
    if size < _LEAST_MEMORY_BYTES:
        raise _bad("--host-memory", text, f"a memory of {_LEAST_MEMORY_BYTES >> 20} mib or more", "2gib")
    return size


def cpus(text: str) -> float:
    """CPUs as a number: 0.5 is half of one CPU's time."""
    match = re.fullmatch(_NUMBER, text.strip())
    if match is None or float(match[0]) < _LEAST_CPUS:
        raise _bad("--host-cpus", text, f"a number of CPUs, {_LEAST_CPUS} or more", "0.5")
    return float(match[0])


def _split(
    option: str,
    text: str,
    units: Mapping[str, float],
    example: str,
    *,
    doubtful: Mapping[str, str] | None = None,
    slash: bool = False,
) -> tuple[float, str]:
    """The number and the unit. The unit is one of `units`."""
    match = _QUANTITY.fullmatch(text.strip().lower())
    unit = match[2] if match else ""
    plain = unit.removesuffix("/s") if slash else unit
    if match and plain in units:
        return float(match[1]), plain
    if match and unit in (doubtful or {}):
        likely = f"{match[1]}{(doubtful or {})[unit]}"
        raise UsageError(
            "X30",
            f"{option} {text} can be read in two ways",
            saw=f"{unit or 'no unit'}; units are {', '.join(units)}",
            next=f"paceline run {option} {likely} ...",
        )
    if match and not unit:
        likely = f"{match[1]}{example.lstrip('0123456789.')}" if float(match[1]) else example
        raise UsageError(
            "X30",
            f"{option} {text} has no unit",
            saw=f"units are {', '.join(units)}",
            next=f"paceline run {option} {likely} ...",
        )
    raise _bad(option, text, f"a number with a unit ({', '.join(units)})", example)


def _bad(option: str, text: str, expected: str, example: str) -> UsageError:
    return UsageError(
        "X30",
        f"{option} {text} is not {expected}",
        next=f"{option} {example}",
    )


def _fit(args: argparse.Namespace, network: Network, given: list[str]) -> None:
    hosts = args.local_hosts
    links = [option for option in given if not option.startswith("--host-")]
    refused = (
        (network.zone_count < 1, f"--zones {network.zone_count} is not a number of zones", "--zones 2"),
        (
            network.zone_count > hosts,
            f"{network.zone_count} zones need as many hosts, and there {'is' if hosts == 1 else 'are'} {hosts}",
            f"--local-hosts {2 * network.zone_count} --zones {network.zone_count}",
        ),
        (bool(links) and hosts < 2, "a single host has no link to another one", f"--local-hosts 2 {' '.join(links)}"),
        (
            network.zone_count > 1 and not network.zone_delay_ms,
            f"--zones {network.zone_count} without a delay between them is one zone",
            f"--zones {network.zone_count} --zone-delay 1ms",
        ),
        (
            args.zone_delay is not None and network.zone_count < 2,
            "--zone-delay is between zones, and there is one",
            f"--zones 2 --zone-delay {args.zone_delay}",
        ),
    )
    for is_refused, what, next_words in refused:
        if is_refused:
            raise UsageError(
                "X32", what, saw=f"--local-hosts {hosts} {' '.join(given)}", next=f"paceline run {next_words} ..."
            )
