"""The objects of a training script as plain data, and back into the objects that the script has made again.

`Capture` walks from variables through containers, models, optimizers and the user's own objects. Each mutable object becomes one node, so
two names of one dict stay two names of one dict. `Restore` walks the nodes beside the objects of a new process: an object at the same place
is filled in place, because others may hold it; one that is not there is made. What a node holds is written by its kind (kinds.py).

A value in a node is a plain value itself, a reference `(number,)` to a node, or `()`: an object that is left as the script makes it.
"""

from __future__ import annotations

from typing import Any

from .descriptors import name_of
from .shared_memory import Placed

Value = Any
Node = tuple[str, Any]
LEFT: Value = ()
MISSING: Any = object()
PLAIN_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes})
_MOST_NODES = 1_000_000


class CannotKeep(Exception):
    """An object has a state that cannot be kept. The text names it."""


class CannotPutBack(Exception):
    """A saved state does not fit the objects that the script has made. The text says where."""


class Unchanged:
    """A plain value that the training has not changed, in a state of another number of ranks: the script makes its own again."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ObjectKind:
    """One kind of object: how it becomes plain data, and how that becomes an object again."""

    code = ""

    def keep(self, capture: Capture, thing: Any) -> Any:
        """The payload of a node.

        Raises:  CannotKeep
        """
        raise NotImplementedError

    def put(self, restore: Restore, number: int, payload: Any, live: Any) -> Any:
        """The object of a node. `live`: the object at its place in this process, or MISSING. A mutable object is bound before its parts.

        Raises:  CannotPutBack
        """
        raise NotImplementedError


class Capture:
    """One walk, in the `kinds.Context` of a process.

    `tensors`: what must be copied, in the order in which nodes refer to them; `described`: dtype and shape of each.
    """

    __slots__ = (
        "_held",
        "_kinds",
        "_numbers",
        "context",
        "described",
        "nodes",
        "place",
        "sharded",
        "storages",
        "tensors",
    )

    def __init__(self, context: Any) -> None:
        self.nodes: list[Node | None] = []
        self.tensors: list[Any] = []
        self.described: list[tuple[str, tuple[int, ...]]] = []
        # Address of a storage -> the number of the first tensor in it.
        self.storages: dict[int, int] = {}
        # Number of the copy of a shard, None without one; the tensor that it is of, which has the gradient.
        self.sharded: list[tuple[int | None, Any]] = []
        self.context = context
        # The variable that is being walked, for messages.
        self.place = ""
        self._numbers: dict[int, Value] = {}
        # Ids are only unique while the objects live.
        self._held: list[Any] = []
        self._kinds = context.kinds

    def value(self, thing: Any) -> Value:
        """The value that stands for an object."""
        own_type = type(thing)
        if own_type in PLAIN_TYPES:
            return thing
        reference = self._numbers.get(id(thing))
        if reference is not None:
            return reference
        try:
            kind = self._kinds[own_type]
        except KeyError:
            kind = self._kinds[own_type] = self.context.kind_of(own_type)
        if kind is None:
            return LEFT
        number = len(self.nodes)
        if number > _MOST_NODES:
            raise CannotKeep(f"`{self.place}` holds more than {_MOST_NODES} objects")
        reference = self._numbers[id(thing)] = (number,)
        self._held.append(thing)
        self.nodes.append(None)
        payload = kind.keep(self, thing)
        if payload is LEFT:
            self._numbers[id(thing)] = LEFT
            return LEFT
        self.nodes[number] = (kind.code, payload)
        return reference

    def copied(self, tensor: Any, dtype: str, shape: tuple[int, ...]) -> int:
        """Note that a tensor must be copied, and return its number."""
        self.tensors.append(tensor)
        self.described.append((dtype, shape))
        return len(self.tensors) - 1

    def copy_of(self, value: Value) -> int | None:
        """The number of a tensor's copy; None: it is left as the script makes it. `value`: that stands for the tensor."""
        return _copy_of(self.nodes, value)

    def has(self, thing: Any) -> bool:
        """Whether the walk has met this object."""
        return id(thing) in self._numbers

    def variables(self, space: dict[str, Any], names: frozenset[str] | None = None) -> dict[str, Value]:
        """The values of variables. `names`: those to keep; None: all."""
        kept: dict[str, Value] = {}
        for name, thing in space.items():
            if names is None or name in names:
                self.place = name
                kept[name] = self.value(thing)
        return kept


class Restore:
    """Puts nodes back. The caller copies the tensors afterwards, all at once, and then has the states loaded."""

    __slots__ = (
        "_kinds",
        "_made",
        "_taken",
        "context",
        "copies",
        "nodes",
        "open_files",
        "place",
        "placed",
        "sharded",
        "states",
    )

    def __init__(self, nodes: list[Node | None], context: Any) -> None:
        self.nodes = nodes
        self.context = context
        self.place = ""
        # (tensor of this process, number of the kept tensor)
        self.copies: list[tuple[Any, int]] = []
        # (tensor that is spread over ranks, number of the kept shard)
        self.sharded: list[tuple[Any, int | None]] = []
        # Where each of these tensors was in its memory.
        self.placed: list[Placed] = []
        # Number -> path of the files that were open where the state was kept.
        self.open_files: dict[int, str] = {}
        # (object of a library, its state_dict)
        self.states: list[tuple[Any, Any]] = []
        self._made: dict[int, Any] = {}
        # By id, every object that a node has become. They are held, so that an id stays theirs.
        self._taken: dict[int, Any] = {}
        self._kinds = context.kinds_by_code

    def thing(self, value: Value, live: Any = MISSING) -> Any:
        """The object of a value. `live`: the object at its place in this process.

        Raises:  CannotPutBack: it is neither there nor can it be made
        """
        if type(value) is not tuple:
            if type(value) is Unchanged:
                return value.value if live is MISSING else live
            return live if self._is_same_open_file(value, live) else value
        number = value[0] if value else -1
        if number in self._made:
            return self._made[number]
        node = self.nodes[number] if value else None
        if node is None:
            if live is MISSING:
                raise CannotPutBack(f"`{self.place}` was made in the training loop, and cannot be made again here")
            return live
        code, payload = node
        # Two objects that were one at the script's beginning are two again.
        made = self._kinds[code].put(self, number, payload, MISSING if id(live) in self._taken else live)
        self.bind(number, made)
        return made

    def _is_same_open_file(self, value: Value, live: Any) -> bool:
        """Whether a number was that of an open file, and the number in its place is that of the same file."""
        if type(value) is not int or type(live) is not int or value not in self.open_files:
            return False
        return name_of(live) == self.open_files[value]

    def copy_of(self, value: Value) -> int | None:
        """The number of a tensor's copy; None: it has none. `value`: that stands for the tensor."""
        return _copy_of(self.nodes, value)

    def load_states(self) -> None:
        """Give each object of a library its state_dict. It may clone the tensors, so these must have their values."""
        for thing, state in self.states:
            thing.load_state_dict(state)

    def made(self) -> list[Any]:
        """What has been put back so far."""
        return list(self._made.values())

    def bind(self, number: int, made: Any) -> None:
        """Say which object a node is before its parts are put back, which may refer to it."""
        self._made[number] = made
        self._taken[id(made)] = made

    def variables(self, kept: dict[str, Value], space: dict[str, Any]) -> dict[str, Any]:
        """The variables as they were. `space`: as they are in this process.

        A name may be of another object than at the script's beginning: `state = following`. What only one name leads to is put back first.
        """
        lives: dict[Value, list[Any]] = {}
        for name, value in kept.items():
            if type(value) is tuple:
                lives.setdefault(value, []).append(space.get(name, MISSING))
        found: dict[str, Any] = {}
        for name in sorted(kept, key=lambda name: self._is_late(kept[name], lives)):
            self.place, value = name, kept[name]
            live = space.get(name, MISSING)
            if value and type(value) is tuple and id(live) in self._taken:
                live = next((one for one in lives[value] if id(one) not in self._taken), live)
            found[name] = self.thing(value, live)
        return {name: found[name] for name in kept}

    def _is_late(self, value: Value, lives: dict[Value, list[Any]]) -> tuple[bool, int]:
        """What a place in the order of putting back is sorted by: models in a wrapper first, which holds on to what it has wrapped."""
        if type(value) is not tuple or not value:
            return True, 0
        node = self.nodes[value[0]]
        is_wrapped = node is not None and node[0] == "module" and "torch.nn.parallel." in node[1][0]
        return not is_wrapped, len({id(one) for one in lives[value]})


def _copy_of(nodes: list[Node | None], value: Value) -> int | None:
    node = nodes[value[0]] if value else None
    return node[1][0] if node is not None and node[0] == "tensor" else None
