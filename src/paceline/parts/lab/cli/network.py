"""Makes a Network of `paceline run --local-hosts N --network 1gbit,5ms,loss=0.1%`: links, zones and limits. It has no side effects.

It raises UsageError U03 if a value is implausible, U05 without --local-hosts, or if the words do not fit together.
"""

import argparse
import re
import shlex
from collections.abc import Callable, Mapping

from paceline.errors import UsageError
from paceline.parts.lab.emulate.network import Network
from paceline.spelling import nearest

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


class UnlikelyValue(Exception):
    """A value of the network that cannot be meant, and one that can."""

    def __init__(self, what: str, instead: str, saw: str = "") -> None:
        super().__init__(what)
        self.instead, self.saw = instead, saw


def network_of(args: argparse.Namespace) -> Network | None:
    """The requested network; None if none is.

    Holds:   "1gbit,5ms" == "rate=1gbit,delay=5ms"
    Raises:  UsageError U03 value, U05 no --local-hosts, or words that do not fit together
    """
    if args.network is None:
        return None
    if args.local_hosts is None:
        raise UsageError(
            "U05",
            "--network is for hosts on this machine, and --local-hosts is not given",
            saw=f"--network {args.network}",
            next=f"paceline run --local-hosts 2 --network {shlex.quote(args.network)} ...",
        )
    words = _words(args.network)
    values = {name: _value(words, name) for name in words}
    _fit(args.local_hosts, words, values)
    return Network(
        rate_mbit=values.get("rate"),
        delay_ms=values.get("delay", 0.0),
        loss_fraction=values.get("loss", 0.0),
        zone_count=int(values.get("zones", 1)),
        zone_delay_ms=values.get("zone-delay", 0.0),
        host_cpus=values.get("cpus"),
        host_memory_bytes=int(values["memory"]) if "memory" in values else None,
    )


def _words(text: str) -> dict[str, str]:
    """What is said, by its name. A rate and a delay need no name: their units tell them apart."""
    found: dict[str, str] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name, equals, value = word.partition("=")
        if not equals:
            name, value = ("delay" if _unit(word) in _MILLISECONDS else "rate"), word
        if name not in _READERS or name in found:
            near = nearest(name, _READERS)
            left = ",".join(other for other in text.split(",") if other.strip() != word) or "1gbit,5ms"
            raise UsageError(
                "U03",
                f"--network says the {name} twice" if name in found else f"--network knows no {name!r}",
                saw=f"{_text(found)} and {word}" if name in found else f"there are {', '.join(_READERS)}",
                next=f"--network {shlex.quote(text.replace(word, f'{near}={value}') if near and near != name else left)}",
            )
        found[name] = value
    return found


def _unit(text: str) -> str:
    match = _QUANTITY.fullmatch(text.strip().lower())
    return match[2] if match else ""


def _value(words: Mapping[str, str], name: str) -> float:
    try:
        return _READERS[name](words[name])
    except UnlikelyValue as unlikely:
        raise UsageError(
            "U03",
            f"the {name} {words[name]} of --network {unlikely}",
            saw=unlikely.saw,
            next=f"paceline run --network {shlex.quote(_text({**words, name: unlikely.instead}))} ...",
        ) from None


def _text(words: Mapping[str, str]) -> str:
    """The words as they are typed."""
    return ",".join(value if name in ("rate", "delay") else f"{name}={value}" for name, value in words.items())


def rate_mbit(text: str) -> float:
    """10^6 bits per second of a rate in tc's notation, or in a data sheet's.

    Holds:   "1gbit" -> 1000.0; "100mbit" == "100 Mbit/s"
    Raises:  UnlikelyValue
    Source:  tc(8), RATES, where bps is bytes per second
    """
    number, unit = _split(text, _MBIT, "100mbit", doubtful=_DOUBTFUL, slash=True)
    rate = number * _MBIT[unit]
    if rate < _LEAST_RATE_MBIT:
        raise UnlikelyValue(f"is not a rate of {_LEAST_RATE_MBIT * 1e3:g} kbit or more", "100mbit")
    return rate


def delay_ms(text: str) -> float:
    """Milliseconds of "5ms", "200us" or "0.1s".

    Holds:   "0.1s" -> 100.0
    Raises:  UnlikelyValue
    """
    number, unit = _split(text, _MILLISECONDS, "5ms")
    delay = number * _MILLISECONDS[unit]
    if delay > _MOST_DELAY_MS:
        raise UnlikelyValue(f"is not a delay of {_MOST_DELAY_MS / 1e3:g} s or less", "5ms")
    return delay


def loss_fraction(text: str) -> float:
    """Holds:   "0.1%" -> 0.001
    Raises:  UnlikelyValue
    """
    number, _ = _split(text, {"%": 1.0}, "0.1%")
    if number >= 100:
        raise UnlikelyValue("is not a loss below 100%", "0.1%")
    return number / 100


def zone_count(text: str) -> float:
    """Raises:  UnlikelyValue."""
    if not text.strip().isdecimal() or not int(text):
        raise UnlikelyValue("is not a number of zones", "2")
    return int(text)


def memory_bytes(text: str) -> float:
    """Holds:   "2gib" -> 2147483648
    Raises:  UnlikelyValue
    """
    doubtful = {f"{size}{word}": f"{size}ib" for size in ("k", "m", "g", "t") for word in ("", "b")}
    number, unit = _split(text, _BYTES, "2gib", doubtful=doubtful)
    size = round(number * _BYTES[unit])
    if size < _LEAST_MEMORY_BYTES:
        raise UnlikelyValue(f"is not a memory of {_LEAST_MEMORY_BYTES >> 20} mib or more", "2gib")
    return size


def cpus(text: str) -> float:
    """CPUs as a number: 0.5 is half of one CPU's time.

    Raises:  UnlikelyValue
    """
    match = re.fullmatch(_NUMBER, text.strip())
    if match is None or float(match[0]) < _LEAST_CPUS:
        raise UnlikelyValue(f"is not a number of CPUs, {_LEAST_CPUS} or more", "0.5")
    return float(match[0])


_READERS: Mapping[str, Callable[[str], float]] = {
    "rate": rate_mbit,
    "delay": delay_ms,
    "loss": loss_fraction,
    "zones": zone_count,
    "zone-delay": delay_ms,
    "cpus": cpus,
    "memory": memory_bytes,
}
"""What can be said of a network -> its reader."""


def _split(
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
    there_are = f"units are {', '.join(units)}"
    if match and unit in (doubtful or {}):
        likely = f"{match[1]}{(doubtful or {})[unit]}"
        raise UnlikelyValue("can be read in two ways", likely, f"{unit or 'no unit'}; {there_are}")
    if match and not unit:
        likely = f"{match[1]}{example.lstrip('0123456789.')}" if float(match[1]) else example
        raise UnlikelyValue("has no unit", likely, there_are)
    raise UnlikelyValue(f"is not a number with a unit ({', '.join(units)})", example)


def _fit(hosts: int, words: Mapping[str, str], values: Mapping[str, float]) -> None:
    zones = int(values.get("zones", 1))
    links = [name for name in words if name not in ("cpus", "memory")]
    refused: tuple[tuple[bool, str, int, dict[str, str]], ...] = (
        (
            zones > hosts,
            f"{zones} zones need as many hosts, and there {'is' if hosts == 1 else 'are'} {hosts}",
            2 * zones,
            {},
        ),
        (bool(links) and hosts < 2, "a single host has no link to another one", 2, {}),
        (
            zones > 1 and not values.get("zone-delay"),
            f"zones={zones} without a delay between them is one zone",
            hosts,
            {"zone-delay": "1ms"},
        ),
        (
            "zone-delay" in words and zones < 2,
            "zone-delay is between zones, and there is one",
            hosts,
            {"zones": "2"},
        ),
    )
    for is_refused, what, enough, more in refused:
        if is_refused:
            raise UsageError(
                "U05",
                what,
                saw=f"--local-hosts {hosts} --network {_text(words)}",
                next=f"paceline run --local-hosts {enough} --network {shlex.quote(_text({**words, **more}))} ...",
            )
