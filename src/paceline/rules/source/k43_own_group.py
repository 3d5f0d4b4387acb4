"""K43: each rank makes only the process group that it belongs to."""

import ast
import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
Each rank makes only its own process group

What it means: The script calls new_group with a list that depends on the rank, such as
  `new_group([0, 3] if rank in (0, 3) else [1, 2])`, or calls it only if the rank is in the list.
Why it matters: new_group is a call of all ranks. torch counts the groups, so two groups that are made in the same call have
  one name. Their members meet the wrong ranks: sums are mixed up, or all ranks wait (M20).
What to do: Call new_group on every rank, for every group, in the same order:
  `groups = [dist.new_group(members) for members in ([0, 3], [1, 2])]`. Or give `use_local_synchronization=True` on every rank. A list that
  comes from a loop over all groups is not reported, nor a group of one rank.
Source: torch.distributed.new_group, "requires that all processes in the main group enter this function, even if they are
  not going to be members of the group".
"""

_NEW_GROUP = "torch.distributed.new_group"
# The rank of this process. `ranks` are those of a group.
_RANK = re.compile(r"(?i)_?(?:(?:global|my|self|world|cur|current|dist)_?)?rank(?:_?id)?")
_GET_RANK = re.compile(r"(?:.*\.)?get_(?:global_)?rank")
_DEEPEST = 4


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first such group."""
    if before.rank_count == 1:
        return
    script = script_of(before)
    for call in script.calls(_NEW_GROUP):
        members = argument(call, "ranks", 0)
        local = argument(call, "use_local_synchronization", 4)
        if members is None or local is not None or _is_of_one(script, members):
            continue
        if _is_the_ranks_own(script, members) or _is_made_by_members_alone(script, call, members):
            yield script.finding(
                call,
                "K43",
                "a rank makes only the group that it belongs to, and new_group is a call of all ranks: the groups are mixed up,"
                " or all wait",
                next=f"{script.place(call)}: on every rank call new_group for each group, in the same order",
            )
            return


def _is_of_one(script: Script, members: ast.expr) -> bool:
    value = script.only_value(members) if isinstance(members, ast.Name) else members
    return isinstance(value, ast.List | ast.Tuple) and len(value.elts) < 2


def _is_the_ranks_own(script: Script, members: ast.expr, deep: int = 0) -> bool:
    """Whether the value of an expression is another one on other ranks, by the rank in it."""
    for part in ast.walk(members):
        if isinstance(part, ast.Call) and _GET_RANK.fullmatch(ast.unparse(part.func)) and not part.args:
            return True
        if isinstance(part, ast.Attribute) and _RANK.fullmatch(part.attr):
            return True
        if not isinstance(part, ast.Name) or not isinstance(part.ctx, ast.Load):
            continue
        if _is_of_a_loop(script, part.id):
            continue
        if _RANK.fullmatch(part.id):
            return True
        value = script.only_value(part)
        if value is not None and deep < _DEEPEST and _is_the_ranks_own(script, value, deep + 1):
            return True
    return False


def _is_of_a_loop(script: Script, name: str) -> bool:
    """Whether a loop or a comprehension binds the name, anywhere in the script."""
    for bound in script.bindings(name):
        above = script.parents.get(bound)
        while isinstance(above, ast.Tuple | ast.List | ast.Starred):
            above = script.parents.get(above)
        if isinstance(above, ast.For | ast.AsyncFor | ast.comprehension):
            return True
    return False


def _is_made_by_members_alone(script: Script, call: ast.Call, members: ast.expr) -> bool:
    """Whether `if rank in members:` is around the call."""
    text = ast.unparse(members)
    for test in script.conditions(call):
        for part in ast.walk(test):
            if (
                isinstance(part, ast.Compare)
                and isinstance(part.ops[0], ast.In)
                and ast.unparse(part.comparators[0]) == text
                and _is_the_ranks_own(script, part.left)
            ):
                return True
    return False


RULE = Rule(code="K43", page=PAGE, find=find)
