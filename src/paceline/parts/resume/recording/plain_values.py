"""The plain values of a saved state in a file: msgpack of tagged values, which nobody can make crash its reader or run anything.

A rank packs its plain values with marshal (state_buffer.py), whose reader trusts what it reads. So a file never holds that: the process
that saves writes tagged values, and what is loaded is checked, bounded and packed again.
"""

from typing import Any

import msgspec

from paceline.parts.resume.recording.state_buffer import is_packed, packed, unpacked
from paceline.parts.resume.recording.state_piece import PieceError

MOST_BYTES = 1 << 29
# Objects are nodes, which refer to each other by number: what nests is only what one node holds.
_MOST_DEPTH = 100
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MADE = {tag: made for made, tag in _CONTAINERS.items()}
_NUMBERS = range(-(1 << 63), 1 << 64)


def stored(data: bytes) -> bytes:
    """The content of a file with the values in `packed` bytes.

    Holds:   unpacked(loaded(stored(packed(value)))) == value, types included
    Raises:  ValueError: a value is of no kind that a file holds
    """
    content = msgspec.msgpack.encode(_tagged(unpacked(data), _MOST_DEPTH))
    if len(content) > MOST_BYTES:
        raise ValueError(f"the plain values are more than {MOST_BYTES} bytes")
    return content


def loaded(content: bytes) -> bytes:
    """The `packed` bytes of the values in a file.

    Raises:  PieceError: the content is not what `stored` writes
    """
    return packed(values_in(content))


def values_in(content: bytes) -> Any:
    """The values in a file.

    Raises:  PieceError: as `loaded`
    """
    if len(content) > MOST_BYTES:
        raise PieceError(f"its plain values are more than {MOST_BYTES} bytes")
    try:
        return _value(msgspec.msgpack.decode(content), _MOST_DEPTH)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PieceError(f"its plain values are of no kind that is saved: {error}") from error


def _tagged(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if value in _NUMBERS else ["int", hex(value)]
    if kind is str:
        return value if _is_text(value) else ["str", value.encode("utf-8", "surrogatepass")]
    if kind is bytes:
        return ["packed", _tagged(unpacked(value), _less(depth))] if is_packed(value) else value
    if kind is complex:
        return ["complex", value.real, value.imag]
    below = _less(depth)
    if kind is dict:
        return ["dict", *(_tagged(part, below) for item in value.items() for part in item)]
    if kind in _CONTAINERS:
        return [_CONTAINERS[kind], *[_tagged(item, below) for item in value]]
    raise ValueError(f"a value of type {kind.__name__} cannot be saved")


def _value(found: Any, depth: int) -> Any:
    kind = type(found)
    if found is None or kind in (bool, int, float, str):
        return found
    if kind is bytes:
        if is_packed(found):
            raise ValueError("packed values in a file")
        return found
    if kind is not list or not found or type(found[0]) is not str:
        raise ValueError(f"an untagged {kind.__name__}")
    tag, *parts = found
    below = _less(depth)
    if tag in _MADE:
        return _MADE[tag](_value(part, below) for part in parts)
    if tag == "dict":
        plain = [_value(part, below) for part in parts]
        return dict(zip(plain[::2], plain[1::2], strict=True))
    if tag == "int":
        (digits,) = parts
        return int(digits, 16)
    if tag == "str":
        (text,) = parts
        return bytes.decode(text, "utf-8", "surrogatepass")
    if tag == "complex":
        real, imaginary = parts
        return complex(float(real), float(imaginary))
    if tag == "packed":
        (inner,) = parts
        return packed(_value(inner, below))
    raise ValueError(f"a value with the tag {tag[:20]!r}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _less(depth: int) -> int:
    if not depth:
        raise ValueError(f"values within values, more than {_MOST_DEPTH} deep")
    return depth - 1
