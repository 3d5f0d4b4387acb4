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


def is_of_one_rank(script: Script, node: ast.AST) -> bool:
    """Whether only some ranks may reach the node: by a condition, by an early return, or in a function that is called so.

    Where that cannot be seen it is True: a check that asks is right or silent.
    """
    return _is_guarded(script, node, {})


def _is_guarded(script: Script, node: ast.AST, answers: dict[str, bool]) -> bool:
    """`answers`: function name -> whether all its calls are guarded; True while that is being asked, as for one that calls itself."""
    if any(map(names_rank, script.conditions(node))):
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
