"""The screen of `paceline top`: what is sorted, filtered and shown, and what each key changes. Pure; cli/top_screen.py has the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from paceline.recording.rank_sets import parse_ranks
from paceline.views.pace import RankPace
from paceline.views.table import crop
from paceline.views.top_strip import RankUsage, Shown


class Sort(StrEnum):
    """By what the ranks are sorted, the largest first, except by their number."""

    RANK = "rank"
    LATE = "late"
    STEP = "ms/step"
    CPU = "cpu"
    RSS = "rss"


class Action(StrEnum):
    """What a key asks for that the screen alone cannot do."""

    QUIT = "q"
    WHY = "w"
    STACKS = "t"
    LOG = "l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the user has chosen to see."""

    sort: Sort = Sort.RANK
    """The order of the ranks."""
    shown: Shown = Shown.LATE
    """What the strips show."""
    words: str = ""
    """The filter: ranks as 0-3,7, or part of a host's name; empty: every rank."""
    is_typing: bool = False
    """Whether keys go to the filter."""
    text: tuple[str, ...] = ()
    """Lines over the picture, such as those of `why`; empty: the picture."""
    first: int = 0
    """The first of these lines that is shown."""


_STRIPS = dict(zip("1234", Shown, strict=True))
_KEYS = "s sort  / filter  1 late  2 step  3 cpu  4 gpu  w why  t stacks  l log  q quit"
_TEXT_KEYS = "space on  b back  q close"


def pressed(screen: Screen, key: str, height: int) -> tuple[Screen, Action | None]:
    """The screen after a key, and what else the key asks for. `height`: lines that the terminal has."""
    if screen.text:
        return _in_text(screen, key, height), None
    if screen.is_typing:
        return _in_filter(screen, key), None
    if key in tuple(Action):
        return screen, Action(key)
    if key == "s":
        order = list(Sort)
        return replace(screen, sort=order[(order.index(screen.sort) + 1) % len(order)]), None
    if key == "/":
        return replace(screen, is_typing=True, words=""), None
    if key in _STRIPS:
        return replace(screen, shown=_STRIPS[key]), None
    return (replace(screen, words=""), None) if key == "\x1b" else (screen, None)


def _in_text(screen: Screen, key: str, height: int) -> Screen:
    page = max(height - 2, 1)
    if key in (" ", "j"):
        first = screen.first + (page if key == " " else 1)
        return replace(screen, first=min(first, max(len(screen.text) - page, 0)))
    if key in ("b", "k"):
        return replace(screen, first=max(screen.first - (page if key == "b" else 1), 0))
    return replace(screen, text=(), first=0) if key in ("q", "\x1b", "\r", "\n", "w", "t", "l") else screen


def _in_filter(screen: Screen, key: str) -> Screen:
    if key in ("\r", "\n"):
        return replace(screen, is_typing=False)
    if key == "\x1b":
        return replace(screen, is_typing=False, words="")
    if key in ("\x7f", "\b"):
        return replace(screen, words=screen.words[:-1])
    return replace(screen, words=screen.words + key) if key.isprintable() else screen


def chosen_ranks(
    screen: Screen,
    ranks: Sequence[RankPace],
    late: dict[tuple[str, int], float],
    usage: dict[tuple[str, int], RankUsage],
) -> list[RankPace]:
    """The ranks that the filter lets through, in the order of the screen; what is not known comes last.

    Holds:   every rank is there where the filter is empty
    """

    def value(rank: RankPace) -> float | None:
        used = usage.get((rank.host, rank.rank), RankUsage())
        return {
            Sort.RANK: -float(rank.rank),
            Sort.LATE: late.get((rank.host, rank.rank)),
            Sort.STEP: rank.step_seconds,
            Sort.CPU: used.cpu_cores,
            Sort.RSS: used.resident_bytes,
        }[screen.sort]

    def order(rank: RankPace) -> tuple[bool, float, int]:
        known = value(rank)
        return known is None, -(known or 0.0), rank.rank

    return sorted((rank for rank in ranks if _is_wanted(screen.words, rank)), key=order)


def _is_wanted(words: str, rank: RankPace) -> bool:
    try:
        return not words or rank.rank in parse_ranks(words)
    except ValueError:
        return words in rank.host


def key_line(screen: Screen, width: int | None) -> str:
    """The last line: the filter while it is typed, else what is chosen and the keys."""
    if screen.is_typing:
        return crop(f"filter ranks (0-3,7) or host: {screen.words}_", width)
    chosen = f"[sort {screen.sort}, strip {screen.shown}{f', filter {screen.words}' if screen.words else ''}]"
    return crop(f"{chosen}  {_KEYS}", width)


def text_lines(screen: Screen, height: int, width: int | None) -> str:
    """The lines that are over the picture, as many as fit, and the keys for them."""
    page = max(height - 2, 1)
    shown = screen.text[screen.first : screen.first + page]
    left = len(screen.text) - screen.first - len(shown)
    more = f"{left} more below  " if left else ""
    return "\n".join([*(crop(line, width) for line in shown), "", crop(f"{more}{_TEXT_KEYS}", width)])
