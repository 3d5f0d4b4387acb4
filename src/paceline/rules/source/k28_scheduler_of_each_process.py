"""K28: accelerate steps a learning-rate schedule once for each process, and the schedule is as long as the loop."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
A schedule that accelerate steps once for each process

What it means: The scheduler is handed to `accelerator.prepare` and is as long as the training loop. At each `scheduler.step()`
  accelerate steps it once for each process, unless it was made with `split_batches=True` or `step_scheduler_with_optimizer=False`.
  A script that accumulates gradients, or whose loop counts the processes, is not reported.
Why it matters: With N ranks the schedule is over after an N-th of the training: the learning rate is at its end from there on.
What to do: Make the schedule N times as long (`STEPS * accelerator.num_processes`), or do not hand it to `prepare`.
Source: accelerate, docs "Comparing performance between different device setups", Learning Rates; src/accelerate/scheduler.py.
"""

_AS_LONG = {
    "torch.optim.lr_scheduler.LinearLR": ("total_iters", 3),
    "torch.optim.lr_scheduler.PolynomialLR": ("total_iters", 1),
    "torch.optim.lr_scheduler.CosineAnnealingLR": ("T_max", 1),
    "torch.optim.lr_scheduler.OneCycleLR": ("total_steps", 2),
    "transformers.get_scheduler": ("num_training_steps", 3),
    "transformers.get_linear_schedule_with_warmup": ("num_training_steps", 2),
    "transformers.get_cosine_schedule_with_warmup": ("num_training_steps", 2),
}
"""Scheduler -> the argument that says after how many steps it is over, and its place."""
# With them a step of the schedule is one for all processes, or is not one of the loop.
_OTHER_STEPS = (
    "split_batches", "step_scheduler_with_optimizer", "dataloader_config", "gradient_accumulation_steps", "gradient_accumulation_plugin",
)  # fmt: skip


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such scheduler of a job of several ranks."""
    ranks = before.rank_count
    if ranks == 1:
        return
    script = script_of(before)
    for name in _accelerators(script):
        for call in script.methods("prepare"):
            if not isinstance(call.func, ast.Attribute) or not _is_named(call.func.value, name):
                continue
            for prepared in call.args:
                made = _made(script, prepared)
                length = None if made is None else _length(script, made)
                if made is not None and length is not None and _is_end_of_a_loop(script, length):
                    yield script.finding(
                        made,
                        "K28",
                        f"accelerate steps this scheduler {ranks} times at each step, once for each process, and it is as long as"
                        f" the loop: it is over after 1/{ranks} of the training",
                        next=f"{ast.unparse(length)} * {name}.num_processes",
                    )


def _accelerators(script: Script) -> Iterator[str]:
    """Names of accelerators that step a scheduler for each process."""
    for call in script.calls("accelerate.Accelerator"):
        above = script.parents.get(call)
        if (
            isinstance(above, ast.Assign)
            and not call.args
            and not {word.arg for word in call.keywords} & {None, *_OTHER_STEPS}
        ):
            yield from (target.id for target in above.targets if isinstance(target, ast.Name))


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _made(script: Script, prepared: ast.expr) -> ast.Call | None:
    """The call that made this scheduler: the only one, but for its preparation."""
    if not isinstance(prepared, ast.Name):
        return None
    made = [
        assigned.value
        for assigned in script.every(ast.Assign)
        if any(_is_named(target, prepared.id) for target in assigned.targets)
    ]
    if len(made) != 1 or not isinstance(made[0], ast.Call):
        return None
    return made[0] if script.dotted(made[0].func) & _AS_LONG.keys() else None


def _length(script: Script, made: ast.Call) -> ast.Name | None:
    """The name of the number of steps after which the schedule is over."""
    for function in script.dotted(made.func) & _AS_LONG.keys():
        name, place = _AS_LONG[function]
        length = argument(made, name, place)
        if isinstance(length, ast.Name) and len(script.bindings(length.id)) == 1:
            return length
    return None


def _is_end_of_a_loop(script: Script, length: ast.Name) -> bool:
    """Whether a loop that steps a schedule runs to this number of steps: `while done < STEPS`, `for step in range(STEPS)`."""
    ends: list[tuple[ast.stmt, ast.expr]] = [(loop, loop.test) for loop in script.every(ast.While)]
    ends += [
        (loop, loop.iter)
        for loop in script.every(ast.For)
        if isinstance(loop.iter, ast.Call) and _is_named(loop.iter.func, "range")
    ]
    return any(
        any(_is_named(part, length.id) for part in ast.iter_child_nodes(end))
        and ".step()" in (text := ast.unparse(loop))
        and "num_processes" not in text
        for loop, end in ends
    )


RULE = Rule(code="K28", page=PAGE, find=find)
