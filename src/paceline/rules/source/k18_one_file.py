"""K18: every rank saves to the same file."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import (
    is_alike,
    is_argument,
    is_distributed,
    is_for_the_others,
    is_of_one_rank,
    names_rank,
)
from paceline.rules.script import Script, argument, script_of

PAGE = """\
Every rank saves to the same file

What it means: The script calls torch.save for every rank, and the path does not say which rank it is.
Why it matters: The ranks of a host write one file at the same time. It may be cut or mixed, and nobody notices until it is loaded,
  after a restart. On a shared file system all hosts do so.
What to do: Save on one rank: `if dist.get_rank() == 0: torch.save(...)`, and let the others wait at a barrier only where they load it.
  For state that differs between ranks use torch.distributed.checkpoint, or the rank in the file's name.
Source: PyTorch tutorial "Getting Started with Distributed Data Parallel", "Save and Load Checkpoints".
"""

_JOIN = frozenset({"os.path.join", "pathlib.Path"})
# The same for all ranks of a host.
_DIRECTORIES = ("SM_MODEL_DIR", "SM_OUTPUT_DIR", "SM_OUTPUT_DATA_DIR")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each torch.save that all ranks visibly reach with the same path."""
    ranks = before.rank_count
    if ranks == 1:
        return
    script = script_of(before)
    if not is_distributed(script) or any(script.calls("os.chdir")):
        return
    for call in script.calls("torch.save"):
        path = argument(call, "f", 1)
        if path is None or not _is_fixed(script, path):
            continue
        branch = is_for_the_others(script, call)
        if branch is not None:
            if ranks > 2 or _saves_the_same(script, branch, path):
                yield script.finding(
                    call,
                    "K18",
                    "every rank but rank 0 saves to this one file, from the else branch",
                    next="save on one rank alone: leave this torch.save out, or put `if dist.get_rank() == 0:` around both",
                )
        elif not is_of_one_rank(script, call):
            yield script.finding(
                call,
                "K18",
                "every rank saves to this one file",
                next=f"if dist.get_rank() == 0: {ast.unparse(call)[:80]}",
            )


def _saves_the_same(script: Script, branch: ast.If, path: ast.expr) -> bool:
    """Whether rank 0 saves to that path too, in the body of the branch."""
    inside = {id(part) for statement in branch.body for part in ast.walk(statement)}
    return any(
        id(call) in inside and (other := argument(call, "f", 1)) is not None and ast.dump(other) == ast.dump(path)
        for call in script.calls("torch.save")
    )


def _is_fixed(script: Script, path: ast.expr, depth: int = 3) -> bool:
    """Whether the path is a text that is certainly the same on every rank."""
    if names_rank(path) or not depth:
        return False
    if isinstance(path, ast.Constant):
        return isinstance(path.value, str)
    if isinstance(path, ast.JoinedStr):
        given = [part.value for part in path.values if isinstance(part, ast.FormattedValue)]
        return all(_is_fixed(script, part, depth - 1) or is_alike(script, part) for part in given)
    if isinstance(path, ast.Name):
        value = script.only_value(path)
        return value is not None and _is_fixed(script, value, depth - 1)
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div | ast.Add):
        return all(_is_fixed(script, side, depth) for side in (path.left, path.right))
    if isinstance(path, ast.Call) and script.dotted(path.func) & _JOIN:
        return not path.keywords and all(_is_fixed(script, part, depth) for part in path.args)
    if isinstance(path, ast.Attribute) and isinstance(path.value, ast.Name):
        bound = script.bindings(path.value.id)
        return bool(bound) and not any(isinstance(one, ast.arg) for one in bound) and is_argument(script, path)
    return script.variable(path) in _DIRECTORIES


RULE = Rule(code="K18", page=PAGE, find=find)
