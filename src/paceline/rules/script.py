"""A training script as its syntax tree, walked once for all checks that look into it. Nothing of it is executed.

These checks are right or silent: a name counts only if every binding of it leads to the same object. Code under a
condition or in a `try` leads to a warning instead of an error.
"""

import ast
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from paceline.findings import Finding, Severity, Unknown
from paceline.rules.job_facts import BeforeRun

_Node = TypeVar("_Node", bound=ast.AST)
_READERS = ("os.getenv", "os.environ.get", "os.environ.pop")
_VERSION = re.compile(r"py(\d)(\d+)")
_OLDEST_GRAMMAR = (3, 7)
_LONGEST_QUOTE = 100
_NO_NAMES: frozenset[str] = frozenset()
# Fields without nodes, or with nodes without fields ("+" is one shared object in the whole tree).
_NO_NODES = frozenset(
    {"id", "attr", "ctx", "op", "ops", "kind", "type_comment", "level", "module", "is_async", "simple", "asname"}
)
_FIELDS_WITH_NODES = {
    kind: () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """The parsed script, with what the checks ask of its names."""

    path: str
    """The script's path as messages name it."""
    lines: tuple[str, ...]
    """The lines of its text."""
    nodes: Mapping[type[ast.AST], list[ast.AST]]
    """Node type -> the nodes of that type, in the order of the text."""
    parents: Mapping[ast.AST, ast.AST]
    """Node -> the node that contains it."""
    bound: frozenset[str]
    """Names that something other than an import binds."""
    origins: Mapping[str, frozenset[str]]
    """Name -> the dotted names that imports give it. Names in `bound` are not in it."""
    variables: Mapping[str, str]
    """Name that is bound once -> the environment variable whose raw text it holds."""
    called: tuple[tuple[ast.Call, frozenset[str]], ...] = ()
    """The calls whose function has a certain dotted name, with that name, in the order of the text."""

    def every(self, kind: type[_Node]) -> Iterator[_Node]:
        """The nodes of this kind, in the order of the text."""
        yield from self.nodes.get(kind, ())  # type: ignore[misc]  # filed under its own type

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of functions with these dotted names, however they were imported."""
        for call, called in self.called:
            if not called.isdisjoint(names):
                yield call

    def methods(self, *names: str) -> Iterator[ast.Call]:
        """The calls of attributes with these names, whatever they belong to, in the order of the text."""
        for call in self.every(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr in names:
                yield call

    def dotted(self, node: ast.AST) -> frozenset[str]:
        """The full name of an expression like `dist.all_reduce` according to the imports; empty if it is not certain."""
        behind = ""
        while isinstance(node, ast.Attribute):
            behind = f".{node.attr}{behind}"
            node = node.value
        origins = self.origins.get(node.id, _NO_NAMES) if isinstance(node, ast.Name) else _NO_NAMES
        return frozenset(origin + behind for origin in origins) if origins and behind else origins

    def variable(self, node: ast.AST | None) -> str | None:
        """The environment variable whose raw text an expression is; also a name that is bound once, to such a text."""
        if isinstance(node, ast.Name):
            return self.variables.get(node.id)
        return _read_variable(node, self.dotted) if node is not None else None

    def bindings(self, name: str) -> list[ast.AST]:
        """Where parameters, assignments and loops bind this name."""
        bound: list[ast.AST] = [part for part in self.every(ast.arg) if part.arg == name]
        return bound + [part for part in self.every(ast.Name) if part.id == name and not isinstance(part.ctx, ast.Load)]

    def only_value(self, name: ast.Name) -> ast.expr | None:
        """What a name is bound to, where it is bound once, and by a plain assignment."""
        bound = self.bindings(name.id)
        above = self.parents.get(bound[0]) if len(bound) == 1 else None
        return above.value if isinstance(above, ast.Assign) and bound[0] in above.targets else None

    def assigned(self, names: Set[str]) -> list[ast.expr]:
        """The values that are assigned to these names, or to attributes that are called so."""
        return [
            one.value
            for one in self.every(ast.Assign)
            if any(_last_name(part) in names for target in one.targets for part in ast.walk(target))
        ]

    def place(self, node: ast.AST) -> str:
        """`train.py:12`."""
        return f"{self.path}:{getattr(node, 'lineno', 0)}"

    def quoted(self, node: ast.AST) -> str:
        """`train.py:12: the line itself`."""
        line = self.lines[getattr(node, "lineno", 1) - 1].strip()
        return f"{self.place(node)}: {line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + ' ...'}"

    def finding(
        self, node: ast.AST, code: str, what: str, *, next: str, severity: Severity = Severity.WARNING, saw: str = ""
    ) -> Finding:
        """What a check found at this node. `saw`: in place of the line itself, where that may hold what is nobody's business."""
        return Finding(
            code=code,
            severity=severity,
            what=f"{self.place(node)}: {what}",
            saw=saw or self.quoted(node),
            next=next,
            file=self.path,
            line=getattr(node, "lineno", None),
        )

    def is_conditional(self, node: ast.AST) -> bool:
        """Whether a condition other than `if __name__ == "__main__"` decides if the node is reached in its function."""
        return any(not _is_main_guard(above) for above in self._conditions(node))

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that the node stands in."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
            above = self.parents.get(above)
        return above

    def conditions(self, node: ast.AST) -> Iterator[ast.expr]:
        """What decides whether the node is reached when its function runs, the nearest first: tests, what is matched, what is caught."""
        for child, above in self._above(node):
            if (
                isinstance(above, ast.If | ast.IfExp | ast.While)
                and child is not above.test
                and not _is_main_guard(above)
            ):
                yield above.test
            elif isinstance(above, ast.BoolOp):
                yield from above.values[: above.values.index(child)]  # type: ignore[arg-type]  # one of them
            elif isinstance(above, ast.Match) and child is not above.subject:
                yield above.subject
            elif isinstance(above, ast.ExceptHandler) and above.type is not None:
                yield above.type

    def branches(self, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
        """The `if` statements around the node in its function, the nearest first, and whether the node stands in the body."""
        for child, above in self._above(node):
            if isinstance(above, ast.If) and child is not above.test and not _is_main_guard(above):
                yield above, child in above.body

    def loop_of(self, node: ast.AST) -> ast.For | ast.AsyncFor | ast.While | None:
        """The outermost loop of the node's function that the node stands in."""
        loops = [above for _, above in self._above(node) if isinstance(above, ast.For | ast.AsyncFor | ast.While)]
        return loops[-1] if loops else None

    def is_in_function(self, node: ast.AST) -> bool:
        """Whether the node is reached only when a function is called."""
        above = self.parents.get(node)
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return True
            above = self.parents.get(above)
        return False

    def is_caught(self, node: ast.AST, *exceptions: str) -> bool:
        """Whether a `try` around the node has a handler for one of these exceptions; "" means a handler without a name."""
        for child, above in self._above(node):
            if isinstance(above, ast.Try) and child in above.body:
                for handler in above.handlers:
                    named = {_last_name(part) for part in ast.walk(handler.type)} if handler.type is not None else {""}
                    if named & set(exceptions):
                        return True
        return False

    def severity(self, node: ast.AST) -> Severity:
        """An error if the node is always reached, a warning if a condition decides."""
        return Severity.WARNING if self.is_conditional(node) else Severity.ERROR

    def _conditions(self, node: ast.AST) -> Iterator[ast.AST]:
        """The conditions that decide whether the node is reached when its function runs."""
        for child, above in self._above(node):
            chosen = isinstance(above, ast.If | ast.IfExp | ast.While) and child is not above.test
            later = isinstance(above, ast.BoolOp) and child is not above.values[0]
            if chosen or later or isinstance(above, ast.match_case | ast.ExceptHandler):
                yield above

    def _above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """The nodes around this node inside its function, each after the part that contains the node."""
        child, above = node, self.parents.get(node)
        while above is not None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child, above
            child, above = above, self.parents.get(above)


def script_of(before: BeforeRun) -> Script:
    """The job's script, parsed once however many checks ask.

    Raises:  Unknown: it was not read, is not valid Python, or needs a newer Python than this
    """
    if before.script is None:
        raise Unknown("the text of the script")
    parsed = parse(before.script, before.script_path, grammar_of(before))
    if isinstance(parsed, SyntaxError):
        raise Unknown("a script that Python can read (K06)")
    return parsed


def scripts_of(before: BeforeRun) -> list[Script]:
    """The job's script, and the user's own files beside it that Python can read."""
    parsed = (parse(file.text, file.path, grammar_of(before)) for file in before.imported)
    return [script_of(before), *(one for one in parsed if isinstance(one, Script))]


def grammar_of(before: BeforeRun) -> tuple[int, int] | None:
    """The grammar of the Python that will run the script; None if it is this Python's.

    Raises:  Unknown: this Python does not know the grammar of that Python
    """
    wanted = _VERSION.fullmatch(before.py_version or "")
    if wanted is None or before.engine == "local":
        return None
    version, here = (int(wanted[1]), int(wanted[2])), sys.version_info[:2]
    if version > here or version < (3, 0):
        raise Unknown(f"the grammar of Python {version[0]}.{version[1]}: paceline runs on {here[0]}.{here[1]}")
    return max(version, _OLDEST_GRAMMAR) if version < here else None


@lru_cache(maxsize=512)
def parse(text: str, path: str, feature_version: tuple[int, int] | None) -> Script | SyntaxError:
    """The parsed script, or the error that Python reports before it runs any of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text.encode()
            tree = ast.parse(text, path, feature_version=feature_version)
            compile(tree, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return SyntaxError("not UTF-8, and no encoding is declared", (path, line, None, None))
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or type(error).__name__, (path, None, None, None))
    return _script(tree, text, path)


def constant_text(node: ast.AST | None) -> str | None:
    """The text of a string literal; None for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The value that a call passes for this parameter; None if it passes none."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args):
        if not any(isinstance(one, ast.Starred) for one in call.args[: position + 1]):
            return call.args[position]
    return None


def _script(tree: ast.Module, text: str, path: str) -> Script:
    nodes: dict[type[ast.AST], list[ast.AST]] = {}
    parents: dict[ast.AST, ast.AST] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind not in nodes:
            nodes[kind] = []
        nodes[kind].append(node)
        if below := _below(node):
            parents.update(dict.fromkeys(below, node))
            below.reverse()
            waiting += below
    bound = Counter(_bound(nodes))
    script = Script(
        path=path,
        lines=tuple(text.split("\n")),
        nodes=nodes,
        parents=parents,
        bound=frozenset(bound),
        origins=_origins(nodes, bound),
        variables={},
    )
    called = tuple((call, names) for call in script.every(ast.Call) if (names := script.dotted(call.func)))
    return replace(script, variables=_variables(script, bound), called=called)


def _below(node: ast.AST) -> list[ast.AST]:
    """The children of a node. Nodes without fields are left out: "+" is one shared object in the whole tree, and `pass` has no content."""
    found: list[ast.AST] = []
    for name in _FIELDS_WITH_NODES[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST) and one._fields]
        elif isinstance(value, ast.AST) and value._fields:
            found.append(value)
    return found


def _origins(nodes: Mapping[type[ast.AST], list[ast.AST]], bound: Mapping[str, int]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for node in nodes.get(ast.Import, ()):
        for alias in node.names:  # type: ignore[attr-defined]
            top = alias.name.partition(".")[0]
            found.setdefault(alias.asname or top, set()).add(alias.name if alias.asname else top)
    for node in nodes.get(ast.ImportFrom, ()):
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            origin = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            found.setdefault(alias.asname or alias.name, set()).add(origin)
    return {name: frozenset(origins) for name, origins in found.items() if name not in bound}


def _bound(nodes: Mapping[type[ast.AST], list[ast.AST]]) -> Iterator[str]:
    """Every name that is bound by something other than an import, once per binding."""
    for node in nodes.get(ast.Name, ()):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
    for node in nodes.get(ast.arg, ()):
        yield node.arg  # type: ignore[attr-defined]
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar):
        yield from (name for node in nodes.get(kind, ()) if (name := getattr(node, "name", None)) is not None)


def _variables(script: Script, bound: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in script.every(ast.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, variable = node.targets[0].id, _read_variable(node.value, script.dotted)
            if variable is not None and bound[name] == 1:
                found[name] = variable
    return found


def _read_variable(node: ast.AST, dotted: Callable[[ast.AST], frozenset[str]]) -> str | None:
    if isinstance(node, ast.Subscript) and dotted(node.value) == {"os.environ"}:
        return constant_text(node.slice)
    if isinstance(node, ast.Call) and dotted(node.func) & set(_READERS) and node.args:
        return constant_text(node.args[0])
    return None


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
