"""The plain values of a saved state in a file: what comes back, and that no bytes harm who reads them."""

import itertools
import math
import random
import subprocess
import sys

import msgspec
import pytest

from paceline.parts.resume.recording.plain_values import loaded, stored, values_in
from paceline.parts.resume.recording.state_buffer import packed, unpacked
from paceline.parts.resume.recording.state_piece import PieceError

PLAIN = [
    None, True, False, 0, -1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 10**400, 0.0, -0.0, math.inf, 1j, complex(-0.0, math.inf),
    "", "text", "\udcff\ud800", "ü\0", b"", b"\xff", (), [], {}, set(), frozenset(), ("list", 1), ["dict", "a"], {"list": ["int", "x"]},
]  # fmt: skip


def same(one, other):
    return (type(one), repr(one)) == (type(other), repr(other))


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_value_comes_back_with_its_type(value):
    for around in (value, (value,), [value], {"key": value, 1: value}, (1, [{(2, "b"): (value,)}])):
        assert same(unpacked(loaded(stored(packed(around)))), around)


def drawn(source, depth=0):
    kind = source.choice((tuple, list, dict, None) if depth < 6 else (None,))
    if kind is None:
        return source.choice(PLAIN[:22])
    if kind is dict:
        return {source.choice((source.random(), source.randrange(99), "k")): drawn(source, depth + 1) for _ in range(3)}
    return kind(drawn(source, depth + 1) for _ in range(source.randrange(4)))


@pytest.mark.parametrize("seed", range(30))
def test_values_in_values_come_back(seed):
    value = drawn(random.Random(seed))
    assert same(values_in(stored(packed(value))), value)


def test_packed_values_in_values_are_no_bytes_in_the_file():
    inner = packed((1, {"a": (2,)}, packed([3])))
    content = stored(packed({"random": inner}))
    assert b"packed\x00" not in content
    found = unpacked(loaded(content))["random"]
    assert unpacked(found)[:2] == (1, {"a": (2,)}) and unpacked(unpacked(found)[2]) == [3]


encode = msgspec.msgpack.encode
DEEP = b"\x92\xa4list" * 100_000 + b"\xc0"
REFUSED = [
    b"", b"\xc1", encode([]), encode([1]), encode({}), encode({"a": 1}), encode(["eval", "1"]), encode(["int", "x"]), encode(["int"]),
    encode(["int", 1]), encode(["str", "x"]), encode(["str", b"x", b"y"]), encode(["complex", "a", 1]), encode(["complex"]),
    encode(["dict", 1]), encode(["dict", ["list"], 1]), encode(["set", ["list"]]), encode(["packed"]), encode(["packed", 1, 2]),
    encode(packed(())), encode(["tuple", packed(())]), encode(msgspec.msgpack.Ext(5, b"x")), DEEP, b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\x91" * 200_000, b"\x81" * 200_000,
]  # fmt: skip


@pytest.mark.parametrize("content", REFUSED, ids=range(len(REFUSED)))
def test_what_is_of_no_kind_that_is_saved_is_refused(content):
    with pytest.raises(PieceError):
        values_in(content)


@pytest.mark.parametrize(
    "value", [compile("1", "x", "eval"), (Ellipsis,), [StopIteration]], ids=["code", "ellipsis", "exception"]
)
def test_what_a_file_does_not_hold_is_not_written(value):
    with pytest.raises(ValueError, match="cannot be saved"):
        stored(packed(value))


def nested(value, depth):
    for _ in range(depth):
        value = (value,)
    return value


def test_values_in_values_end_somewhere():
    assert same(values_in(stored(packed(nested(1, 100)))), nested(1, 100))
    with pytest.raises(ValueError, match="more than 100 deep"):
        stored(packed(nested(1, 101)))
    with pytest.raises(PieceError, match="more than 100 deep"):
        values_in(b"\x92\xa5tuple" * 101 + b"\x01")


def test_no_bytes_crash_their_reader():
    # In a process of its own: a crash would be that of the tests. marshal dies of one in some hundred of such changes.
    program = """
import random
from paceline.parts.resume.recording.plain_values import loaded, stored
from paceline.parts.resume.recording.state_buffer import packed
from paceline.parts.resume.recording.state_piece import PieceError
drawn, refused = random.Random(1), 0
whole = stored(packed({"a": ("b", [1.5, 1 << 70, b"c"], {2: (3, {4}), "x": packed((5, "y"))})}))
for number in range(30_000):
    content = bytearray(whole)
    for _ in range(drawn.randrange(1, 5)):
        place = drawn.randrange(len(content))
        content[place:place + drawn.randrange(3)] = drawn.randbytes(drawn.randrange(3))
        if not content:
            break
    try:
        loaded(bytes(content))
    except PieceError:
        refused += 1
print(refused)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "") and int(said.stdout) > 10_000


def test_a_name_that_a_value_shares_with_a_tag_is_that_value():
    for tag in ("list", "tuple", "set", "frozenset", "dict", "int", "str", "complex", "packed"):
        for made, more in itertools.product((tuple, list), ((), (1,), ("x", b"y"))):
            value = made((tag, *more))
            assert same(values_in(stored(packed(value))), value)
