"""K18: every rank saves to the same file."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import is_distributed, is_of_one_rank, names_rank
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


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each torch.save that all ranks visibly reach with the same path."""
    ranks = before.hosts * (before.ranks_per_host or 2)
    if ranks == 1:
        return
    script = script_of(before)
    if not is_distributed(script):
        return
    for call in script.calls("torch.save"):
        path = argument(call, "f", 1)
        if path is not None and _is_fixed(script, path) and not is_of_one_rank(script, call):
            yield script.finding(
                call,
                "K18",
                "every rank saves to this one file",
                next=f"if dist.get_rank() == 0: {ast.unparse(call)[:80]}",
            )


def _is_fixed(script: Script, path: ast.expr) -> bool:
    """Whether the path is a text that is certainly the same on every rank."""
    if isinstance(path, ast.Constant):
        return isinstance(path.value, str)
    if isinstance(path, ast.JoinedStr):
        return not names_rank(path) and not any(isinstance(part, ast.Call) for part in ast.walk(path))
    return False


RULE = Rule(code="K18", page=PAGE, find=find)
