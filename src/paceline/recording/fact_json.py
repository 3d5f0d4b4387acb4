"""Facts and messages as JSON has them: encoded where they are written, and decoded where what was written is used."""

import json
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of plain data that may hold facts; any other object is its text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, separators=separators, default=_plain)


def to_plain(fact: Any) -> dict[str, Any]:
    """A fact as JSON has it, without fields at their default; or a message without its tag.

    Holds:   from_plain(type(fact), to_plain(fact)) == fact
    """
    plain: dict[str, Any] = msgspec.to_builtins(fact, str_keys=True)
    if isinstance(fact, msgspec.Struct):
        return {name: value for name, value in plain.items() if name != fact.__struct_config__.tag_field}
    return {part.name: plain[part.name] for part in fields(fact) if getattr(fact, part.name) != _default(part)}


def from_plain(kind: type[T], plain: Any) -> T:
    """The fact from JSON; keys of a later version are ignored. A fact that was never encoded is returned as it is.

    Raises:  msgspec.ValidationError: it is none
    """
    if isinstance(plain, kind):
        return plain
    try:
        return msgspec.convert(plain, kind, strict=False)
    except (TypeError, ValueError, OverflowError) as error:
        # Half of a surrogate pair in a key, or a number that is no integer: msgspec has no message of its own for these.
        raise error if isinstance(error, msgspec.ValidationError) else msgspec.ValidationError(str(error)) from None


def fact_or_none(kind: type[T], plain: Any) -> T | None:
    """The fact from JSON; None: it is none, as in a damaged recording or one of a later version."""
    try:
        return from_plain(kind, plain)
    except msgspec.ValidationError:
        return None


def _plain(value: Any) -> Any:
    return to_plain(value) if is_dataclass(value) else str(value)


def _default(part: Field[Any]) -> Any:
    return part.default_factory() if part.default_factory is not MISSING else part.default
