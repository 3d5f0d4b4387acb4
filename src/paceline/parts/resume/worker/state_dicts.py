"""The kept state of a rank as state dicts and plain values under the names of the script's variables, without running the script.

Where `Restore` fills the objects that a script has made again, this reads the same nodes by themselves: a model becomes what its
`state_dict()` would give, an optimizer likewise, and a variable with a plain value is that value.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .object_graph import Value

_SEQUENCES = {"tuple": tuple, "list": list, "deque": list, "set": set, "frozenset": set}
_DICTS = frozenset({"dict", "ordered", "counter", "default"})
# What these stand for is in the script, or belongs to its process.
_NO_VALUES = frozenset(
    {"function", "method", "partial", "python module", "loader", "loader iterator", "generator", "enum"}
)
_SCHEDULERS = "torch.optim.lr_scheduler:"
_OPTIMIZERS, _EXTRA = ("optimizer", "scheduler"), "extra"


# A state of another user may be made to cost: nodes that lead to each other many times, or deep, or under names without end.
_MOST_DEPTH, _MOST_PARTS, _MOST_MODULES, _LONGEST_NAME = 100, 10_000_000, 100_000, 1_000


class _NotPlain(Exception):
    """A value that holds an object."""


class _Made(NamedTuple):
    """The plain value of a node."""

    value: Any
    """The value."""
    depth: int = 1
    """How deep it is."""
    size: int = 1
    """Number of parts, each as often as it is held."""


class StateDicts:
    """What the document of a slot holds. `left_out`: names of variables whose values are neither a state dict nor plain."""

    def __init__(self, document: dict[str, Any], tensors: Sequence[Any]) -> None:
        """`document`: the plain values of the slot by their names in DOCUMENT. `tensors`: those of the slot."""
        self.models: dict[str, Any] = {}
        self.optimizers: dict[str, Any] = {}
        self.schedulers: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.left_out: list[str] = []
        self._nodes = document["nodes"]
        self._tensors = tensors
        self._met: set[int] = set()
        self._made: dict[int, _Made] = {}
        self._modules_left = _MOST_MODULES
        # Breadth first: an object that two names lead to gets the shorter one.
        self._waiting = deque(self._variables(document))
        while self._waiting:
            name, value, is_variable = self._waiting.popleft()
            self._take(name, value, is_variable)

    @staticmethod
    def _variables(document: dict[str, Any]) -> Iterator[tuple[str, Value, bool]]:
        main = document["modules"].get("__main__", {})
        used = set(main)
        yield from ((name, value, True) for name, value in main.items())
        # The function that runs last has the loop in it.
        spaces = [(function.rpartition(".")[2], kept) for (_, function), kept in reversed(document["frames"])]
        spaces += [(name, kept) for name, kept in document["modules"].items() if name != "__main__"]
        for owner, kept in spaces:
            for name, value in kept.items():
                yield (f"{owner}.{name}" if name in used else name), value, True
            used.update(kept)
        for kind, others in zip(_OPTIMIZERS, document["others"], strict=True):
            yield from ((f"{kind}[{number}]", value, False) for number, value in enumerate(others))
        yield from ((f"{_EXTRA}[{number}]", value, False) for number, value in enumerate(document["extra"]))

    def _take(self, name: str, value: Value, is_variable: bool) -> None:
        if type(value) is not tuple:
            self.values[name] = value
            return
        if not value or self._nodes[value[0]] is None:
            return
        if len(name) > _LONGEST_NAME:
            self.left_out.append(f"{name[:_LONGEST_NAME]}...")
            return
        code, payload = self._nodes[value[0]]
        # A model or optimizer that has two variables has two names, as two variables have one plain value.
        if value[0] in self._met and not (is_variable and code in ("module", "optimizer")):
            return
        self._met.add(value[0])
        if code == "module":
            self._keep_dict(name, self.models, lambda: self._of_module(payload))
            self._below(name, payload[5].items())
        elif code == "optimizer":
            self._keep_dict(name, self.optimizers, lambda: self._of_optimizer(payload))
        elif code == "attributes" and payload[0].startswith(_SCHEDULERS):
            self._keep_dict(name, self.schedulers, lambda: self._of_scheduler(payload))
        elif code not in _NO_VALUES:
            try:
                self.values[name] = self._plain(value, ())
            except _NotPlain:
                if not self._open(name, code, payload):
                    self.left_out.append(name)

    def _keep_dict(self, name: str, found: dict[str, Any], made: Any) -> None:
        try:
            if state := made():
                found[name] = state
        except _NotPlain:
            self.left_out.append(name)

    def _open(self, name: str, code: str, payload: Any) -> bool:
        """Wait for what an object that is not plain holds; whether that can be named."""
        if code in ("instance", "attributes"):
            self._below(name, payload[1].items())
        elif code == "class":
            # Of a library's class that the script has imported, these are the library's own.
            self._below(name, ((one, value) for one, value in payload[1].items() if not one.startswith("_")))
        elif code == "stateful":
            self._waiting.append((name, payload[0], False))
        elif code in _DICTS and type(payload) is list:
            for key, value in zip(payload[1][::2], payload[1][1::2], strict=True):
                self._waiting.append((f"{name}[{key!r}]", value, False))
        elif code in _SEQUENCES and type(payload) is list:
            items = payload if code in ("set", "frozenset") else payload[1]
            self._waiting.extend((f"{name}[{number}]", value, False) for number, value in enumerate(items))
        else:
            return False
        return True

    def _below(self, name: str, attributes: Iterable[tuple[str, Value]]) -> None:
        self._waiting.extend((f"{name}.{attribute}", value, False) for attribute, value in attributes)

    # ------------------------------------------------------------------------------------------------------- state dicts

    def _of_module(self, payload: Any, prefix: str = "") -> dict[str, Any]:
        self._modules_left -= 1
        if self._modules_left < 0 or prefix.count(".") > _MOST_DEPTH:
            raise _NotPlain
        _, _, parameters, buffers, children, _, *rest = payload
        not_persistent = rest[0] if rest else ()
        found: dict[str, Any] = OrderedDict()
        for name, value in (*parameters.items(), *buffers.items()):
            if value is not None and name not in not_persistent:
                found[prefix + name] = self._plain(value, ())
        for name, value in children.items():
            if value is not None and value and self._nodes[value[0]] is not None:
                found.update(self._of_module(self._nodes[value[0]][1], f"{prefix}{name}."))
        return found

    def _of_optimizer(self, payload: Any) -> dict[str, Any]:
        _, _, groups, state, _ = payload
        numbers: dict[Value, int] = {}
        described = []
        for group in groups:
            parameters = self._nodes[group["params"][0]][1][1]
            for parameter in parameters:
                numbers.setdefault(parameter, len(numbers))
            plain = {name: self._plain(value, ()) for name, value in group.items() if name != "params"}
            described.append({**plain, "params": [numbers[parameter] for parameter in parameters]})
        flat = self._nodes[state[0]][1][1]
        of_parameters = {
            numbers[key] if key in numbers else self._plain(key, ()): self._plain(value, ())
            for key, value in zip(flat[::2], flat[1::2], strict=True)
        }
        return {"state": of_parameters, "param_groups": described}

    def _of_scheduler(self, payload: Any) -> dict[str, Any]:
        found = {}
        for name, value in payload[1].items():
            if name != "optimizer" and value != ():
                found[name] = self._plain(value, ())
        return found

    # ------------------------------------------------------------------------------------------------------ plain values

    def _plain(self, value: Value, above: tuple[int, ...]) -> Any:
        """The value without any object. `above`: the nodes that it is in.

        Raises:  _NotPlain
        """
        if type(value) is not tuple:
            return value
        node = self._nodes[value[0]] if value else None
        if node is None or value[0] in above:
            raise _NotPlain
        if value[0] not in self._made:
            self._made[value[0]] = self._make(node, (*above, value[0]))
        made = self._made[value[0]]
        if len(above) + made.depth > _MOST_DEPTH:
            raise _NotPlain
        return made.value

    def _make(self, node: Any, within: tuple[int, ...]) -> _Made:
        code, payload = node
        if code == "tensor" and payload[0] is not None:
            return _Made(self._tensors[payload[0]])
        if code == "bytearray":
            return _Made(payload)
        # The checksum of a long container that the script makes again is no value.
        if type(payload) is not list or len(within) > _MOST_DEPTH:
            raise _NotPlain
        if code not in _SEQUENCES and code not in _DICTS:
            raise _NotPlain
        parts = payload if code in ("set", "frozenset") else payload[1]
        plain = [self._plain(part, within) for part in parts]
        below = [self._made[part[0]] for part in parts if type(part) is tuple]
        size = len(plain) + sum(one.size for one in below)
        # Whoever hashes, compares or prints a value meets what two places hold twice.
        if size > _MOST_PARTS:
            raise _NotPlain
        try:
            made = dict(zip(plain[::2], plain[1::2], strict=True)) if code in _DICTS else _SEQUENCES[code](plain)
        except TypeError:
            # A set that was frozen holds nothing that can be hashed any more.
            raise _NotPlain from None
        return _Made(made, 1 + max((one.depth for one in below), default=0), size)
