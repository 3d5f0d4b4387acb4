"""docs/api.md: the public names. They come from `__all__`, signatures and docstrings of modules that this program does not import."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

import paceline

# The name of each public module below paceline, and the page that explains its use. This program neither imports nor starts them.
_PAGES: Mapping[str, str] = {
    "api": "python.md",
    "estimator": "estimator.md",
    "resume": "howto/resume.md",
    "comm": "exchange.md",
    "recording.evidence": "recording.md",
    "facts": "recording.md",
    "errors": "running.md",
    "part": "how_it_works.md",
    "parts.lab.emulate.hosts": "emulation.md",
    "parts.lab.emulate.network": "emulation.md",
    "parts.lab.emulate.measure": "emulation.md",
    "parts.lab.emulate.limits": "emulation.md",
}
PUBLIC_MODULES: Mapping[str, str] = {"paceline": "verbs.md"} | {
    f"paceline.{name}": page for name, page in _PAGES.items()
}
# A longer signature is cut after its positional parameters. The page named in the module's section has all parameters.
_MOST_PARAMETERS = 16

_HEAD = """# Public API

Made by `make docs` from `__all__`, the signatures and the docstrings of the modules below.

A name on this page keeps its meaning. Before version 1.0 a release may still change it, and [the changelog](../CHANGELOG.md) says so. Every
other module and name may change without a word. `paceline` is typed (`py.typed`): editors and type checkers read the same signatures.

These are public too and have pages of their own: the [command line](verbs.md), the [recording](recording.md) and the JSON schemas that
carry a number, the [SageMaker contract](contract.md) of a script, and the module [smdistributed](smdistributed.md)."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a name: a class, a function or an assignment at the top level of a module."""

    module: str
    """The module with the definition."""
    node: ast.stmt
    """The statement of the definition."""


def api_page() -> str:
    """The content of the file."""
    return "\n".join([_HEAD, *(line for module in PUBLIC_MODULES for line in _section(module))]) + "\n"


def public_names(module: str) -> tuple[str, ...]:
    """The names in the module's `__all__`; () if it has none."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _assigned(node) == "__all__" and node.value is not None:
            return tuple(ast.literal_eval(node.value))
    return ()


def definition_of(module: str, name: str) -> Definition | None:
    """The statement that defines the name, found through the imports of paceline's own modules; None for other names."""
    body = _tree(module).body
    # What a type checker reads is loaded later, under the same name.
    for node in [*body, *(inner for outer in body if isinstance(outer, ast.If) for inner in outer.body)]:
        if _name_of(node) == name:
            return Definition(module, node)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                is_meant = (alias.asname or alias.name) == name
                # A module imported from its own package is no definition.
                if is_meant and (source := _imported_from(module, node)) and (source, alias.name) != (module, name):
                    return definition_of(source, alias.name)
    return None


def _section(module: str) -> Iterator[str]:
    page = PUBLIC_MODULES[module]
    yield from ("", f"## {module}", "", f"{_first_paragraph(_tree(module))} See [{page}]({page}).")
    for name in public_names(module):
        found = definition_of(module, name)
        assert found is not None, f"{module}.__all__ has {name}, which nothing defines"
        yield from ("", f"### {name}", "", "```text", _signature(name, found), "```")
        if isinstance(found.node, ast.ClassDef | _Function):
            yield from ("", _first_paragraph(found.node))
        if lines := list(members(found)):
            yield from ("", *lines)


def _signature(name: str, found: Definition) -> str:
    match found.node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return f"{'with ' * _is_decorated(found.node, 'contextmanager')}{_call(found.node, is_method=False)}"
        case ast.ClassDef():
            constructor = _constructor(found)
            return f"{name}({_parameters(constructor, is_method=True)})" if constructor else f"class {name}"
        case _:
            return ast.unparse(found.node)


def _constructor(found: Definition) -> _Function | None:
    for kind in _with_bases(found):
        for node in kind.node.body if isinstance(kind.node, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return node
    return None


def members(found: Definition) -> Iterator[str]:
    """One line for each field of a dataclass, value of an enumeration, and method, including those of base classes."""
    seen: set[str] = set()
    for kind in _with_bases(found):
        body = kind.node.body if isinstance(kind.node, ast.ClassDef) else []
        for node, following in zip_longest(body, body[1:]):
            name = _name_of(node)
            if name is None or name.startswith("_") or name in seen:
                continue
            assert isinstance(kind.node, ast.ClassDef)
            if line := _member(kind.node, node, following):
                seen.add(name)
                yield line


def fields_of(kind: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Name and docstring of each field of a class."""
    for node, following in zip_longest(kind.body, kind.body[1:]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _docstring_below(following)


def _member(kind: ast.ClassDef, node: ast.stmt, following: ast.stmt | None) -> str | None:
    if isinstance(node, _Function):
        shown = node.name if _is_decorated(node, "property") else _call(node, is_method=True)
        said = _first_sentence(_first_paragraph(node))
        return f"* `{shown}`" + (f": {said}" if said else "")
    if isinstance(node, ast.Assign) and any(ast.unparse(base).endswith("Enum") for base in kind.bases):
        return f"* `{ast.unparse(node)}`"
    if (
        isinstance(node, ast.AnnAssign)
        and _is_decorated(kind, "dataclass")
        and "ClassVar" not in ast.unparse(node.annotation)
    ):
        line = _docstring_below(following)
        value = f" = {ast.unparse(node.value)}" if node.value is not None else ""
        return f"* `{ast.unparse(node.target)}: {_type(node.annotation)}{value}`" + (f": {line}" if line else "")
    return None


def _call(function: _Function, *, is_method: bool) -> str:
    result = f" -> {_type(function.returns)}" if function.returns else ""
    return f"{function.name}({_parameters(function, is_method=is_method)}){result}"


def _parameters(function: _Function, *, is_method: bool) -> str:
    given = function.args
    by_position = given.args[1:] if is_method and not _is_decorated(function, "staticmethod") else given.args
    without_default = len(by_position) - len(given.defaults)
    shown = [_parameter(one, None) for one in by_position[:without_default]]
    shown += map(_parameter, by_position[without_default:], given.defaults)
    if len(shown) + len(given.kwonlyargs) > _MOST_PARAMETERS:
        return ", ".join([*shown, "*", "..."])
    if given.vararg is not None or given.kwonlyargs:
        shown.append(f"*{_parameter(given.vararg, None)}" if given.vararg is not None else "*")
    shown += map(_parameter, given.kwonlyargs, given.kw_defaults)
    if given.kwarg is not None:
        shown.append(f"**{_parameter(given.kwarg, None)}")
    return ", ".join(shown)


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {_type(one.annotation)}" if one.annotation else ""
    return f"{one.arg}{annotation}" + (f" = {ast.unparse(default)}" if default is not None else "")


class _WithoutQuotes(ast.NodeTransformer):
    """A name that is loaded only for type checkers is a text in an annotation, and a name to its reader."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node if ast.unparse(node.value).endswith("Literal") else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(node.value) if isinstance(node.value, str) else node


def _type(annotation: ast.expr) -> str:
    return ast.unparse(_WithoutQuotes().visit(annotation))


def _with_bases(found: Definition) -> Iterator[Definition]:
    """The class and its base classes in paceline."""
    yield found
    if isinstance(found.node, ast.ClassDef):
        for base in found.node.bases:
            above = definition_of(found.module, base.id) if isinstance(base, ast.Name) else None
            if above is not None and isinstance(above.node, ast.ClassDef):
                yield from _with_bases(above)


def _is_decorated(node: ast.ClassDef | _Function, name: str) -> bool:
    return any(name in ast.unparse(one).split("(")[0].split(".") for one in node.decorator_list)


def _docstring_below(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _first_paragraph(node: ast.Module | ast.ClassDef | _Function) -> str:
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def _first_sentence(text: str) -> str:
    sentence, _, _ = text.partition(". ")
    return sentence and f"{sentence.rstrip('.')}."


def _name_of(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, ast.ClassDef | _Function) else _assigned(node)


def _assigned(node: ast.stmt) -> str | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else None


def _imported_from(module: str, node: ast.ImportFrom) -> str | None:
    """The module that `from X import Y` names, if it is paceline's."""
    if not node.level:
        return node.module if node.module and node.module.partition(".")[0] == "paceline" else None
    package = module.split(".") if _file(module).name == "__init__.py" else module.split(".")[:-1]
    above = package[: len(package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def _file(module: str) -> Path:
    path = Path(paceline.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
