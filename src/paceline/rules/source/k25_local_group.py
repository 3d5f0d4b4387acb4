"""K25: a process group that some ranks make alone, on a torch that counts it on these ranks only."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
A process group that only its members make, and another one after it

What it means: Under a condition on the rank the script calls new_group with use_local_synchronization=True, and later
  all ranks make another group. From torch 2.14 on the members count the first group and the other ranks do not, so the
  next group has two names.
Why it matters: All ranks wait in the next new_group until its timeout, half an hour (M20). Up to torch 2.13 it works.
What to do: Call new_group on every rank without the condition. Or let each rank make a group of its own in the other
  branch: `new_group([2, 3], use_local_synchronization=True)`. A torch that is known to be older is not reported.
Source: _process_group_name in torch/distributed/distributed_c10d.py of torch 2.14.1 and 2.15.0; with plain gloo and
  three ranks the call ends with DistStoreError on these two, and works on 2.13.0.
"""

_COUNTED_FROM = (2, 14)
_NEW_GROUP = "torch.distributed.new_group"
_MAKING = (
    _NEW_GROUP,
    "torch.distributed.new_subgroups",
    "torch.distributed.new_subgroups_by_enumeration",
    "torch.distributed.device_mesh.init_device_mesh",
    "torch.distributed.init_device_mesh",
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first such group."""
    if before.rank_count == 1 or _is_older(_torch_version(before)):
        return
    script = script_of(before)
    later = [call for call in script.calls(*_MAKING) if not _depends_on_rank(script, call)]
    for call in script.calls(_NEW_GROUP):
        if not _is_local(call) or not _depends_on_rank(script, call) or _other_branch_makes_one(script, call):
            continue
        behind = next((other for other in later if other.lineno > call.lineno), None)
        if behind is not None:
            yield script.finding(
                call,
                "K25",
                "from torch 2.14 on only these ranks count this group, and all ranks wait in vain in the group of"
                f" line {behind.lineno}",
                next=f"{script.place(call)}: call new_group on every rank, or one with use_local_synchronization=True"
                " in the other branch too",
            )
            return


def _torch_version(before: BeforeRun) -> str | None:
    return before.torch_version or (before.framework_version if before.framework == "pytorch" else None)


def _is_older(version: str | None) -> bool:
    numbers = (version or "").split(".")[:2]
    return len(numbers) == 2 and all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) < _COUNTED_FROM


def _is_local(call: ast.Call) -> bool:
    wanted = argument(call, "use_local_synchronization", 4)
    return isinstance(wanted, ast.Constant) and wanted.value is True


def _depends_on_rank(script: Script, call: ast.Call) -> bool:
    return any(
        "rank" in (getattr(part, "id", "") or getattr(part, "attr", "")).lower()
        for test in script.conditions(call)
        for part in ast.walk(test)
    )


def _other_branch_makes_one(script: Script, call: ast.Call) -> bool:
    """Whether another branch of a condition above the call makes such a group too."""
    above = script.parents.get(call)
    while above is not None:
        if isinstance(above, ast.If | ast.IfExp):
            inside = {id(part) for part in ast.walk(above)}
            if any(
                other is not call and _is_local(other) and id(other) in inside for other in script.calls(_NEW_GROUP)
            ):
                return True
        above = script.parents.get(above)
    return False


RULE = Rule(code="K25", page=PAGE, find=find)
