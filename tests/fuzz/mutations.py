"""Strategies: plain values of any shape, and documents that are right but for a few places."""

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, -1e308, 5e-324, float("nan"), float("inf")]),
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "\ud800",
            "9" * 5000,
            "../../x",
            "/etc/passwd",
            "\x1b[2J",
            "\u202e",
            "a" * 70_000,
            "file:///etc",
            "$(id)",
            "\x00",
            "",
        ]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a document, from the outside in."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from places(inner)


@st.composite
def changed(draw: Any, examples: Sequence[Any]) -> Any:
    """One of these documents with up to three places replaced, taken out or doubled."""
    document = copy.deepcopy(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(0, 3))):
        found = list(places(document))
        if not found:
            break
        container, key = found[draw(st.integers(0, len(found) - 1))]
        match draw(st.sampled_from(["replaced", "taken out", "added"])):
            case "replaced":
                container[key] = draw(VALUES)
            case "taken out":
                del container[key]
            case _ if isinstance(container, list):
                container.insert(key, draw(VALUES))
            case _:
                container[draw(TEXTS)] = draw(VALUES)
    return document


def as_json(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """The documents as the wire and the files have them, some of them cut."""
    whole = documents.map(lambda document: json.dumps(document).encode())
    return st.one_of(whole, st.tuples(whole, st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]]))


def as_lines(documents: st.SearchStrategy[Any], most: int = 12) -> st.SearchStrategy[bytes]:
    """A file of JSON lines, some of them torn or no JSON at all."""
    line = st.one_of(as_json(documents), st.binary(max_size=60))
    return st.lists(line, max_size=most).map(b"\n".join)
