"""Fields of a Protocol Buffers message as bytes, by their numbers. A message is its fields, one behind the other.

Source:  protobuf.dev, "Encoding"
"""

import struct


def number_field(number: int, value: int) -> bytes:
    """An integer of 0 or more, or an enum, as a varint."""
    return _key(number, 0) + _varint(value)


def double_field(number: int, value: float) -> bytes:
    """A double."""
    return _key(number, 1) + struct.pack("<d", value)


def fixed64_field(number: int, value: int) -> bytes:
    """An integer of 0 or more in eight bytes."""
    return _key(number, 1) + struct.pack("<Q", value)


def float_field(number: int, value: float) -> bytes:
    """A float of four bytes."""
    return _key(number, 5) + struct.pack("<f", value)


def bytes_field(number: int, content: bytes) -> bytes:
    """Bytes, a string's UTF-8 or a message."""
    return _key(number, 2) + _varint(len(content)) + content


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
