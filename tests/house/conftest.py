"""The source of paceline as parsed modules, read once for all house tests."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Import:
    """One import statement's target, absolute, with the line it stands on. `from a import b` is `a` with name `b`."""

    module: str
    name: str | None
    line: int


@dataclass(frozen=True)
class Module:
    """One source file. `name` is dotted; `room` is the folder or file below paceline."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

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


@pytest.fixture(scope="session")
def modules(repository: Path) -> tuple[Module, ...]:
    """Every module of src/paceline."""
    return tuple(_module(path, repository / "src") for path in sorted((repository / "src/paceline").rglob("*.py")))


def _module(path: Path, source: Path) -> Module:
    parts = path.relative_to(source).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))


@pytest.fixture(scope="session")
def of_an_extra() -> dict[str, set[str]]:
    """Modules that are imported only where somebody asks for them -> what of an extra they import themselves."""
    return {"paceline.storage.s3": {"boto3", "botocore", "fsspec", "s3transfer"}}
