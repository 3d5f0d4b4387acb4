"""Parses the values of options: durations, counts, hosts, streams, endpoints. One function per grammar; no side effects.

Each function refuses with U03, the option, the given text, and a valid value.
"""

import os
import re
import signal
from collections.abc import Mapping, Sequence

from paceline.errors import UsageError
from paceline.recording.runs import is_run_id
from paceline.spelling import as_typed, nearest

STATIC_PORT = 29500
C10D_PORT = 29400
# Larger than every quantity here, and small enough that products of several such numbers are finite floats.
MOST = 1e18

_STREAMS = re.compile(r"[0123]")
_STREAMS_BY_RANK = re.compile(r"(\d:[0123],)*(\d:[0123])")
_OCTAL = re.compile(r"[0-7]{3,4}")
# A bare number behind a unit, as in 1d12, could be meant as anything.
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?|(\d+(?:\.\d+)?)")
_SCALED = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMbBgGtT]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MEASURED_AT = re.compile(r"(?P<hosts>[^x=]+)(?:x(?P<devices>[^=]+))?=(?P<ms>.+)")
_HOST_NAME = re.compile(r"[\w.:-]+")
_RENDEZVOUS_SECONDS = (
    "join_timeout",
    "timeout",
    "last_call_timeout",
    "close_timeout",
    "heartbeat_timeout",
    "read_timeout",
    "keep_alive_interval",
)
RENDEZVOUS_KEYS = (
    *_RENDEZVOUS_SECONDS,
    *("keep_alive_max_attempt", "is_host", "store_type", "rank", "cas_backoff_max_seconds", "use_libuv"),
    *("protocol", "ssl_cert", "ssl_cert_key", "ca_cert", "cert", "key", "cacert", "etcd_prefix"),
)
"""Every key of --rdzv-conf that a rendezvous of torch reads, or read once. Most have no effect here."""
# A key that is less like a known one than this is somebody else's key, not a misspelled one.
_MISSPELLED_LIKENESS = 0.8
_YES = frozenset({"1", "true", "t", "yes", "y"})
_NO = frozenset({"0", "false", "f", "no", "n"})


def bad_value(option: str, text: object, expected: str, example: str) -> UsageError:
    """U03 for a value that argparse accepted as text but that has no meaning."""
    shown = str(text) or "''"
    return UsageError(
        "U03",
        f"{as_typed(option, shown)} is not {expected}",
        next=as_typed(option, example),
    )


def host_range(text: str) -> tuple[int, int]:
    """Smallest and largest number of hosts of `--nnodes`.

    Holds:  "2" -> (2, 2); "1:4" -> (1, 4)
    """
    parts = text.split(":")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise bad_value("--nnodes", text, "N or MIN:MAX", "1:4")
    least, most = numbers[0], numbers[-1]
    if not 0 < least <= most:
        raise UsageError(
            "U05",
            f"--nnodes {text}: a job needs 1 host or more, and MIN at most MAX",
            saw=f"MIN={least} MAX={most}",
            next="paceline run --nnodes 1:4 ...",
        )
    return least, most


def streams(option: str, text: str) -> dict[int, int]:
    """Local rank -> bits (1 stdout, 2 stderr) of `--redirects` and `--tee`; key -1 stands for every rank.

    Holds:  "3" -> {-1: 3}; "0:1,1:2" -> {0: 1, 1: 2}; "0" -> {}
    Source: torch Std.from_str, whose mapping form accepts ranks of one digit; so does this function
    """
    if _STREAMS.fullmatch(text):
        return {-1: int(text)} if text != "0" else {}
    if not _STREAMS_BY_RANK.fullmatch(text):
        raise bad_value(option, text, "0 to 3 (1 stdout, 2 stderr, 3 both) or RANK:STREAMS,...", "0:3,1:2")
    return {int(rank): int(bits) for rank, bits in (pair.split(":") for pair in text.split(","))}


def local_ranks(text: str) -> frozenset[int] | None:
    """The ranks of `--local-ranks-filter`; None if all ranks are shown."""
    if not text:
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise bad_value("--local-ranks-filter", text, "numbers between commas", "0,1") from None


def duration_seconds(option: str, text: str, example: str = "12h") -> float:
    """Seconds of `90`, `90s`, `15m`, `12h`, `1d` or a sum such as `1h30m`.

    Holds:   "1h30m" -> 5400.0; "90" -> 90.0
    Raises:  UsageError U03: not a duration
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match or not text.strip():
        raise UsageError(
            "U03",
            f"{option} {text!r} is not a duration",
            saw="durations are 90, 90s, 15m, 12h, 1d or 1h30m",
            next=f"{option} {example}",
        )
    days, hours, minutes, seconds, bare = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + bare


def duration(option: str, text: str, *, example: str = "12h", zero: bool = False) -> float:
    """Seconds of a duration above 0; with `zero`, 0 is also valid.

    Raises:  UsageError U03: not a duration; 0, negative, or infinite
    """
    if text.strip().startswith("-"):
        raise impossible(option, text, "a duration above 0", example)
    seconds = duration_seconds(option, text, example)
    if (seconds <= 0 and not zero) or seconds >= MOST:
        raise impossible(option, text, "a duration above 0, and one that ends", example)
    return seconds


def rendezvous_conf(text: str) -> dict[str, str]:
    """Keys and values of `--rdzv-conf`. A key that torch does not have stays in, unless it is a misspelled one: torchrun ignores such keys
    silently, so the wanted time would not count.
    """
    conf: dict[str, str] = {}
    for pair in text.split(",") if text.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not key or not value:
            raise bad_value("--rdzv-conf", text, "KEY=VALUE,...", "join_timeout=600,last_call_timeout=30")
        near = None if key in RENDEZVOUS_KEYS else nearest(key, RENDEZVOUS_KEYS, _MISSPELLED_LIKENESS)
        if near is not None:
            raise UsageError(
                "U03",
                f"--rdzv-conf has no key {key}",
                saw=f"the nearest one is {near}",
                next=f"paceline run --rdzv-conf {near}={value} ...",
            )
        if key in _RENDEZVOUS_SECONDS and not re.fullmatch(r"\d+", value):
            raise bad_value("--rdzv-conf", f"{key}={value}", "a whole number of seconds", f"{key}=600")
        conf[key] = value
    return conf


def unknown_rendezvous_keys(text: str) -> list[str]:
    """The keys of `--rdzv-conf` that no rendezvous of torch reads."""
    return [key for key in rendezvous_conf(text) if key not in RENDEZVOUS_KEYS]


def yes_or_no(option: str, text: str) -> bool:
    """A word that torch reads as true or false."""
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise bad_value(option, text, "true or false", "true")


def endpoint(text: str, default_port: int) -> tuple[str, int]:
    """Host and port of `--rdzv-endpoint`. An IPv6 address is in brackets.

    Holds:  "node1:29500" -> ("node1", 29500); "[::1]:80" -> ("::1", 80); "node1" -> ("node1", default_port)
    """
    text = text.strip()
    whole = text.startswith("[") and text.endswith("]")
    host, colon, port = (text, "", "") if whole or ":" not in text else text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _HOST_NAME.fullmatch(host) or (colon and not port.isdecimal()):
        raise bad_value("--rdzv-endpoint", text, "HOST:PORT", f"algo-1:{default_port}")
    return host, port_number("--rdzv-endpoint", int(port)) if colon else default_port


def address(option: str, text: str) -> str:
    """The name or the address of a host, alone. An IPv6 address may be in brackets.

    Holds:  "node1" -> "node1"; "[::1]" -> "::1"; "node1:29500" and "" are refused
    """
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _HOST_NAME.fullmatch(inner) and inner.count(":") != 1:
        return inner
    host, _, port = inner.partition("://")[2].partition(":") if "://" in inner else inner.partition(":")
    known = _HOST_NAME.fullmatch(host) and port.isdecimal()
    example = f"{host} {option.replace('addr', 'port')} {port}" if known else "algo-1"
    raise bad_value(option, text, "the name or the address of a host", example)


def port_number(option: str, port: int) -> int:
    """`port` if it is a valid port number. 0 means a free port if the caller allows it."""
    if not 0 <= port < 65536:
        raise bad_value(option, port, "a port (1 to 65535)", "29500")
    return port


def signal_names(text: str) -> tuple[str, ...]:
    """Names of `--signals-to-handle`. This system must know each signal, and a process must be able to handle it."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = {member.name for member in signal.Signals} - {"SIGKILL", "SIGSTOP"}
    for name in names:
        if name not in known:
            never = name in ("SIGKILL", "SIGSTOP")
            near = "SIGTERM" if never else nearest(name, sorted(known)) or "SIGTERM"
            raise bad_value("--signals-to-handle", name, "a signal that a process can handle", near)
    return names


def run_id(text: str | None) -> str | None:
    """An id that is a valid directory name; None: a new id."""
    if text is not None and not is_run_id(text):
        raise bad_value("--set run_id", text, "an id of letters, digits, '.', '_' and '-'", "r-7f3a91")
    return text


def directory_mode(text: str | None) -> int | None:
    """The permission bits of a recording, in octal. Only the owner may write it. None: the default.

    Holds:  "0750" -> 0o750
    """
    if text is None:
        return None
    mode = int(text, 8) if _OCTAL.fullmatch(text) else 0
    if mode & 0o700 != 0o700 or mode & 0o022 or mode > 0o777:
        raise bad_value("--set run_dir_mode", text, "a mode in which its owner alone may write", "0750")
    if mode & (mask := _umask()):
        raise UsageError(
            "U03",
            f"--set run_dir_mode={text} lets nobody in: the umask keeps them from the files in it",
            saw=f"umask {mask:04o}",
            next=f"umask {0o777 & ~mode:04o}; paceline run --set run_dir_mode={text} ...",
        )
    return mode


def _umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def not_negative(option: str, number: float) -> float:
    if number < 0:
        raise bad_value(option, number, "0 or more", "0")
    return number


def above_zero(option: str, text: str) -> float:
    """A number above 0 of any size.

    Raises:  UsageError U03: not a number; 0, negative, infinite or NaN
    """
    try:
        value = float(text)
    except ValueError:
        raise _NotANumber("U03", f"{option} {text!r} is not a number", next=f"{option} 1") from None
    if not 0 < value < MOST:
        raise impossible(option, text, "a number above 0" if not value >= MOST else f"a number below {MOST:g}")
    return value


def counted(option: str, text: str, *, zero: bool = False) -> int:
    """A whole number from 1; with `zero`, from 0.

    Raises:  UsageError U03: not a number; too small, or a fraction
    """
    if zero and text.strip() == "0":
        return 0
    value = above_zero(option, text)
    if value != int(value):
        raise impossible(option, text, "a whole number")
    return int(value)


def counts(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, without duplicates, in the given order.

    Raises:  UsageError U03: a part is not a number; below 1, or a fraction
    """
    try:
        return tuple(dict.fromkeys(counted(option, part.strip()) for part in text.split(",")))
    except _NotANumber as wrong:
        raise UsageError("U03", wrong.what, next=f"{option} 1,2,4") from None


def number_between(option: str, text: str, least: int, most: int) -> int:
    """A whole number in a range.

    Raises:  UsageError U03: not a number, or outside of the range
    """
    if text.isdecimal() and least <= int(text) <= most:
        return int(text)
    raise UsageError("U03", f"{option} {text!r} is no number from {least} to {most}", next=f"{option} {least}")


def scaled_count(option: str, text: str) -> int:
    """A count with a suffix for thousands: "340M" -> 340 000 000."""
    match = _SCALED.fullmatch(text.strip())
    if match is None:
        return counted(option, text)
    value = round(float(match[1]) * _FACTORS[match[2].lower()])
    if not 1 <= value < MOST:
        raise impossible(option, text, "a number above 0" if value < 1 else f"a number below {MOST:g}")
    return value


def measured_at(text: str) -> tuple[int, int | None, float]:
    """Hosts, devices per host (None: all of them) and seconds of one `--measured-step-ms-at`.

    Holds:   "2=335" -> (2, None, 0.335); "1x4=310" -> (1, 4, 0.31)
    """
    option = "--measured-step-ms-at"
    match = _MEASURED_AT.fullmatch(text)
    if match is None:
        raise UsageError(
            "U03",
            f"{option} {text!r} is not HOSTS=MS",
            saw="HOSTS may be HOSTSxDEVICES, as in 1x4=310",
            next=f"{option} 2=335",
        )
    devices = counted(option, match["devices"]) if match["devices"] else None
    return counted(option, match["hosts"]), devices, above_zero(option, match["ms"]) / 1e3


def impossible(option: str, text: str, wanted: str, example: str = "1") -> UsageError:
    """The error U03 for a number that is impossible for the counted or measured thing."""
    return UsageError("U03", f"{option} {text} cannot be", saw=f"it takes {wanted}", next=f"{option} {example}")


class _NotANumber(UsageError):
    """A text that is not even a number; a list of numbers has another example then."""


def fail_on(texts: Sequence[str], known: Sequence[str], shown: Sequence[str] | None = None) -> frozenset[str]:
    """The words of `--fail-on`, spelled as in `known`; capitals do not matter.

    `shown`: the words that the error names, if all words are too many.

    Holds:   ["n01,any"] -> {"N01", "any"}
    Raises:  UsageError U03: a word that is not in `known`
    """
    spelling = {word.lower(): word for word in known}
    wanted = set()
    for word in (part.strip() for text in texts for part in text.split(",")):
        if word.lower() not in spelling:
            near = nearest(word.lower(), spelling)
            raise UsageError(
                "U03",
                f"--fail-on {word!r} is nothing that can be found",
                saw=f"the nearest one is {spelling[near]}" if near else f"there are {', '.join(shown or known)}",
                next=f"--fail-on {spelling[near] if near else known[0]}",
            )
        wanted.add(spelling[word.lower()])
    return frozenset(wanted)


def variable(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """A variable for every rank, from `--env NAME[=VALUE]`; without a value it is that of `environ`.

    Raises:  UsageError U03: it has no value, and is not set
    """
    name, equals, value = text.partition("=")
    if not equals and name not in environ:
        raise UsageError(
            "U03", f"--env {name}: it is not set here", saw=f"no variable {name}", next=f"--env {name}=VALUE"
        )
    return name, value if equals else environ[name]
