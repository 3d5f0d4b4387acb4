"""What one option of `paceline run` may say: hosts, streams, durations, endpoints. Pure, one function per grammar.

Each function raises UsageError U03 that names the option, what was written, and a value that would do.
"""

import os
import re
import signal

from paceline.cli.parsing import nearest
from paceline.errors import UsageError
from paceline.recording.runs import is_run_id

STATIC_PORT = 29500
C10D_PORT = 29400

_STREAMS = re.compile(r"[0123]")
_STREAMS_BY_RANK = re.compile(r"(\d:[0123],)*(\d:[0123])")
_OCTAL = re.compile(r"[0-7]{3,4}")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
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
_RENDEZVOUS_KEYS = (*_RENDEZVOUS_SECONDS, "keep_alive_max_attempt", "is_host", "store_type", "rank")
_YES = frozenset({"1", "true", "t", "yes", "y"})
_NO = frozenset({"0", "false", "f", "no", "n"})


def bad_value(option: str, text: object, expected: str, example: str) -> UsageError:
    """U03 for a value that argparse took as text but that means nothing."""
    return UsageError(
        "U03",
        f"{option} {text} is not {expected}",
        saw=f"{option} {text}; expected {expected}",
        next=f"paceline run {option} {example} ...",
    )


def host_range(text: str) -> tuple[int, int]:
    """Least and most hosts of `--nnodes`.

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
    Source: torch Std.from_str, whose mapping form takes ranks of one digit; so does this one
    """
    if _STREAMS.fullmatch(text):
        return {-1: int(text)} if text != "0" else {}
    if not _STREAMS_BY_RANK.fullmatch(text):
        raise bad_value(option, text, "0 to 3 (1 stdout, 2 stderr, 3 both) or RANK:STREAMS,...", "0:3,1:2")
    return {int(rank): int(bits) for rank, bits in (pair.split(":") for pair in text.split(","))}


def local_ranks(text: str) -> frozenset[int] | None:
    """The ranks of `--local-ranks-filter`; None when nothing is filtered."""
    if not text:
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise bad_value("--local-ranks-filter", text, "numbers between commas", "0,1") from None


def duration_seconds(option: str, text: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `12h`, `1d` or a sum such as `1h30m`.

    Holds:  "1h30m" -> 5400.0; "90" -> 90.0
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match or not text.strip():
        raise bad_value(option, repr(text), "a duration", "12h")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def rendezvous_conf(text: str) -> dict[str, str]:
    """Keys and values of `--rdzv-conf`; torch's own keys alone, since a misspelled one would be ignored in silence."""
    conf: dict[str, str] = {}
    for pair in text.split(",") if text.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not key or not value:
            raise bad_value("--rdzv-conf", text, "KEY=VALUE,...", "join_timeout=600,last_call_timeout=30")
        if key not in _RENDEZVOUS_KEYS:
            near = nearest(key, _RENDEZVOUS_KEYS) or "join_timeout"
            raise UsageError(
                "U03",
                f"--rdzv-conf has no key {key}",
                saw=f"keys are {', '.join(_RENDEZVOUS_KEYS)}",
                next=f"paceline run --rdzv-conf {near}={value} ...",
            )
        if key in _RENDEZVOUS_SECONDS and not re.fullmatch(r"\d+", value):
            raise bad_value("--rdzv-conf", f"{key}={value}", "a whole number of seconds", f"{key}=600")
        conf[key] = value
    return conf


def yes_or_no(option: str, text: str) -> bool:
    """A word that torch reads as true or false."""
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise bad_value(option, text, "true or false", "true")


def endpoint(text: str, default_port: int) -> tuple[str, int]:
    """Host and port of `--rdzv-endpoint`; an IPv6 address stands in brackets.

    Holds:  "node1:29500" -> ("node1", 29500); "[::1]:80" -> ("::1", 80); "node1" -> ("node1", default_port)
    """
    text = text.strip()
    whole = text.startswith("[") and text.endswith("]")
    host, colon, port = (text, "", "") if whole or ":" not in text else text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _HOST_NAME.fullmatch(host) or (colon and not port.isdecimal()):
        raise bad_value("--rdzv-endpoint", text, "HOST:PORT", f"algo-1:{default_port}")
    return host, port_number("--rdzv-endpoint", int(port)) if colon else default_port


def port_number(option: str, port: int) -> int:
    """`port` where it is one; 0 stands for a free port where the caller allows it."""
    if not 0 <= port < 65536:
        raise bad_value(option, port, "a port (1 to 65535)", "29500")
    return port


def signal_names(text: str) -> tuple[str, ...]:
    """Names of `--signals-to-handle`, each one that this system knows and that can be handled at all."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = {member.name for member in signal.Signals} - {"SIGKILL", "SIGSTOP"}
    for name in names:
        if name not in known:
            near = nearest(name, sorted(known)) or "SIGTERM"
            raise bad_value("--signals-to-handle", name, "a signal that a process can handle", near)
    return names


def run_id(text: str | None) -> str | None:
    """An id that a directory can have; None: a new one."""
    if text is not None and not is_run_id(text):
        raise bad_value("--run-id", text, "an id of letters, digits, '.', '_' and '-'", "r-7f3a91")
    return text


def directory_mode(text: str | None) -> int | None:
    """Who may read a recording, in octal; nobody but its owner may ever write it. None: the default.

    Holds:  "0750" -> 0o750
    """
    if text is None:
        return None
    mode = int(text, 8) if _OCTAL.fullmatch(text) else 0
    if mode & 0o700 != 0o700 or mode & 0o022 or mode > 0o777:
        raise bad_value("--run-dir-mode", text, "a mode in which its owner alone may write", "0750")
    if mode & (mask := _umask()):
        raise UsageError(
            "U03",
            f"--run-dir-mode {text} lets nobody in: the umask keeps them from the files in it",
            saw=f"umask {mask:04o}",
            next=f"umask {0o777 & ~mode:04o}; paceline run --run-dir-mode {text} ...",
        )
    return mode


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def not_negative(option: str, number: float) -> float:
    if number < 0:
        raise bad_value(option, number, "0 or more", "0")
    return number
