"""Meaning of the numbers in a rank's call records: a file of JSON lines beside the ring, and its copy beside the segment.

    ["signature", 3, {"operation": "allreduce", "reduce_op": "SUM", "root": null, "dtype": "float32", "shape": [4], "peer": null}]
    ["site", 7, "/home/me/train.py", 41, "step", ["/home/me/train.py:90"], false]      where the user's code called it from, and
                                                                           whether it stands in no loop that trains; null: nobody can tell
    ["group", 1, "0", [0, 1, 2, 3], "gloo"]
    ["replica", 8, {"step": 64, ...}]                                       what the rank trains with, see worker/instruments/replica.py
    ["sampler", 9, {"loader": 1, ...}]                                      how it deals out its samples, see worker/sampling.py
    ["notice", 9, "gradients", "direct: ..."]                                   for the person: what it is about, and what to say

The rank writes a line before the first record that refers to it, so whoever reads the records first and then this file knows them
all. 0 is no number: that part was not recorded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plain_files import open_plain

_MOST_LETTERS = 400
# In the name of a group of a second init_process_group, where torch gives the first one's names again: "0 of initialisation 2".
AGAIN = " of initialisation "


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call exchanges."""

    operation: str
    """Name of the collective."""
    reduce_op: str | None = None
    """Reduce operation, such as SUM."""
    root: int | None = None
    """Source or destination rank, if the collective has one."""
    dtype: str | None = None
    """Data type of the tensor."""
    shape: tuple[int, ...] | None = None
    """Shape of the tensor on which all ranks must agree; None if there is none."""
    peer: int | None = None
    """The other rank of a send or a receive."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where the user's code made a call."""

    file: str
    """File of the innermost line of the user's code."""
    line: int
    """Number of that line."""
    function: str = ""
    """Its function."""
    callers: tuple[str, ...] = ()
    """Lines of the user's code that led there, innermost first."""
    outside_loop: bool | None = None
    """The line is outside the training loop; None: not known."""


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """A process group."""

    name: str
    """Name of the group."""
    ranks: tuple[int, ...] = ()
    """Global ranks in the group's order; empty if they are unknown."""
    backend: str = ""
    """Name of its backend; "" if it is unknown."""


@dataclass(frozen=True, slots=True)
class RankNotice:
    """A message from a rank to the user."""

    topic: str
    """What the message is about: gradients."""
    text: str
    """The message."""


class StringTable:
    """The tables of one rank, read while they grow. Damaged lines are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.signatures: dict[int, Signature] = {}
        self.sites: dict[int, CallSite] = {}
        self.groups: dict[int, NamedGroup] = {}
        self.said: list[RankNotice] = []
        self.marks: list[tuple[str, dict[str, Any]]] = []

    def update(self) -> bytes:
        """Read the complete lines since the last call and return them. A missing file has none."""
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return b""
        if not whole:
            return b""
        new = whole + b"\n"
        self._offset += len(new)
        for line in new.splitlines():
            self._take(line)
        return new

    def _take(self, line: bytes) -> None:
        try:
            kind, number, *rest = json.loads(line)
            number = int(number)
            if kind == "signature":
                self.signatures[number] = _signature(rest[0])
            elif kind == "site":
                self.sites[number] = _site(*rest)
            elif kind == "group":
                name, ranks, *backend = rest
                self.groups[number] = NamedGroup(str(name), tuple(ranks), str(backend[0]) if backend else "")
            elif kind == "notice":
                topic, text = rest
                self.said.append(RankNotice(_printable(topic), _printable(text)))
            elif kind in ("replica", "sampler"):
                self.marks.append((kind, dict(rest[0])))
        except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
            return


def _site(file: Any, line: Any, function: Any, callers: Any = (), outside_loop: Any = None, *_: Any) -> CallSite:
    told = outside_loop if isinstance(outside_loop, bool) else None
    return CallSite(str(file), int(line), str(function), tuple(callers), told)


def _printable(text: object) -> str:
    # The text goes to a terminal, and the user's process writes the file.
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:_MOST_LETTERS])


def _signature(plain: dict[str, Any]) -> Signature:
    shape = plain.get("shape")
    return Signature(
        operation=str(plain["operation"]) if "operation" in plain else "unknown",
        reduce_op=plain.get("reduce_op"),
        root=plain.get("root"),
        dtype=plain.get("dtype"),
        shape=None if shape is None else tuple(shape),
        peer=plain.get("peer"),
    )
