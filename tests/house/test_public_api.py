"""What is public stands in docs/api.md, with a line for everything in it; documentation and examples use nothing else."""

import ast
import importlib
import re

import pytest

from paceline.cli.programs.api_page import PUBLIC_MODULES, api_page, definition_of, public_names

FENCE = re.compile(r"^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
AN_ENUMERATIONS_VALUE = re.compile(r"\* `[A-Z_]+ = ")


def test_the_page_is_what_the_modules_give(repository):
    assert (repository / "docs/api.md").read_text() == api_page(), "run `make docs`"


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_a_public_module_lists_its_names_and_has_them(module):
    names = public_names(module)
    assert names and len(set(names)) == len(names)
    loaded = importlib.import_module(module)
    assert tuple(loaded.__all__) == names
    assert not [name for name in names if not hasattr(loaded, name)]


def test_everything_on_the_page_has_a_line_that_says_what_it_is():
    bare = [
        line
        for line in api_page().splitlines()
        if line.startswith("* `") and line.endswith("`") and not AN_ENUMERATIONS_VALUE.match(line)
    ]
    for module in PUBLIC_MODULES:
        for node in (definition_of(module, name).node for name in public_names(module)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not ast.get_docstring(node):
                bare.append(f"{module}.{node.name}")
    assert not bare, "\n".join(bare)


def test_a_page_that_a_public_module_names_is_there(repository):
    assert not [page for page in PUBLIC_MODULES.values() if not (repository / "docs" / page).exists()]


def test_documentation_and_examples_import_public_names_alone(repository):
    texts = {path: path.read_text() for path in sorted((repository / "examples").glob("*.py"))}
    for page in sorted([*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]):
        for number, block in enumerate(FENCE.finditer(page.read_text())):
            if "import" in block["text"]:
                texts[page.with_suffix(f".{number}")] = block["text"]
    imported = {(path.stem, module, name) for path, text in texts.items() for module, name in imports_of_ours(text)}
    assert ("estimator", "paceline.estimator", "PyTorch") in imported
    wrong = [one for one in sorted(imported) if one[1] not in PUBLIC_MODULES or one[2] not in public_names(one[1])]
    assert not wrong, wrong


def imports_of_ours(text: str) -> list[tuple[str, str]]:
    """(module, name) of each `from paceline... import ...`."""
    return [
        (str(node.module), alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "paceline"
        for alias in node.names
    ]
