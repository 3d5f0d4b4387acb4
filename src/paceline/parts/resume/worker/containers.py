"""Kinds of containers. A mutable one is filled in place, so that every name for it sees the same."""

import collections
import marshal
import zlib
from collections.abc import Iterable
from typing import Any

from .object_graph import MISSING, PLAIN_TYPES, CannotPutBack, Capture, ObjectKind, Restore, Value

# Of a longer one, only a shallow comparison is made at each step where nothing below it can change.
_LONG = 256
_FACTORIES: dict[str, Any] = {"int": int, "float": float, "list": list, "dict": dict, "set": set, "str": str}


class ListKind(ObjectKind):
    """A list or a deque. Payload: maxlen and its items; or the checksum of a long one that has not changed."""

    def __init__(self, code: str, own_type: Any) -> None:
        self.code = code
        self._type = own_type

    def keep(self, capture: Capture, thing: Any) -> Any:
        if len(thing) > _LONG and (checksum := _unchanged(capture, thing)) is not None:
            return checksum
        return [getattr(thing, "maxlen", None), [capture.value(item) for item in thing]]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if type(payload) is int:
            return _the_same(restore, self._type, payload, live)
        longest, values = payload
        made = live if type(live) is self._type else self._type() if longest is None else self._type((), longest)
        restore.bind(number, made)
        before = list(made)
        items = [restore.thing(value, before[i] if i < len(before) else MISSING) for i, value in enumerate(values)]
        made.clear()
        made.extend(items)
        return made


class DictKind(ObjectKind):
    """A dict, an OrderedDict, a Counter or a defaultdict. Payload: keys and values in turn, and the name of the factory."""

    def __init__(self, code: str, own_type: Any) -> None:
        self.code = code
        self._type = own_type

    def keep(self, capture: Capture, thing: Any) -> Any:
        if len(thing) > _LONG and (checksum := _unchanged(capture, thing)) is not None:
            return checksum
        factory = getattr(getattr(thing, "default_factory", None), "__name__", None)
        flat: list[Value] = []
        for key, value in thing.items():
            flat.append(capture.value(key))
            flat.append(capture.value(value))
        return [factory, flat]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if type(payload) is int:
            return _the_same(restore, self._type, payload, live)
        factory, flat = payload
        made = live if type(live) is self._type else self._type()
        if made is not live and factory is not None:
            if factory not in _FACTORIES:
                raise CannotPutBack(
                    f"`{restore.place}` is a defaultdict of {factory} that the script does not make again"
                )
            made.default_factory = _FACTORIES[factory]
        restore.bind(number, made)
        before = dict(made)
        places = list(before)
        items = {}
        for i in range(0, len(flat), 2):
            # A key that is an object has no equal in this process: it is found by its place.
            is_object = type(flat[i]) is tuple and i // 2 < len(places)
            key = restore.thing(flat[i], places[i // 2] if is_object else MISSING)
            items[key] = restore.thing(flat[i + 1], before.get(key, MISSING))
        made.clear()
        for key, value in items.items():
            made[key] = value
        return made


class SetKind(ObjectKind):
    """A set or a frozenset. Payload: its members, in its order."""

    def __init__(self, code: str, own_type: Any) -> None:
        self.code = code
        self._type = own_type

    def keep(self, capture: Capture, thing: Any) -> Any:
        if len(thing) > _LONG and (checksum := _unchanged(capture, thing)) is not None:
            return checksum
        return [capture.value(member) for member in thing]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if type(payload) is int:
            return _the_same(restore, self._type, payload, live)
        members = [restore.thing(value) for value in payload]
        if self._type is frozenset:
            return frozenset(members)
        made = live if type(live) is set else set()
        restore.bind(number, made)
        made.clear()
        made.update(members)
        return made


class TupleKind(ObjectKind):
    """A tuple, a named tuple or a torch.Size. Payload: the name of its class and its items."""

    code = "tuple"

    def keep(self, capture: Capture, thing: Any) -> Any:
        own_type = type(thing)
        name = None if own_type is tuple else capture.context.names.name_of(own_type)
        if len(thing) > _LONG and (checksum := _unchanged(capture, thing)) is not None:
            return checksum
        return [name, [capture.value(item) for item in thing]]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        if type(payload) is int:
            return _the_same(restore, tuple, payload, live)
        name, values = payload
        there = live if isinstance(live, tuple) else ()
        items = [restore.thing(value, there[i] if i < len(there) else MISSING) for i, value in enumerate(values)]
        if len(there) == len(items) and all(a is b for a, b in zip(there, items, strict=True)):
            return live
        own_type: Any = tuple if name is None else restore.context.names.thing(name, restore.place)
        return own_type._make(items) if hasattr(own_type, "_make") else own_type(items)


class ByteArrayKind(ObjectKind):
    """A bytearray. Payload: its bytes."""

    code = "bytearray"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return bytes(thing)

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        made = live if type(live) is bytearray else bytearray()
        made[:] = payload
        return made


class LongContainers:
    """Long containers whose items cannot change themselves, as they were when they were first seen."""

    def __init__(self) -> None:
        # Id -> the container, its items then, their checksum. The items are held, so that none can take the place of another.
        self._first: dict[int, tuple[Any, Any, int]] = {}

    def note(self, thing: Any) -> None:
        """A container that the script makes in front of its training loop."""
        if _cannot_change(thing.values() if isinstance(thing, dict) else thing):
            copied = thing if isinstance(thing, tuple | frozenset) else type(thing)(thing)
            self._first[id(thing)] = (thing, copied, _checksum(thing))

    def knows(self, thing: Any) -> bool:
        """Whether the container has been noted."""
        known = self._first.get(id(thing))
        return known is not None and known[0] is thing

    def unchanged(self, thing: Any) -> int | None:
        """The checksum of a noted container that has not changed since; None: it has."""
        known = self._first[id(thing)]
        try:
            return known[2] if len(known[1]) == len(thing) and bool(known[1] == thing) else None
        except Exception:
            # Items of other libraries compare in their own ways.
            return None


def _unchanged(capture: Capture, thing: Any) -> int | None:
    """The checksum of a container that the script makes again as it is; None: it may not, or is seen for the first time."""
    known = capture.context.long_containers
    if known.knows(thing):
        return known.unchanged(thing)
    if capture.context.is_beginning:
        known.note(thing)
    return None


def _the_same(restore: Restore, own_type: Any, checksum: int, live: Any) -> Any:
    """The container that the script has made again, which must be as it was."""
    if live is MISSING:
        raise CannotPutBack(f"the script has not made `{restore.place}` again in front of its training loop")
    if not isinstance(live, own_type) or not _cannot_change(live) or _checksum(live) != checksum:
        raise CannotPutBack(f"the script has made `{restore.place}` with other items than before")
    restore.context.long_containers.note(live)
    return live


def _checksum(thing: Any) -> int:
    if isinstance(thing, set | frozenset):
        items = sorted(thing, key=repr)
    else:
        items = list(thing.items() if isinstance(thing, dict) else thing)
    # Later versions of the format tell whether two equal items are one object.
    return zlib.crc32(marshal.dumps(items, 2))


def _cannot_change(items: Iterable[Any]) -> bool:
    waiting = [items]
    while waiting:
        for item in waiting.pop():
            if type(item) in PLAIN_TYPES:
                continue
            if type(item) not in (tuple, frozenset):
                return False
            waiting.append(item)
    return True


KINDS: dict[type, ObjectKind] = {
    list: ListKind("list", list),
    collections.deque: ListKind("deque", collections.deque),
    dict: DictKind("dict", dict),
    collections.OrderedDict: DictKind("ordered", collections.OrderedDict),
    collections.Counter: DictKind("counter", collections.Counter),
    collections.defaultdict: DictKind("default", collections.defaultdict),
    set: SetKind("set", set),
    frozenset: SetKind("frozenset", frozenset),
    tuple: TupleKind(),
    bytearray: ByteArrayKind(),
}
