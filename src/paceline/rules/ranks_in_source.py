"""What a script's own words say of ranks: whether it trains with several, and whether a place is reached by one rank alone."""

import ast
import re
import sys
from collections.abc import Iterator

from paceline.findings import Unknown
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, constant_text, script_of

_STRICT = re.compile(
    r"rank|main_?proc|is_main|master|primary|chief|leader|is_zero|node_?id|process_index|worker_?id", re.IGNORECASE
)
# In a condition, these ask for a rank only where they are compared with a number: `device.type == "cuda"` does not.
_LOOSE = re.compile(r"gpu|device|local", re.IGNORECASE)
# Modules whose functions ask for no rank, but for those that say so by their name.
_KNOWN_MODULES = {"torch", "numpy", *sys.stdlib_module_names}
_EXIT_NAMES = frozenset({"exit", "_exit", "quit"})
_PARSES = ("parse_args", "parse_known_args")
_ARGUMENTS = ("args", "opt", "opts", "options", "cfg", "config", "flags")
_JOINS = ("torch.distributed.init_process_group", "torch.nn.parallel.DistributedDataParallel")


def is_distributed(script: Script) -> bool:
    """Whether the script itself joins a process group or wraps a model in DDP."""
    return any(script.calls(*_JOINS))


def names_only_gloo(before: BeforeRun) -> bool:
    """Whether the script names its backend, and names gloo alone."""
    try:
        script = script_of(before)
    except Unknown:
        return False
    calls = tuple(script.calls("torch.distributed.init_process_group"))
    return bool(calls) and all(constant_text(argument(call, "backend", 0)) == "gloo" for call in calls)


def names_rank(node: ast.AST) -> bool:
    """Whether an expression has a name, an attribute or a text in it that speaks of a rank."""
    return any(_STRICT.search(word) or _LOOSE.search(word) for part in ast.walk(node) for word in words(part))


def is_alike(script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Whether an expression is certainly the same on every rank: of constants, counters of loops and the command line's arguments."""
    if names_rank(node) or not depth:
        return False
    if isinstance(node, ast.Name):
        bound = script.bindings(node.id)
        return bool(bound) and all(_binds_alike(script, one, depth - 1) for one in bound)
    if isinstance(node, ast.Attribute):
        return is_argument(script, node)
    parts = (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare)
    return isinstance(node, ast.Constant) or (
        isinstance(node, parts)
        and all(is_alike(script, part, depth) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
    )


def _binds_alike(script: Script, bound: ast.AST, depth: int) -> bool:
    above, counters = script.parents.get(bound), {"range", "trange"}
    if isinstance(above, ast.Tuple) and above.elts[0] is bound:
        above, counters = script.parents.get(above), {"enumerate"}
    if isinstance(above, ast.For):
        return (
            isinstance(above.iter, ast.Call)
            and not counters.isdisjoint(words(above.iter.func))
            and not names_rank(above.iter)
        )
    return isinstance(above, ast.Assign | ast.AugAssign) and is_alike(script, above.value, depth)


def is_argument(script: Script, node: ast.Attribute) -> bool:
    """Whether this is `args.out` of a command line, which all ranks share, or of what a function calls its arguments."""
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    bound = [one for one in script.bindings(name) if name not in _ARGUMENTS or not isinstance(one, ast.arg)]
    return (
        (bool(bound) or name in _ARGUMENTS)
        and all(_is_parsed(script, one) for one in bound)
        and not any(part.attr == node.attr and isinstance(part.ctx, ast.Store) for part in script.every(ast.Attribute))
    )


def _is_parsed(script: Script, bound: ast.AST) -> bool:
    above: ast.AST | None = bound
    while isinstance(above, ast.Name | ast.Tuple):
        above = script.parents.get(above)
    call = above.value if isinstance(above, ast.Assign) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _PARSES


def asks_rank(test: ast.AST) -> bool:
    """Whether a condition asks which rank this is."""
    if any(_STRICT.search(word) for part in ast.walk(test) for word in words(part)):
        return True
    tested = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if isinstance(tested, ast.Name | ast.Attribute):
        return any(_LOOSE.search(word) for word in words(tested))
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot)
        and any(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in ast.walk(part))
        and any(_LOOSE.search(word) for one in ast.walk(part) for word in words(one))
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
        for word in words(part)
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
    if any(asks_rank(test) or _may_ask_rank(script, test) for test in script.conditions(node)):
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


def _may_ask_rank(script: Script, test: ast.expr) -> bool:
    """Whether a name in a condition stands for a question for the rank, or the answer comes from a module that is not known."""
    names = {part.attr for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    names |= {
        part.id
        for part in ast.walk(test)
        if isinstance(part, ast.Name) and not isinstance(script.parents.get(part), ast.Attribute)
    }
    meant: list[ast.AST] = [function for function in script.every(ast.FunctionDef) if function.name in names]
    meant += script.assigned(names)
    if any(_STRICT.search(word) for one in meant for part in ast.walk(one) for word in words(part)):
        return True
    called = {name for part in ast.walk(test) if isinstance(part, ast.Call) for name in script.dotted(part.func)}
    return any(name.partition(".")[0] not in _KNOWN_MODULES for name in called)


def _leaves_before(script: Script, bodies: Iterator[ast.AST], node: ast.AST) -> bool:
    """Whether a rank may have left the function, the loop or the script before this line, as `if rank != 0: return` does it."""
    line = getattr(node, "lineno", 0)
    for body in bodies:
        for part in ast.walk(body):
            if isinstance(part, ast.If) and part.lineno < line and asks_rank(part.test):
                if leaves(part):
                    return True
    return False


def leaves(branch: ast.If) -> bool:
    """Whether this function, loop or script may be left here."""
    return any(
        isinstance(part, ast.Return | ast.Continue | ast.Break | ast.Raise)
        or (isinstance(part, ast.Call) and not _EXIT_NAMES.isdisjoint(words(part.func)))
        for part in ast.walk(branch)
    )


def words(part: ast.AST) -> Iterator[str]:
    """The name or the text that a node itself has."""
    if isinstance(part, ast.Name):
        yield part.id
    elif isinstance(part, ast.Attribute):
        yield part.attr
    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif isinstance(part, ast.keyword) and part.arg:
        yield part.arg
