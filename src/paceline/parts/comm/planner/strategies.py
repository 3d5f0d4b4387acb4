"""Names of the ways to average gradients, and how they may be put together: plain tables for the command line and for ranks.

A name is a strategy, wrappers after it, each joined by "+", parameters after a colon: `direct`, `direct+bf16`, `powersgd:rank=4`,
`ring+int8`, `local_sgd:every=8`, `direct:fuse_mib=50,floor_kib=64`. A name without a strategy wraps `ring`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....errors import UsageError
from ....spelling import nearest

AUTO = "auto"
DEFAULT = "ring"

# Strategies, by bucket.
NAMES: dict[str, str] = {
    "ring": "the averaged all-reduce of the process group's own backend; what DDP does by itself",
    "hierarchical": "sum inside each host, a ring between hosts, spread inside each host",
    "direct": "equal shards: one hop to each shard's owner, one hop back; two latencies however many hosts there are",
    "parameter_server": "every rank serves some of the parameters: push gradients, pull sums; no part of a tensor is cut",
}
# What gives the exact average up to the order of additions.
EXACT: frozenset[str] = frozenset(NAMES)
# Wrappers: what travels in place of the gradients.
WRAPPERS: dict[str, str] = {
    "bf16": "16-bit floats on the wire",
    "int8": "8-bit integers and a scale per block on the wire, what was rounded away is added to the next step (error feedback)",
    "powersgd": "two narrow matrices in place of each wide one, with error feedback",
}
# Per step instead of per bucket.
PER_STEP: dict[str, str] = {
    "local_sgd": "no exchange in backward; parameters are averaged every few optimizer steps",
}
# Part of a name -> its parameters: (default, smallest value, what it is).
PARAMETERS: dict[str, dict[str, tuple[int, int, str]]] = {
    "direct": {
        "fuse_mib": (
            -1,
            0,
            "buckets are fused up to this many MiB; left out: none up to 8 hosts, then 25 MiB for each 8 hosts",
        ),
        "floor_kib": (-1, 0, "below this many KiB the bucket goes by ring; left out: as measured"),
    },
    "int8": {"block": (256, 8, "elements that share one scale")},
    "powersgd": {"rank": (4, 1, "columns of the narrow matrices")},
    "local_sgd": {"every": (8, 1, "optimizer steps from one average of the parameters to the next")},
}
# What was a strategy once -> where it is.
_MOVED = {
    "parameter_server_central": "one server for all parameters is only compared with, by bench/exchange_network.py",
}
_ALL = (*NAMES, *PER_STEP, *WRAPPERS)


class BadName(ValueError):
    """A name that is none, or parts that do not go together: the parts of an error."""

    def __init__(self, what: str, *, saw: str, next: str, meant: str = "") -> None:
        super().__init__(f"{what}; {saw}; {next}")
        self.what, self.saw, self.next = what, saw, next
        self.meant = meant
        """The name that was probably meant; "" if none is near."""


@dataclass(frozen=True)
class StrategySpec:
    """The parts of a strategy's name."""

    strategy: str
    """One of NAMES."""
    wrappers: tuple[str, ...] = ()
    """Wrappers around it."""
    per_step: str | None = None
    """Part that exchanges only in some steps, such as local_sgd; None: every step."""
    parameters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Part -> all of its parameters."""

    @property
    def is_exact(self) -> bool:
        """The average is exact up to the order of additions, at every step."""
        return not self.wrappers and self.per_step is None

    @property
    def name(self) -> str:
        """The shortest name that means the same: strategy first, defaults left out.

        Holds:   read(named.name) == named
        """
        parts = [self.strategy] if self.strategy != DEFAULT or not (self.wrappers or self.per_step) else []
        parts += [*self.wrappers, *([self.per_step] if self.per_step else [])]
        return "+".join(part + self._given(part) for part in parts)

    def _given(self, part: str) -> str:
        known = PARAMETERS.get(part, {})
        given = [f"{key}={value}" for key, value in self.parameters.get(part, {}).items() if value != known[key][0]]
        return ":" + ",".join(given) if given else ""


def read(name: str) -> StrategySpec:
    """A name as its parts.

    Raises:  BadName: a word that is no strategy, wrapper or parameter; parts that do not go together
    Holds:   read("bf16") == read("ring+bf16"); read("int8+direct") == read("direct+int8")
    """
    parts: dict[str, dict[str, int]] = {}
    for text in name.strip().split("+"):
        part, _, settings = text.partition(":")
        part = part.strip().lower().replace("-", "_")
        if part == AUTO:
            raise _together(name, "auto measures and chooses by itself", AUTO)
        if part not in _ALL:
            raise _unknown(part, name)
        if part in parts:
            raise _together(name, f"{part} is there twice", part)
        parts[part] = _settings(part, settings, name)
    strategies = [part for part in parts if part in NAMES]
    wrappers = tuple(part for part in WRAPPERS if part in parts)
    per_step = [part for part in parts if part in PER_STEP]
    if len(strategies) > 1:
        raise _together(name, f"{' and '.join(strategies)} both move the gradients", strategies[0])
    if per_step and wrappers:
        raise _together(
            name,
            f"{per_step[0]} averages parameters, which {wrappers[0]} would round",
            per_step[0],
        )
    if len(wrappers) > 1:
        raise _together(name, f"{' and '.join(wrappers)} both say what travels", wrappers[0])
    strategy = strategies[0] if strategies else DEFAULT
    parameters = {part: settings for part, settings in parts.items() if settings}
    return StrategySpec(strategy, wrappers, per_step[0] if per_step else None, parameters)


def check(name: str) -> None:
    """Refuse a value of `--gradients` that no rank could use; "auto" passes.

    Raises:  UsageError: U03 as in `read`
    """
    if name == AUTO:
        return
    try:
        read(name)
    except BadName as error:
        raise UsageError("U03", error.what, saw=error.saw, next=f"--gradients {error.meant or AUTO}") from None


def listing() -> str:
    """All names with what they do, one a line, as `--help` and errors show them."""
    rows = {AUTO: "measure for some steps, predict, choose among the exact ones", **NAMES, **WRAPPERS, **PER_STEP}
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {what}" for name, what in rows.items())


def _settings(part: str, text: str, name: str) -> dict[str, int]:
    known = PARAMETERS.get(part, {})
    values = {key: default for key, (default, _, _) in known.items()}
    for setting in filter(None, text.split(",")):
        key, _, value = setting.partition("=")
        if key not in known:
            raise BadName(
                f"{part} has no parameter {key!r}",
                saw=f"{name!r}; {part} takes {', '.join(known) or 'no parameter'}",
                next=f"write {part}{':' + next(iter(known)) + '=N' if known else ''}",
            )
        if not value.isascii() or not value.isdigit() or int(value) < known[key][1]:
            raise BadName(
                f"{part}:{key} is {known[key][2].split(';')[0]}, and {value!r} cannot be that",
                saw=f"{name!r}; expected a whole number from {known[key][1]}",
                next=f"write {part}:{key}={max(known[key][0], known[key][1], 1)}",
                meant=name.replace(setting, f"{key}={max(known[key][0], known[key][1], 1)}"),
            )
        values[key] = int(value)
    return values


def _unknown(part: str, name: str) -> BadName:
    near = nearest(part, [*_ALL, AUTO], 0.5)
    return BadName(
        f"no way to average gradients is called {part!r}",
        saw="; ".join(filter(None, (repr(name), _MOVED.get(part), f"there are {', '.join((AUTO, *_ALL))}"))),
        next=f"did you mean {near}?" if near else "take one of these",
        meant=name.lower().replace("-", "_").replace(part, near) if near else "",
    )


def _together(name: str, why: str, meant: str) -> BadName:
    return BadName(f"the parts of {name!r} do not go together", saw=why, next=f"take {meant}", meant=meant)
