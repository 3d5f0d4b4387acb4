"""docs/schemas.md: every JSON schema in the source, with its keys, the files that write it, and the pages that describe it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_SCHEMA = re.compile(r"paceline\.[a-z_]+/\d+")

_HEAD = """# Schemas

Made by `make docs` from `src/paceline/`. Each JSON object that paceline prints or keeps names its schema under the key `schema`. Keys may
be added to a schema; if a key changes its meaning, the number behind the slash goes up. `null` and a missing key mean unknown. Further
keys exist where the row says *and more*.

| Schema | Made in | Keys | Described in |
|---|---|---|---|"""


@dataclass
class _Schema:
    """The source's facts about one schema."""

    made_in: list[str] = field(default_factory=list)
    """Files below src/paceline that name the schema."""
    keys: list[str] = field(default_factory=list)
    """The keys of its dict literals and the fields of its classes, in order."""
    more: bool = False
    """Whether such a literal includes other dicts."""


def schemas_page(source: Path, docs: Path) -> str:
    """The content of the file. `source`: the folder of the package; `docs`: the pages to search for descriptions."""
    found: dict[str, _Schema] = {}
    for path in sorted(source.rglob("*.py")):
        if path.name != Path(__file__).name:
            _collect(found, path.relative_to(source).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
    pages = {
        page.name: page.read_text(encoding="utf-8") for page in sorted(docs.glob("*.md")) if page.name != "schemas.md"
    }
    return "\n".join([_HEAD, *(_row(name, found[name], pages) for name in sorted(found))]) + "\n"


def _collect(found: dict[str, _Schema], file: str, tree: ast.Module) -> None:
    constants = dict(_named_schemas(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and (name := _schema_in(node, {})):
            schema = found.setdefault(name, _Schema())
            if file not in schema.made_in:
                schema.made_in.append(file)
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            _collect_keys(found, node, constants)
        if isinstance(node, ast.ClassDef):
            _collect_fields(found, node, constants)


def _collect_keys(found: dict[str, _Schema], node: ast.Dict, constants: dict[str, str]) -> None:
    keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    if "schema" in keys and (name := _schema_in(node.values[keys.index("schema")], constants)):
        schema = found.setdefault(name, _Schema())
        schema.keys += [str(key) for key in keys if key not in (None, "schema", *schema.keys)]
        schema.more = schema.more or None in keys


def _collect_fields(found: dict[str, _Schema], node: ast.ClassDef, constants: dict[str, str]) -> None:
    """The fields of a class that msgspec writes with the schema's name."""
    for keyword in node.keywords:
        if keyword.arg == "tag" and (name := _schema_in(keyword.value, constants)):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            found.setdefault(name, _Schema()).keys += [one.id for one in fields if isinstance(one, ast.Name)]


def _named_schemas(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name of a constant of the module -> the schema in its value."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and (name := _schema_in(node.value, {}))
        ):
            yield node.targets[0].id, name


def _schema_in(node: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text if _SCHEMA.fullmatch(text) else ""


def _row(name: str, schema: _Schema, pages: dict[str, str]) -> str:
    keys = [f"`{key}`" for key in schema.keys] + ["and more"] * schema.more
    made_in = ", ".join(f"`{file}`" for file in schema.made_in)
    described = ", ".join(f"[{page}]({page})" for page, text in pages.items() if name in text)
    return f"| `{name}` | {made_in} | {', '.join(keys)} | {described} |"
