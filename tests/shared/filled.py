"""Values in which every field has a value that is not its default, for documents that must show every key."""

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec


def filled(kind: Any, **given: Any) -> Any:
    """An instance of a dataclass or a msgspec structure; `given` fields have these values."""
    hints = typing.get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        names = {name: msgspec.structs.fields(kind)[place].default for place, name in enumerate(kind.__struct_fields__)}
    else:
        names = {one.name: one.default for one in dataclasses.fields(kind) if one.init}
    return kind(**{name: given.get(name, _value(hints[name], name, default)) for name, default in names.items()})


def _value(hint: Any, name: str, default: Any) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(next(one for one in inner if one is not type(None)), name, default)
    if hint is bool:
        return default is not True
    if hint is int:
        return 7
    if hint is float:
        return 1.5
    if hint in (str, Any):
        return f"a {name}"
    if hint is Path:
        return Path("/a") / name
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return list(hint)[-1]
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return filled(hint)
    if origin is tuple and inner[-1:] != (...,):
        return tuple(_value(one, name, None) for one in inner)
    if origin in (tuple, frozenset, list, set) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        container = origin if origin in (tuple, frozenset, list, set) else tuple
        return container([_value(inner[0], name, None)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_value(inner[0], "key", None): _value(inner[1], name, None)}
    raise TypeError(f"{name}: no value for {hint}")
