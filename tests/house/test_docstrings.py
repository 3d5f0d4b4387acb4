"""Every module says what it is for, and every public function what it adds to its name."""

import ast

# Names that mean the same in every file of a room, explained once where the room is described: (room, name) -> what it means.
NAMES_WITH_ONE_MEANING = {
    ("paceline.cli.", "arguments"): "adds the verb's options to a parser",
    ("paceline.cli.", "run"): "does what the verb says, returns the exit code",
    ("paceline.rules.causes.", "find"): "what the cause's page says, applied to a case; see findings.Cause",
    ("paceline.rules.checks.", "find"): "what the check's page says, applied to a job; see findings.Rule",
    ("paceline.rules.source.", "find"): "the same, applied to a source file",
    ("paceline.rules.hosts.", "find"): "the same, applied to hosts",
    ("paceline.parts.", "before_instruments"): "patches; see part.Part.in_rank",
    ("paceline.parts.", "after_instruments"): "the same",
    ("paceline.parts.", "before_program"): "the code of the script; see there too",
}


def test_every_public_function_has_a_docstring(modules):
    wrong = [
        f"{module.name}:{node.lineno} {node.name}"
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and is_public(module.name, node.name)
        and not ast.get_docstring(node)
        and not says_it_all(node)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is_for(modules):
    # A package marker with nothing in it needs no words.
    wrong = [module.name for module in modules if module.tree.body and not ast.get_docstring(module.tree)]
    assert not wrong, wrong


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    return (function.end_lineno or 0) - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if documented else 0)


def is_public(module: str, name: str) -> bool:
    if name.startswith("_") or any(part.startswith("_") for part in module.split(".")[1:]):
        return False
    return not any(name == known and module.startswith(room) for room, known in NAMES_WITH_ONE_MEANING)


def says_it_all(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A predicate or a conversion of a line or three is its own description."""
    return lines_of_code(function) <= 4


def test_length_is_counted_without_the_docstring():
    tree = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n')
    assert lines_of_code(tree.body[0]) == 2
