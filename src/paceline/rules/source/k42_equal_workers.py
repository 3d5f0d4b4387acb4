"""K42: the workers of every rank's loader draw the same random numbers, since nothing in their seed is the rank's."""

import ast
import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
The same augmentations on every rank

What it means: The script gives its DataLoader a worker_init_fn that seeds by the worker's number, or by torch.initial_seed() after
  torch.manual_seed of one number on every rank. Worker 0 of rank 0 then draws what worker 0 of every other rank draws.
Why it matters: Each rank has other samples, and all of them get the same crops, flips and noise in the same order: the random numbers of
  a batch are as many as those of one rank.
What to do: Let the seed know the rank: `torch.manual_seed(seed + dist.get_rank())` after the model is made, or `seed + 1000 * rank` in
  the worker_init_fn. A script that names seed and rank in one line anywhere is not reported, nor a loader with a generator of its own.
Source: torch, "Reproducibility" and "Randomness in multi-process data loading"; torch/utils/data/_utils/worker.py.
"""

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_SEEDS_TORCH = ("torch.manual_seed", "torch.random.manual_seed")
_SEEDS = (*_SEEDS_TORCH, "random.seed", "numpy.random.seed")
_TORCHS_SEED = ("torch.initial_seed", "torch.random.initial_seed")
_WORKER_INIT_PLACE = 9
_RANK = re.compile(r"(?i)rank|process_index|process_id")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each function that seeds the workers of a loader without the rank."""
    if before.rank_count == 1:
        return
    script = script_of(before)
    if any(_may_give_each_rank_its_seed(line) for text in before.texts for line in text.splitlines()):
        return
    functions = {function.name: function for function in script.every(ast.FunctionDef)}
    told: set[str] = set()
    for loader in script.calls(*_LOADERS):
        given = argument(loader, "worker_init_fn", _WORKER_INIT_PLACE)
        if not isinstance(given, ast.Name) or given.id in told or argument(loader, "generator") is not None:
            continue
        seeding = _equal_seeding(script, functions.get(given.id))
        if seeding is not None:
            told.add(given.id)
            yield script.finding(
                seeding,
                "K42",
                f"{given.id} gives the workers of every rank the same seeds: all ranks draw the same augmentations",
                next="torch.manual_seed(seed + dist.get_rank()) after the model is made, or the rank in this seed",
            )


def _may_give_each_rank_its_seed(line: str) -> bool:
    """Whether code, other than a sentence, names a seed and the rank."""
    return "seed" in line.lower() and _RANK.search(line) is not None and not set("=(+*").isdisjoint(line)


def _equal_seeding(script: Script, function: ast.FunctionDef | None) -> ast.Call | None:
    """The first call in this function that seeds, if its seed is the same on every rank for sure."""
    inside = set(ast.walk(function)) if function is not None else set()
    seeding = next((call for call in script.calls(*_SEEDS) if call in inside and call.args), None)
    if function is None or seeding is None:
        return None
    parts = _parts(seeding.args[0], function)
    given = {arg.arg for arg in function.args.args}
    names = [part for part in parts if isinstance(part, ast.Name) and part.id not in given]
    calls = [part for part in parts if isinstance(part, ast.Call)]
    if not calls:
        return seeding if all(_is_constant(script, name) for name in names) else None
    by_torch = all(not script.dotted(call.func).isdisjoint(_TORCHS_SEED) for call in calls)
    return seeding if by_torch and _torch_is_seeded_alike(script, inside) else None


def _parts(seed: ast.expr, function: ast.FunctionDef) -> list[ast.AST]:
    """The parts of a seed, and those of what the function assigned to its names before."""
    parts = list(ast.walk(seed))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    for line in function.body:
        if isinstance(line, ast.Assign) and any(isinstance(one, ast.Name) and one.id in names for one in line.targets):
            assigned = {one.id for one in line.targets if isinstance(one, ast.Name)}
            parts = [part for part in parts if not (isinstance(part, ast.Name) and part.id in assigned)]
            parts += ast.walk(line.value)
    return parts


def _torch_is_seeded_alike(script: Script, inside: set[ast.AST]) -> bool:
    seeds = [call for call in script.calls(*_SEEDS_TORCH) if call not in inside]
    return bool(seeds) and all(call.args and _is_constant(script, call.args[0]) for call in seeds)


def _is_constant(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return isinstance(script.only_value(node), ast.Constant)
    return isinstance(node, ast.Constant)


RULE = Rule(code="K42", page=PAGE, find=find)
