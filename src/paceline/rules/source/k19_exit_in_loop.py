"""K19: one rank may leave the training loop alone, and with success."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import is_distributed
from paceline.rules.script import Script, script_of

PAGE = """\
A rank that leaves the loop by itself, with success

What it means: Inside the training loop the script calls exit() or sys.exit() with code 0, under a condition that each rank decides for
  itself.
Why it matters: A rank that leaves with 0 has not failed, so nobody ends the others: they wait for it in the next exchange until the
  time-out (C06, M05). An exit code other than 0 ends the whole job at once, with this rank's name.
What to do: Let all ranks decide together: all_reduce the flag and `break` on every rank. Where the rank has really failed: sys.exit(1),
  or raise.
Source: docs/running.md; paceline explain C06.
"""

_EXITS = ("sys.exit",)
_BUILTIN = ("exit", "quit")
_TOGETHER = ("all_reduce", "broadcast", "all_gather", "broadcast_object_list", "all_gather_object")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each exit with code 0 under a condition in a training loop."""
    if before.hosts * (before.ranks_per_host or 2) == 1:
        return
    script = script_of(before)
    if not is_distributed(script):
        return
    for call in _exits(script):
        loop = script.loop_of(call)
        if loop is not None and _trains(loop) and script.is_conditional(call) and not _decides_together(loop):
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


def _trains(loop: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "backward" for part in ast.walk(loop))


def _decides_together(loop: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr in _TOGETHER for part in ast.walk(loop))


RULE = Rule(code="K19", page=PAGE, find=find)
