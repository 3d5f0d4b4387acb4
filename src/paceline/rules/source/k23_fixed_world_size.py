"""K23: a rank or a number of ranks that is written into the script."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, constant_text, script_of

PAGE = """\
A world size or a rank that is written into the script

What it means: init_process_group or DistributedSampler is given a number for world_size, num_replicas or rank, and this job has another
  number of ranks.
Why it matters: A process group of another size never forms, or leaves ranks out. A sampler with a fixed num_replicas leaves part of the
  data out or reads some twice; with a fixed rank every rank trains on the same part.
What to do: Leave the arguments out: both read them from the environment and the process group.
Source: torch.distributed.init_process_group; torch.utils.data.distributed.DistributedSampler.
"""

_TAKES = {
    "torch.distributed.init_process_group": (("world_size", 3), ("rank", 4)),
    "torch.utils.data.distributed.DistributedSampler": (("num_replicas", 1), ("rank", 2)),
    "torch.utils.data.DistributedSampler": (("num_replicas", 1), ("rank", 2)),
}


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such number that differs from this job's number."""
    if before.ranks_per_host is None:
        return
    ranks = before.hosts * before.ranks_per_host
    script = script_of(before)
    for function, parameters in _TAKES.items():
        for call in script.calls(function):
            if constant_text(argument(call, "backend", 0)) == "fake":
                continue
            for name, position in parameters:
                number = _number(argument(call, name, position))
                is_wrong = number is not None and (ranks > 1 if name == "rank" else number not in (ranks, -1))
                if is_wrong and not script.is_conditional(call):
                    yield _said(script, call, name, number or 0, ranks)


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _said(script: Script, call: ast.Call, name: str, number: int, ranks: int) -> Finding:
    count = f"{ranks} rank{'s' if ranks > 1 else ''}"
    what = f"{name}={number} is the same on all ranks" if name == "rank" else f"{name}={number}"
    return script.finding(call, "K23", f"{what}, and this job has {count}", next=f"leave {name} out")


RULE = Rule(code="K23", page=PAGE, find=find)
