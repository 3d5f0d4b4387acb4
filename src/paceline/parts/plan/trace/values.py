"""Stand-ins for missing numbers: they behave like numbers, and report when a script decides by them."""

from typing import Any

from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.user_frame import here

_session: TraceSession | None = None

FLOAT, INTEGER = 1.0, 1


def tell(session: TraceSession) -> None:
    """From now on a decision by a stand-in is noted in `session`."""
    global _session
    _session = session


def decided(how: str) -> None:
    """The script's control flow depends on a missing value.

    A branch taken instead of another still gives a step that the script may take; it is noted. The number of passes of a loop is
    different: numbers for its memory and time would be invented, so the trace ends with P06.
    """
    if _session is None:
        return
    place = here()
    if place is not None and not place.library and place.text.startswith("while "):
        what = "how often a loop goes round depends on values that a trace does not have"
        _session.fail("P06", what, place=place, saw=f"{place.text} ({how})")
    _session.assume(f"the script decides by a value that a trace does not have: {how}")


class StandInFloat(float):
    """A float that no computation produced."""

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        decided(f"taken as {float(self)} < {other!s:.40}")
        return float.__lt__(self, other)

    def __le__(self, other: Any) -> bool:
        decided(f"taken as {float(self)} <= {other!s:.40}")
        return float.__le__(self, other)

    def __gt__(self, other: Any) -> bool:
        decided(f"taken as {float(self)} > {other!s:.40}")
        return float.__gt__(self, other)

    def __ge__(self, other: Any) -> bool:
        decided(f"taken as {float(self)} >= {other!s:.40}")
        return float.__ge__(self, other)

    __hash__ = float.__hash__

    def __add__(self, other: Any) -> Any:
        return _again(float.__add__(self, other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return _again(float.__mul__(self, other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _again(float.__truediv__(self, other))


class StandInInteger(int):
    """An integer that no computation produced. `made`: whether one was ever made in this process."""

    made = False

    def __new__(cls, *args: Any) -> "StandInInteger":
        StandInInteger.made = True
        return super().__new__(cls, *args)

    def __lt__(self, other: Any) -> bool:
        decided(f"taken as {int(self)} < {other!s:.40}")
        return int.__lt__(self, other)

    def __gt__(self, other: Any) -> bool:
        decided(f"taken as {int(self)} > {other!s:.40}")
        return int.__gt__(self, other)

    __hash__ = int.__hash__

    def __add__(self, other: Any) -> Any:
        result = int.__add__(self, other)
        return StandInInteger(result) if type(result) is int else result

    __radd__ = __add__


def _again(result: Any) -> Any:
    return StandInFloat(result) if type(result) is float else result
