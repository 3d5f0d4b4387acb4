"""What a script's own words say of ranks: whether it trains with several, and whether a place is reached by one rank alone."""

import ast
import re
from collections.abc import Iterator

from paceline.rules.script import Script

# A name that has one of these asks which rank this is, or is a rank's own.
RANK_WORDS = re.compile(
    r"rank|gpu|device|local|main_?proc|is_main|master|primary|chief|leader|is_zero|node_?id|process_index|worker_?id",
    re.IGNORECASE,
)
_JOINS = ("torch.distributed.init_process_group", "torch.nn.parallel.DistributedDataParallel")


def is_distributed(script: Script) -> bool:
    """Whether the script itself joins a process group or wraps a model in DDP."""
    return any(script.calls(*_JOINS))


def names_rank(node: ast.AST) -> bool:
    """Whether an expression has a name, an attribute or a text in it that speaks of a rank."""
    return any(RANK_WORDS.search(word) for part in ast.walk(node) for word in _words(part))


# In a condition, these ask for a rank only where they are compared with a number: `device.type == "cuda"` does not.
_LOOSE = re.compile(r"gpu|device|local", re.IGNORECASE)
_STRICT = re.compile(
    r"rank|main_?proc|is_main|master|primary|chief|leader|is_zero|node_?id|process_index|worker_?id", re.IGNORECASE
)


def asks_rank(test: ast.AST) -> bool:
    """Whether a condition asks which rank this is."""
    if any(_STRICT.search(word) for part in ast.walk(test) for word in _words(part)):
        return True
    tested = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if isinstance(tested, ast.Name | ast.Attribute):
        return any(_LOOSE.search(word) for word in _words(tested))
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot)
        and any(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in ast.walk(part))
        and any(_LOOSE.search(word) for one in ast.walk(part) for word in _words(one))
        for part in ast.walk(test)
    )


def is_for_the_others(script: Script, node: ast.AST) -> ast.If | None:
    """The `if` whose body is for rank 0 alone, where the node stands in its else branch; None: there is none, or it is not certain."""
    for above, in_body in script.branches(node):
        if not asks_rank(above.test):
            continue
        return None if in_body or not _is_for_rank_0(above.test) else above
    return None


def _is_for_rank_0(test: ast.expr) -> bool:
    """`rank == 0`, `is_main_process()`, and the same with another condition beside it."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(_is_for_rank_0(value) for value in test.values if asks_rank(value))
    if isinstance(test, ast.Compare):
        sides = (test.left, *test.comparators)
        return len(sides) == 2 and isinstance(test.ops[0], ast.Eq) and any(_is_zero(side) for side in sides)
    return isinstance(test, ast.Name | ast.Attribute | ast.Call) and any(
        re.search(r"main|master|primary|chief|leader|is_zero|rank_?0|rank_?zero", word, re.IGNORECASE)
        for part in ast.walk(test)
        for word in _words(part)
    )


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, "0") and node.value is not False


def is_of_one_rank(script: Script, node: ast.AST) -> bool:
    """Whether only some ranks may reach the node: by a condition, by an early return, or in a function that is called so.

    Where that cannot be seen it is True: a check that asks is right or silent.
    """
    return _is_guarded(script, node, {})


def _is_guarded(script: Script, node: ast.AST, answers: dict[str, bool]) -> bool:
    """`answers`: function name -> whether all its calls are guarded; True while that is being asked, as for one that calls itself."""
    if any(map(asks_rank, script.conditions(node))):
        return True
    function = script.function_of(node)
    if function is None:
        return _leaves_before(script, script.every(ast.Module), node)
    if _leaves_before(script, iter((function,)), node) or isinstance(script.parents.get(function), ast.ClassDef):
        return True
    if function.decorator_list:
        return True
    if function.name not in answers:
        answers[function.name] = True
        answers[function.name] = all(
            _is_guarded(script, call, answers)
            for call in script.every(ast.Call)
            if isinstance(call.func, ast.Name) and call.func.id == function.name
        )
    return answers[function.name]


def _leaves_before(script: Script, bodies: Iterator[ast.AST], node: ast.AST) -> bool:
    """Whether a rank may have left the function, the loop or the script before this line, as `if rank != 0: return` does it."""
    line = getattr(node, "lineno", 0)
    for body in bodies:
        for part in ast.walk(body):
            if isinstance(part, ast.If) and part.lineno < line and names_rank(part.test):
                if any(isinstance(one, ast.Return | ast.Continue | ast.Break | ast.Raise) for one in ast.walk(part)):
                    return True
    return False


def _words(part: ast.AST) -> Iterator[str]:
    if isinstance(part, ast.Name):
        yield part.id
    elif isinstance(part, ast.Attribute):
        yield part.attr
    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif isinstance(part, ast.keyword) and part.arg:
        yield part.arg
