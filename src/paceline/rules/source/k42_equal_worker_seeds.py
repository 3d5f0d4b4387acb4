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
  the worker_init_fn. A script that names seed and rank in one line of code anywhere is not reported, nor a loader with a generator of
  its own.
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
    told: set[str] = set()
    for loader in script.calls(*_LOADERS):
        given = argument(loader, "worker_init_fn", _WORKER_INIT_PLACE)
        if not isinstance(given, ast.Name) or given.id in told or argument(loader, "generator") is not None:
            continue
        functions = [function for function in script.every(ast.FunctionDef) if function.name == given.id]
        seeding = _equal_seeding(script, functions[0]) if len(functions) == 1 else None
        if seeding is not None and not _gives_each_rank_its_seed(before):
            told.add(given.id)
            yield script.finding(
                seeding,
                "K42",
                f"{given.id} gives the workers of every rank the same seeds: all ranks draw the same augmentations",
                next="torch.manual_seed(seed + dist.get_rank()) after the model is made, or the rank in this seed",
            )


def _gives_each_rank_its_seed(before: BeforeRun) -> bool:
    """Whether code, other than a sentence, may: a line of it names a seed and the rank."""
    return any(
        "seed" in line.lower() and _RANK.search(line) is not None and not set("=(+*").isdisjoint(line)
        for text in before.texts
        for line in text.splitlines()
    )


def _equal_seeding(script: Script, function: ast.FunctionDef) -> ast.Call | None:
    """The first call in this function that seeds, if its seeds are the same on every rank for sure."""
    inside = set(ast.walk(function))
    seedings = [call for call in script.calls(*_SEEDS) if call in inside and call.args]
    worker = function.args.args[0].arg if function.args.args else ""
    outside = [call for call in script.every(ast.Call) if call not in inside and _seeds(script, call)]
    # What torch.initial_seed() gives, where torch is seeded and every other seeding is by a number too.
    is_torch_alike = any(not script.dotted(call.func).isdisjoint(_SEEDS_TORCH) for call in outside) and all(
        call.args and _is_equal(script, call.args[0]) for call in outside
    )
    is_equal = all(_is_equal(script, call.args[0], worker, is_torch_alike) for call in seedings)
    return seedings[0] if seedings and is_equal else None


def _seeds(script: Script, call: ast.Call) -> bool:
    name = ast.unparse(call.func).rpartition(".")[2].lower()
    return "seed" in name and script.dotted(call.func).isdisjoint(_TORCHS_SEED)


def _is_equal(script: Script, seed: ast.expr, worker: str = "", is_torch_alike: bool = False) -> bool:
    """Whether a seed is of numbers and of the worker's number alone."""
    if isinstance(seed, ast.BinOp):
        return all(_is_equal(script, side, worker, is_torch_alike) for side in (seed.left, seed.right))
    if isinstance(seed, ast.Name) and seed.id == worker:
        return all(isinstance(bound, ast.arg) for bound in script.bindings(worker))
    if isinstance(seed, ast.Name):
        value = script.only_value(seed)
        return value is not None and _is_equal(script, value, worker, is_torch_alike)
    if isinstance(seed, ast.Call):
        return is_torch_alike and not script.dotted(seed.func).isdisjoint(_TORCHS_SEED)
    return isinstance(seed, ast.Constant)


RULE = Rule(code="K42", page=PAGE, find=find)
