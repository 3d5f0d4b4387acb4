"""Kinds of the user's own objects: instances, closures, bound methods, named functions and classes, enums, iterators of Python."""

import collections
import enum
import functools
import gc
import importlib
import re
import sys
import types
import warnings
from typing import Any

from .object_graph import LEFT, MISSING, CannotKeep, CannotPutBack, Capture, ObjectKind, Restore, Value

# Copying these is what `copy.copy` does; they never change.
_IMMUTABLE = frozenset({
    "datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta", "datetime.timezone", "decimal.Decimal",
    "fractions.Fraction", "pathlib.PosixPath", "pathlib._local.PosixPath", "uuid.UUID", "torch.device", "torch.dtype",
    "builtins.range", "builtins.slice", "builtins.ellipsis",
})  # fmt: skip
# Only these releases say so, at every iterator of itertools that is kept; a filter is set once, because each change of the filters makes
# Python forget which of the user's warnings it has shown.
if (3, 12) <= sys.version_info < (3, 14):
    warnings.filterwarnings("ignore", "Pickle, copy, and deepcopy support", DeprecationWarning, re.escape(__name__))
_LOADER_BEGAN = "a data loader that has begun"
# What an iterator of Python holds, by which it takes from another one.
_HELD = (tuple, type(iter(())), enumerate, filter, map, zip)
# Py_TPFLAGS_IMMUTABLETYPE of a class.
_IMMUTABLE_CLASS = 1 << 8


class Names:
    """Names of classes and functions, and what has such a name."""

    def name_of(self, thing: Any) -> str:
        """Module and qualified name."""
        return f"{thing.__module__}:{thing.__qualname__}"

    def leads_to(self, thing: Any) -> bool:
        """Whether the name of a function or class leads back to it."""
        try:
            return _named(self.name_of(thing)) is thing
        except (AttributeError, ImportError):
            return False

    def thing(self, name: str, place: str) -> Any:
        """The class or function of this name.

        Raises:  CannotPutBack
        """
        try:
            return _named(name)
        except (AttributeError, ImportError) as error:
            raise CannotPutBack(f"`{place}` needs {name.replace(':', '.')}: {error}") from None


class InstanceKind(ObjectKind):
    """An instance of a class of the user. Payload: class, attributes, items if it is a container too."""

    code = "instance"

    def keep(self, capture: Capture, thing: Any) -> Any:
        attributes = {name: capture.value(value) for name, value in _attributes_of(thing).items()}
        items: list[Value] | None = None
        # Python's own methods, because those of the class may do more: a dict of transformers imports all its models.
        if isinstance(thing, dict):
            items = [capture.value(part) for item in _dict_of(thing).items(thing) for part in item]
        elif isinstance(thing, list | set | collections.deque):
            items = [capture.value(item) for item in _base_of(thing).__iter__(thing)]
        return [capture.context.names.name_of(type(thing)), attributes, items]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, kept, items = payload
        if live is MISSING or f"{type(live).__module__}:{type(live).__qualname__}" != name:
            own_type = restore.context.names.thing(name, restore.place)
            live = own_type.__new__(own_type)
        restore.bind(number, live)
        before = _attributes_of(live)
        for name in before.keys() - kept.keys():
            object.__delattr__(live, name)
        for name, made in restore.variables(kept, before).items():
            # A frozen dataclass refuses the ordinary way.
            if name not in before or before[name] is not made:
                object.__setattr__(live, name, made)
        if items is not None:
            _put_items(restore, live, items)
        return live


class ClassKind(ObjectKind):
    """A class. Payload: its name, its attributes that are values and can be set: not those of a class in C (`timedelta.max`)."""

    code = "class"

    def keep(self, capture: Capture, thing: Any) -> Any:
        attributes = {
            name: capture.value(value)
            for name, value in vars(thing).items()
            if not thing.__flags__ & _IMMUTABLE_CLASS
            and ((not name.startswith("__") and not _is_part_of_a_class(value)) or has_changing_defaults(value))
        }
        named = capture.context.names.leads_to(thing)
        return [capture.context.names.name_of(thing) if named else "", attributes] if named or attributes else LEFT

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, kept = payload
        found = restore.context.names.thing(name, restore.place) if name else live
        if found is MISSING:
            raise CannotPutBack(f"the script has not made the class `{restore.place}` again")
        restore.bind(number, found)
        for attribute, value in kept.items():
            before = vars(found).get(attribute, MISSING)
            made = restore.thing(value, before)
            if made is not before:
                setattr(found, attribute, made)
        return found


class FunctionKind(ObjectKind):
    """A function.

    Payload: its name where that leads to it, the variables it shares with the function around it, its attributes, its defaults if one of
    them can change. Of a function of a library only the name.
    """

    code = "function"

    def keep(self, capture: Capture, thing: Any) -> Any:
        named = capture.context.names.leads_to(thing)
        if not capture.context.is_users_function(thing):
            return [capture.context.names.name_of(thing), None, {}, LEFT] if named else LEFT
        cells = [[_filled(cell), capture.value(_content(cell))] for cell in thing.__closure__ or ()]
        attributes = {name: capture.value(value) for name, value in vars(thing).items()}
        defaults = capture.value(_defaults(thing)) if has_changing_defaults(thing) else LEFT
        return [capture.context.names.name_of(thing) if named else "", cells, attributes, defaults]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, cells, attributes, defaults = payload
        found = restore.context.names.thing(name, restore.place) if name else live
        if not isinstance(found, types.FunctionType):
            raise CannotPutBack(f"the script has not made the function `{restore.place}` again")
        restore.bind(number, found)
        if cells is None:
            return found
        if len(found.__closure__ or ()) != len(cells):
            raise CannotPutBack(f"the function `{restore.place}` is another one than before")
        for cell, (was_filled, value) in zip(found.__closure__ or (), cells, strict=True):
            if was_filled:
                cell.cell_contents = restore.thing(value, _content(cell) if _filled(cell) else MISSING)
        for attribute, value in attributes.items():
            vars(found)[attribute] = restore.thing(value, vars(found).get(attribute, MISSING))
        # They are filled in place: nobody can give a function other ones without setting them anew.
        restore.thing(defaults, _defaults(found))
        return found


class MethodKind(ObjectKind):
    """A bound method. Payload: its object and its name."""

    code = "method"

    def keep(self, capture: Capture, thing: Any) -> Any:
        owner = capture.value(thing.__self__)
        return LEFT if owner is LEFT else [owner, thing.__name__]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        owner = restore.thing(payload[0], getattr(live, "__self__", MISSING))
        if live is not MISSING and getattr(live, "__self__", None) is owner and live.__name__ == payload[1]:
            return live
        return getattr(owner, payload[1])


class PartialKind(ObjectKind):
    """A functools.partial. Payload: function, arguments, keywords."""

    code = "partial"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return [capture.value(thing.func), capture.value(thing.args), capture.value(thing.keywords)]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        there = live if isinstance(live, functools.partial) else None
        function = restore.thing(payload[0], there.func if there else MISSING)
        arguments = restore.thing(payload[1], there.args if there else MISSING)
        keywords = restore.thing(payload[2], there.keywords if there else MISSING)
        if there and there.func is function and there.args is arguments:
            return there
        return functools.partial(function, *arguments, **keywords)


class EnumKind(ObjectKind):
    """A member of an enum. Payload: class and name."""

    code = "enum"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return [capture.context.names.name_of(type(thing)), thing._name_]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        return restore.context.names.thing(payload[0], restore.place)[payload[1]]


class ModuleOfPythonKind(ObjectKind):
    """A module. Payload: its name. Its variables are walked from elsewhere."""

    code = "python module"

    def keep(self, capture: Capture, thing: Any) -> Any:
        return thing.__name__

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        return sys.modules.get(payload, live)


class ReducedKind(ObjectKind):
    """A value that never changes, or an iterator of Python, by what pickle would call. Payload: function, arguments, state."""

    code = "reduced"

    def keep(self, capture: Capture, thing: Any) -> Any:
        try:
            reduced = thing.__reduce__() if not hasattr(thing, "__reduce_ex__") else thing.__reduce_ex__(2)
        except (TypeError, DeprecationWarning) as error:
            # From Python 3.14 on, an iterator of itertools does not tell where it is.
            why = f" around {_LOADER_BEGAN}" if _takes_from_a_loader(thing, capture) else f": {error}"
            raise CannotKeep(f"`{capture.place}` is a {type(thing).__name__}{why}") from None
        if isinstance(reduced, str):
            # torch.float32 and its like: a name in a module.
            return [f"{type(thing).__module__}:{reduced}", None, None]
        function, arguments, *rest = reduced
        if any(_is_of_a_loader(one, capture) for one in arguments):
            # Nobody else leads to that iterator, so it could not be moved to its place.
            raise CannotKeep(f"`{capture.place}` is a {type(thing).__name__} around {_LOADER_BEGAN}")
        values = [capture.value(argument) for argument in arguments]
        state = capture.value(rest[0]) if rest and rest[0] is not None else None
        return [capture.context.names.name_of(function), values, state]

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        name, values, state = payload
        function = restore.context.names.thing(name, restore.place)
        if values is None:
            return function
        made = function(*(restore.thing(value) for value in values))
        if state is not None:
            made.__setstate__(restore.thing(state))
        return made


def _is_of_a_loader(thing: Any, capture: Capture) -> bool:
    return getattr(capture.context.kind_of(type(thing)), "code", "") == "loader iterator"


def _takes_from_a_loader(iterator: Any, capture: Capture) -> bool:
    """Whether an iterator of Python takes what it gives from a loader's iterator, at whatever depth."""
    held = gc.get_referents(iterator)
    inner = [one for one in held if type(one) in _HELD or type(one).__module__ == "itertools"]
    return any(_is_of_a_loader(one, capture) for one in held) or any(
        _takes_from_a_loader(one, capture) for one in inner
    )


def is_immutable(own_type: type) -> bool:
    """Whether the instances of a type of the standard library never change."""
    return f"{own_type.__module__}.{own_type.__qualname__}" in _IMMUTABLE


def has_changing_defaults(function: Any) -> bool:
    """Whether this is a function with a default that keeps something from call to call: `def add(loss, seen=[])`."""
    if type(function) is not types.FunctionType or not (function.__defaults__ or function.__kwdefaults__):
        return False
    return any(isinstance(one, list | dict | set | collections.deque) for one in _defaults(function))


def _defaults(function: Any) -> list[Any]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _put_items(restore: Restore, live: Any, items: list[Value]) -> None:
    # Python's own methods, as in `keep`.
    if isinstance(live, dict):
        own = _dict_of(live)
        before = dict(own.items(live))
        own.clear(live)
        for i in range(0, len(items), 2):
            key = restore.thing(items[i])
            own.__setitem__(live, key, restore.thing(items[i + 1], before.get(key, MISSING)))
        return
    base = _base_of(live)
    there = list(base.__iter__(live))
    made = [restore.thing(value, there[i] if i < len(there) else MISSING) for i, value in enumerate(items)]
    base.clear(live)
    (base.update if base is set else base.extend)(live, made)


def _dict_of(thing: Any) -> Any:
    return collections.OrderedDict if isinstance(thing, collections.OrderedDict) else dict


def _base_of(thing: Any) -> Any:
    return next(base for base in (list, set, collections.deque) if isinstance(thing, base))


def _attributes_of(thing: Any) -> dict[str, Any]:
    found = dict(vars(thing)) if hasattr(thing, "__dict__") else {}
    for base in type(thing).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def _is_part_of_a_class(value: Any) -> bool:
    own_type = type(value)
    return hasattr(own_type, "__get__") or isinstance(value, type | enum.Enum)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _content(cell: Any) -> Any:
    return cell.cell_contents if _filled(cell) else None


def _named(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found
