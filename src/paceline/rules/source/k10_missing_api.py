"""K10: the script uses parts of smdistributed that paceline does not have, or calls that neither it nor torch.distributed ever had."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, script_of
from paceline.smdistributed_names import DDP, NEVER

PAGE = """\
A module or a call that is not there

What it means: The script imports smdistributed.modelparallel, which paceline does not have. Or it calls a function on
  smdistributed's module or on torch.distributed that no release of either had, such as all_reduce_params(model). Or it builds an
  estimator of the SageMaker SDK v2 (`sagemaker.estimator`, `sagemaker.pytorch`, `sagemaker.tensorflow`), which v3 removed.
Why it matters: Every rank ends with an ImportError or an AttributeError. Published examples contain such calls. Most
  of them are the names that Horovod or MPI uses for an existing function.
What to do: Use the name under "next". Instead of model parallelism use torch's FSDP2
  (`torch.distributed.fsdp.fully_shard`). An import under a condition, or in a `try` that continues without it, is not reported.
Source: SMDDP 1.0 to 1.4 API documents; docs/smdistributed.md; paceline help U32.
"""

_SMDDP = ("smdistributed.dataparallel.torch.distributed", "smdistributed.dataparallel.torch")
_TORCH = "torch.distributed"
_NOT_HERE = {
    "smdistributed.modelparallel": "split the model with torch.distributed.fsdp.fully_shard",
}
_SKIPS_IMPORT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException", "")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Imports of missing modules, and names that never existed."""
    script = script_of(before)
    yield from _not_here(script, on_sagemaker=before.engine == "sagemaker")
    for node, name in _imported(script):
        origin, _, last = name.rpartition(".")
        if isinstance(node, ast.ImportFrom) and not script.is_caught(node, *_SKIPS_IMPORT):
            yield from _never(script, node, frozenset({origin}), last)
    for attribute in script.every(ast.Attribute):
        if attribute.attr not in NEVER or not isinstance(attribute.ctx, ast.Load):
            continue
        if not script.is_caught(attribute, "AttributeError", "Exception", ""):
            yield from _never(script, attribute, script.dotted(attribute.value), attribute.attr)


def _imported(script: Script) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for node in script.every(ast.Import):
        yield from ((node, alias.name) for alias in node.names)
    for source in script.every(ast.ImportFrom):
        if not source.level and source.module:
            yield from ((source, f"{source.module}.{alias.name}") for alias in source.names)


def _not_here(script: Script, *, on_sagemaker: bool) -> Iterator[Finding]:
    """The first import of each module that paceline does not have.

    An import under a condition does not count, because the script decides there.
    """
    for module, instead in _NOT_HERE.items():
        for node, name in _imported(script):
            ours = name == module or name.startswith(f"{module}.")
            if ours and not script.is_caught(node, *_SKIPS_IMPORT) and not script.is_conditional(node):
                # An AWS image may contain the real library; then the job uses it.
                image = "; it exists only if the image contains it" if on_sagemaker else ""
                yield script.finding(
                    node,
                    "K10",
                    f"{module} is not part of paceline{image}",
                    next=instead,
                    severity=Severity.WARNING if on_sagemaker else Severity.ERROR,
                )
                break


def _never(script: Script, node: ast.AST, modules: frozenset[str], name: str) -> Iterator[Finding]:
    """Uses of a name of the table on one of the two modules. An alias of both modules lacks it either way."""
    if name not in NEVER or not modules or not modules <= {*_SMDDP, _TORCH}:
        return
    smddp = modules != {_TORCH}
    meant = NEVER[name][0 if smddp else 1]
    owner = "smdistributed.dataparallel" if smddp else _TORCH
    what = f"{owner} never had {name!r}"
    yield script.finding(node, "K10", what, next=_written(node, meant), severity=script.severity(node))


def _written(node: ast.AST, meant: str) -> str:
    if meant == DDP:
        return f"from {DDP.rpartition('.')[0]} import DistributedDataParallel"
    if "(" in meant or not isinstance(node, ast.Attribute):
        return meant
    return f"{ast.unparse(node.value)}.{meant}"


RULE = Rule(code="K10", page=PAGE, find=find)
