"""K14: every rank of a host takes the same GPU."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import is_distributed, is_of_one_rank
from paceline.rules.script import Script, argument, constant_text, script_of

PAGE = """\
Every rank on device 0

What it means: The script moves its model or its process to a GPU by a fixed number, and the job has several ranks on a host. All of
  them take that GPU.
Why it matters: NCCL refuses two ranks on one GPU (R09, "Duplicate GPU detected"). With gloo the ranks share its memory and its time,
  and the others stand idle.
What to do: `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before anything else of CUDA, then "cuda" without a number. With
  `--virtual-local-rank` each rank sees its own GPU as device 0, and the script may stay as it is.
Source: torch.distributed, "Launch utility"; torch.nn.parallel.DistributedDataParallel, device_ids.
"""

_FIRST = ("cuda:0",)


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such call that every rank reaches."""
    if before.ranks_per_host in (None, 1) or before.gpus_per_host == 0:
        return
    script = script_of(before)
    if not is_distributed(script):
        return
    for node, what in _fixed(script):
        if not script.is_conditional(node) and not is_of_one_rank(script, node):
            yield script.finding(
                node,
                "K14",
                f"{what} is the same GPU for all {before.ranks_per_host} ranks of a host",
                next='int(os.environ["LOCAL_RANK"]) in place of the number',
            )


def _fixed(script: Script) -> Iterator[tuple[ast.Call, str]]:
    for call in script.calls("torch.cuda.set_device"):
        if _is_zero(argument(call, "device", 0)):
            yield call, "torch.cuda.set_device(0)"
    for call in script.calls("torch.nn.parallel.DistributedDataParallel"):
        devices = argument(call, "device_ids", 1)
        if isinstance(devices, ast.List) and len(devices.elts) == 1 and _is_zero(devices.elts[0]):
            yield call, "device_ids=[0]"
    for call in script.methods("cuda"):
        if _is_zero(argument(call, "device", 0)):
            yield call, ".cuda(0)"


def _is_zero(node: ast.expr | None) -> bool:
    return (isinstance(node, ast.Constant) and node.value == 0 and node.value is not False) or constant_text(
        node
    ) in _FIRST


RULE = Rule(code="K14", page=PAGE, find=find)
