"""What a process group has to do: one function a case, run on every rank of a group, for any backend.

    python run_conformance.py ...     runs them on one rank (test_conformance.py starts the ranks)

A case gets (dist, group, rank, size) and asserts. `group` is the default group's ProcessGroup; cases that make groups of their own destroy
them. Every rank runs every case, in the same order. Answers are compared with plain arithmetic over what every rank is known to contribute
(`given`), so a case can be wrong for gloo as well, and gloo runs them too.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

# A backend may leave out what it does not offer; these words stand beside the cases that need it.
NEEDS = {
    "more_than_gloo": "what gloo refuses and we do not have to",
    "sparse": "sparse tensors in all_reduce",
    "several": "several tensors of one rank in one call",
    "gloo_words": "the words in which gloo refuses",
    "gloo_groups": "groups of backend gloo beside this one",
    "futures": "get_future",
    "any_source": "recv without a source",
    "monitored": "monitored_barrier as a method of the group",
    "groups": "new_group",
    "kill": "the group does not survive the case",
}

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "uint8")
# Elements: one, a few, and on either side of any crossover; the last is no multiple of anything.
SMALL, LARGE = (1, 1000), (70_000, 500_003)


@dataclass(frozen=True)
class Case:
    """One case with its parameters."""

    name: str
    function: Callable[..., None]
    arguments: dict[str, object]
    needs: frozenset[str]

    def run(self, dist, group, rank, size):
        self.function(dist, group, rank, size, **self.arguments)


CASES: dict[str, Case] = {}


def case(*needs: str, **parameters: tuple) -> Callable:
    """Register a function once for every combination of its parameters."""
    assert set(needs) <= set(NEEDS), needs

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for values in itertools.product(*parameters.values()):
            suffix = "-".join(str(value) for value in values)
            name = f"{function.__name__}[{suffix}]" if suffix else function.__name__
            assert name not in CASES, name
            CASES[name] = Case(name, function, dict(zip(parameters, values, strict=True)), frozenset(needs))
        return function

    return register


def given(rank: int, count: int, dtype: str = "float32", salt: int = 0) -> torch.Tensor:
    """What a rank contributes: 1, 2 and 3 in an order of its own, so that sums and products of four ranks are exact in every dtype."""
    return ((torch.arange(count) * (rank + 2) + rank + salt) % 3 + 1).to(getattr(torch, dtype))


def everyone(size: int, count: int, dtype: str = "float32", salt: int = 0) -> torch.Tensor:
    """Shapes:  (size, count), rows by rank"""
    return torch.stack([given(rank, count, dtype, salt) for rank in range(size)])


def reduced(op: str, rows: torch.Tensor) -> torch.Tensor:
    """The rows put together, in their dtype."""
    combine = {
        "SUM": torch.add,
        "AVG": torch.add,
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }[op]
    total = rows[0].clone()
    for row in rows[1:]:
        total = combine(total, row)
    return total / len(rows) if op == "AVG" else total


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to the bit, dtype and shape included; an average to what its dtype can tell apart."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for rounding in that dtype."""
    torch.testing.assert_close(found, expected)


def refused(call: Callable[[], object], *words: str, kinds: tuple = (RuntimeError, ValueError, TypeError)) -> None:
    """The call, or waiting for what it returns, fails with one of these errors, and with those words in it."""
    try:
        work = call()
        if hasattr(work, "wait"):
            work.wait()
    except kinds as error:
        text = str(error)
        assert all(word in text for word in words), f"{words} not in: {text}"
        return
    raise AssertionError("was not refused")


def load() -> dict[str, Case]:
    """All cases, registered by importing them."""
    import conformance_groups
    import conformance_moves
    import conformance_reductions
    import conformance_refusals
    import conformance_works

    assert conformance_groups and conformance_moves and conformance_reductions and conformance_refusals
    assert conformance_works
    return CASES
