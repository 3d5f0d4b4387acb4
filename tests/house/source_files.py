"""The source of paceline as parsed modules."""

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One import statement's target, absolute, with the line it stands on. `from a import b` is `a` with name `b`."""

    module: str
    name: str | None
    line: int


@dataclass(frozen=True)
class Module:
    """One source file. `name` is dotted; `room` is the folder or file below paceline; see `room_of`."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        return room_of(self.name)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(self._imports())

    def _imports(self) -> Iterator[Import]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, None, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield Import(self._absolute(node), alias.name, node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        here = package if self.path.name == "__init__.py" else package[:-1]
        base = here[: len(here) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def started(self) -> tuple[Import, ...]:
        """Modules that it names to start them as programs, `-m NAME`."""
        return tuple(
            Import(node.value, None, node.lineno)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("paceline.")
        )

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def modules_of(source: Path) -> tuple[Module, ...]:
    """Every module below `source`/paceline, sorted by path."""
    return tuple(_module(path, source) for path in sorted((source / "paceline").rglob("*.py")))


def imported_module(found: Import, names: Container[str]) -> str | None:
    """The module of ours that an import statement reaches, or None."""
    if found.module.split(".")[0] != "paceline":
        return None
    inner = f"{found.module}.{found.name}"
    return inner if inner in names else found.module


def _module(path: Path, source: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))


# What of these parts runs inside a rank, besides their folders worker and instruments.
IN_A_RANK_OF_PARTS = {"sagemaker": "smdistributed", "frameworks": ("jax_cluster", "parameter_server")}


def room_of(name: str) -> str:
    """The room of a module; of a part's module, the one that its folder stands with."""
    if not name.startswith("paceline.parts."):
        return name.split(".")[1] if "." in name else name
    part, _, inside = name.removeprefix("paceline.parts.").partition(".")
    folder = inside.partition(".")[0]
    if inside.startswith(IN_A_RANK_OF_PARTS.get(part, "in_rank")) or folder in ("in_rank", "instruments", "worker"):
        return "worker"
    if part == "comm" and folder not in ("", "options", "part", "planner"):
        return "comm"
    if folder in ("cli", "serve", "estimator", "trace"):
        return folder
    return "parts" if folder in ("", "part", "check") else "views of parts" if folder == "views" else "insides of parts"
