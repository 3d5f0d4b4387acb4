"""K29: a script wraps a model in DDP or calls torch.distributed, and nobody makes a process group."""

import ast
import sys
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of, scripts_of

PAGE = """\
torch.distributed without a process group

What it means: The script wraps its model in DistributedDataParallel, or calls a function such as `dist.get_rank()`, `dist.barrier()` or
  `dist.all_reduce(...)`. Neither it nor a file of the user's that it imports calls `torch.distributed.init_process_group`. A launcher sets
  RANK and WORLD_SIZE, and makes no group. A call that a condition, an early return or a `try` may prevent is not reported.
Why it matters: Both raise "Default process group has not been initialized" at once. Where the wrapping depends on
  `dist.is_initialized()`, each rank trains a model of its own and nothing says so (M12).
What to do: `torch.distributed.init_process_group()` before the first such line.
Source: torch, DistributedDataParallel: "This module requires torch.distributed to be already initialized"; distributed_c10d.py.
"""

_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_CALLS = tuple(
    f"torch.distributed.{name}"
    for name in (
        "get_rank", "get_world_size", "get_backend", "new_group", "barrier", "monitored_barrier", "all_reduce", "reduce", "broadcast",
        "broadcast_object_list", "all_gather", "all_gather_into_tensor", "all_gather_object", "gather", "gather_object", "scatter",
        "scatter_object_list", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend",
        "irecv",
    )
)  # fmt: skip
_CATCHES = ("RuntimeError", "ValueError", "AssertionError", "Exception", "BaseException", "")
_MAKES_ONE = ("init_process_group", "init_device_mesh", "DeviceMesh", "fully_shard")
_BY_NAME = ("import_module", "__import__", "runpy", "exec(")
# Packages that make no group. Any other one may.
_HARMLESS = frozenset(
    {
        "torch", "torchvision", "torchaudio", "torchmetrics", "numpy", "pandas", "scipy", "sklearn", "PIL", "cv2", "matplotlib", "tqdm",
        "yaml", "h5py", "einops", "tensorboard", "tensorboardX", "wandb", "boto3", "requests", "packaging", "psutil", "safetensors",
    }
)  # fmt: skip


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first wrapping or certain call, if nothing that the script imports may make a group."""
    script = script_of(before)
    calls = [
        call
        for call in script.calls(*_DDP, *_CALLS)
        if argument(call, "process_group") is None and argument(call, "group") is None
    ]
    if not calls or before.launcher == "smdistributed" or _may_make_one(before):
        return
    scripts = scripts_of(before)
    for call in calls:
        if not script.dotted(call.func).isdisjoint(_DDP) or _is_reached(scripts, script, call, set()):
            yield script.finding(
                call,
                "K29",
                "no file calls torch.distributed.init_process_group, and this needs the group",
                next="torch.distributed.init_process_group() before this line",
                severity=Severity.WARNING if script.is_in_function(call) else script.severity(call),
            )
            return


def _is_reached(scripts: list[Script], script: Script, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether the node certainly runs: no condition, early return or `try` is in the way, in its function and in one that calls it.

    `seen`: functions whose callers were looked at; each is looked at once.
    """
    if script.is_conditional(node) or script.is_caught(node, *_CATCHES):
        return False
    function: ast.AST = node
    while not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module):
        function = script.parents[function]
    if isinstance(function, ast.Module):
        return True
    if (
        isinstance(function, ast.Lambda)
        or function in seen
        or isinstance(script.parents[function], ast.ClassDef)
        or script.is_conditional(function)
        or any(isinstance(one, ast.Return) and one.lineno < getattr(node, "lineno", 0) for one in ast.walk(function))
    ):
        return False
    seen.add(function)
    elsewhere = f"{script.path.removesuffix('.py').rpartition('/')[2]}.{function.name}"
    return any(
        _is_reached(scripts, other, call, seen)
        for other in scripts
        for call in other.every(ast.Call)
        if (isinstance(call.func, ast.Name) and call.func.id == function.name and other is script)
        or any(f".{name}".endswith(f".{elsewhere}") for name in other.dotted(call.func))
    )


def _may_make_one(before: BeforeRun) -> bool:
    if any(name in text for text in before.texts for name in (*_MAKES_ONE, *_BY_NAME)):
        return True
    scripts = scripts_of(before)
    own = {part.removesuffix(".py") for script in scripts for part in script.path.split("/")}
    imported = {alias.name for script in scripts for node in script.every(ast.Import) for alias in node.names}
    imported |= {node.module or "." for script in scripts for node in script.every(ast.ImportFrom)}
    packages = {name.partition(".")[0] for name in imported}
    return bool(packages - _HARMLESS - own - set(sys.stdlib_module_names))


RULE = Rule(code="K29", page=PAGE, find=find)
