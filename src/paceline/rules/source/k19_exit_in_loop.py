"""K19: one rank may leave the training alone, and with success: in its loop, or in the handler of a signal."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import is_alike, is_distributed, words
from paceline.rules.script import Script, argument, script_of

PAGE = """\
A rank that leaves the loop by itself, with success

What it means: Inside the training loop the script calls exit(), sys.exit() or os._exit() with code 0, under a condition that each rank
  decides for itself. Or it does so in the handler of a signal, which may reach one rank or one host alone.
Why it matters: A rank that leaves with 0 has not failed, so nobody ends the others: they wait for it in the next exchange until the
  time-out (C06, M05). An exit code other than 0 ends the whole job at once, with this rank's name.
What to do: Let all ranks decide together: all_reduce the flag and `break` on every rank. Where the rank has really failed: sys.exit(1),
  or raise.
Source: docs/running.md; paceline help C06.
"""

_EXITS = ("sys.exit", "os._exit")
_BUILTIN = ("exit", "quit")
_TOGETHER = frozenset({"all_reduce", "broadcast", "all_gather", "broadcast_object_list", "all_gather_object"})


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each exit with code 0 under a condition in a training loop."""
    if before.rank_count == 1:
        return
    script = script_of(before)
    if not is_distributed(script):
        return
    handlers = list(_handlers(script))
    for call in _exits(script):
        if (handler := next((one for one in handlers if _is_in(script, call, one)), None)) is not None:
            if any(map(_trains, script.every(ast.Module))) and not _decides_together(script, handler):
                yield script.finding(
                    call,
                    "K19",
                    "a rank that gets this signal ends with success, and the others wait for it",
                    next="leave with another code than 0 there: sys.exit(1); or set a flag that all ranks share by all_reduce, and break",
                )
            continue
        loop = script.loop_of(call)
        if loop is None or not _trains(loop) or not script.is_conditional(call) or _decides_together(script, loop):
            continue
        if not all(is_alike(script, test) for test in script.conditions(call)):
            yield script.finding(
                call,
                "K19",
                "a rank that leaves here ends with success, and the others wait for it",
                next="all_reduce the decision and break on every rank, or sys.exit(1) where this rank has failed",
            )


def _exits(script: Script) -> Iterator[ast.Call]:
    for call in script.every(ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        is_exit = bool(script.dotted(call.func) & set(_EXITS)) or (name in _BUILTIN and name not in script.bound)
        if is_exit and all(isinstance(one, ast.Constant) and one.value in (0, None) for one in call.args):
            yield call


def _handlers(script: Script) -> Iterator[ast.AST]:
    """The functions that handle signals."""
    for call in script.calls("signal.signal"):
        handler = argument(call, "handler", 1)
        if isinstance(handler, ast.Lambda):
            yield handler
        elif isinstance(handler, ast.Name):
            yield from (one for one in script.every(ast.FunctionDef) if one.name == handler.id)


def _is_in(script: Script, node: ast.AST, function: ast.AST) -> bool:
    above: ast.AST | None = node
    while above is not None and above is not function:
        above = script.parents.get(above)
    return above is function


def _trains(loop: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "backward" for part in ast.walk(loop))


def _decides_together(script: Script, node: ast.AST) -> bool:
    """Whether the ranks exchange something here, or in a function of the script that is called here."""
    named = _named(node)
    called = (function for function in script.every(ast.FunctionDef) if function.name in named)
    return not _TOGETHER.isdisjoint(named.union(*map(_named, called)))


def _named(node: ast.AST) -> set[str]:
    return {word for part in ast.walk(node) for word in words(part)}


RULE = Rule(code="K19", page=PAGE, find=find)
