"""What one option of `paceline plan` may say. One function per grammar; each names the option in what it refuses."""

import re

from paceline.cli.job.values import duration_seconds
from paceline.errors import UsageError

# Beyond every quantity here, and far enough below the largest float for products of several of them.
MOST = 1e18
_SCALED = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMbBgGtT]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_MEASURED_AT = re.compile(r"\s*(?P<hosts>[^x=]+)(?:x(?P<devices>[^=]+))?=(?P<ms>.+)")


def above_zero(option: str, text: str) -> float:
    """A number above 0 of any size.

    Raises:  UsageError U03: no number; P02: 0, negative, infinite or not a number
    """
    try:
        value = float(text)
    except ValueError:
        raise _not_a_number(option, text) from None
    if not 0 < value < MOST:
        raise impossible(option, text, "a number above 0" if not value >= MOST else f"a number below {MOST:g}")
    return value


def counted(option: str, text: str) -> int:
    """A whole number from 1 on.

    Raises:  UsageError U03: no number; P02: below 1, or a fraction
    """
    value = above_zero(option, text)
    if value != int(value):
        raise impossible(option, text, "a whole number")
    return int(value)


def counts(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers between commas, each once, in the order given.

    Raises:  UsageError U03: a part is no number; P02: below 1, or a fraction
    """
    try:
        return tuple(dict.fromkeys(counted(option, part.strip()) for part in text.split(",")))
    except UsageError as wrong:
        if wrong.code != "U03":
            raise
        raise UsageError("U03", wrong.what, saw=f"{option} {text}", next=f"{option} 1,2,4") from None


def scaled_count(option: str, text: str) -> int:
    """A count with the letters of thousands: "340M" -> 340 000 000."""
    match = _SCALED.fullmatch(text.strip())
    if match is None:
        return counted(option, text)
    value = round(float(match[1]) * _FACTORS[match[2].lower()])
    if not 1 <= value < MOST:
        raise impossible(option, text, "a number above 0" if value < 1 else f"a number below {MOST:g}")
    return value


def duration(option: str, text: str, *, zero: bool = False) -> float:
    """Seconds of `90`, `15m`, `12h`, `1h30m`.

    Raises:  UsageError U03: no duration; P02: 0 or negative
    """
    if text.strip().startswith("-"):
        raise impossible(option, text, "a duration above 0")
    try:
        seconds = duration_seconds(option, text)
    except UsageError:
        raise UsageError(
            "U03",
            f"{option} {text!r} is not a duration",
            saw=f"{option} {text}",
            next=f"{option} 12h (or 90m, 30s, 1d)",
        ) from None
    if (seconds <= 0 and not zero) or seconds >= MOST:
        raise impossible(option, text, "a duration above 0, and one that ends")
    return seconds


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
            saw=f"{option} {text}",
            next=f"{option} 2=335, or {option} 1x4=310",
        )
    devices = counted(option, match["devices"]) if match["devices"] else None
    return counted(option, match["hosts"]), devices, above_zero(option, match["ms"]) / 1e3


def impossible(option: str, text: str, wanted: str) -> UsageError:
    """P02 for a number that the thing it counts or measures cannot have."""
    return UsageError("P02", f"{option} {text} cannot be", saw=f"{option} {text}", next=f"give {option} {wanted}")


def _not_a_number(option: str, text: str) -> UsageError:
    return UsageError("U03", f"{option} {text!r} is not a number", saw=f"{option} {text}", next=f"{option} NUMBER")
