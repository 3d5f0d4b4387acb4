"""K29: a script wraps a model in DDP, and nobody makes a process group."""

import ast
import sys
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import argument, script_of, scripts_of

PAGE = """\
DistributedDataParallel without a process group

What it means: The script wraps its model in DistributedDataParallel, and neither it nor a file of the user's that it imports calls
  `torch.distributed.init_process_group`. A launcher sets RANK and WORLD_SIZE, and makes no group.
Why it matters: DistributedDataParallel raises "Default process group has not been initialized" at once. Where the wrapping depends on
  `dist.is_initialized()`, each rank trains a model of its own and nothing says so (M12).
What to do: `torch.distributed.init_process_group()` before the model is wrapped.
Source: torch, DistributedDataParallel: "This module requires torch.distributed to be already initialized".
"""

_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
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
    """The first wrapping, if nothing that the script imports may make a group."""
    script = script_of(before)
    wrapped = next(script.calls(*_DDP), None)
    if (
        wrapped is None
        or argument(wrapped, "process_group") is not None
        or before.launcher == "smdistributed"
        or _may_make_one(before)
    ):
        return
    yield script.finding(
        wrapped,
        "K29",
        "no file calls torch.distributed.init_process_group, and this needs the group",
        next="torch.distributed.init_process_group() before this line",
        severity=Severity.WARNING if script.is_in_function(wrapped) else script.severity(wrapped),
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
