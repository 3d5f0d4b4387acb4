"""K27: a checkpoint of a wrapped model is loaded into the plain one, and strict=False says nothing of it."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
A checkpoint whose names do not fit, loaded with strict=False

What it means: The script saves the state of a wrapped model, whose names begin with `module.` (DistributedDataParallel,
  DataParallel) or `_orig_mod.` (torch.compile), and loads the same file into the plain model with `strict=False`.
Why it matters: No name fits, and `strict=False` passes over all of them: the model is as new, and the script goes on at the step of
  the checkpoint. The loss begins again where it had begun, and nothing else says so.
What to do: Save `model.module.state_dict()`, which has the plain names, and leave `strict=False` out.
Source: torch, nn.Module.load_state_dict, strict.
"""

_WRAPPERS = {
    "torch.nn.parallel.DistributedDataParallel": "module.",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module.",
    "torch.nn.DataParallel": "module.",
    "torch.nn.parallel.DataParallel": "module.",
    "torch.compile": "_orig_mod.",
}


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each load into a plain model of a file to which the state of wrapped ones alone is saved."""
    script = script_of(before)
    saved = [(path, state) for call in script.calls("torch.save") for path, state in _saves(script, call)]
    for call in script.every(ast.Call):
        path = _loaded_path(script, call)
        if path is None or _prefix(script, call.func, call) != "":
            continue
        prefixes = [_prefix(script, state.func, state) for other, state in saved if ast.dump(other) == ast.dump(path)]
        if prefixes and all(prefixes):
            yield script.finding(
                call,
                "K27",
                f"the names in this file begin with {prefixes[0]}, those of the model do not, and strict=False hides it: nothing is loaded",
                next="save model.module.state_dict(), and leave strict=False out"
                if prefixes[0] == "module."
                else "save model._orig_mod.state_dict(), and leave strict=False out",
            )


def _saves(script: Script, call: ast.Call) -> Iterator[tuple[ast.expr, ast.Call]]:
    """The path of a torch.save, with each `X.state_dict()` that it saves, but for optimizers."""
    path, document = argument(call, "f", 1), argument(call, "obj", 0)
    if path is None or document is None:
        return
    for part in ast.walk(document):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "state_dict":
            if _prefix(script, part.func, part) is not None:
                yield path, part


def _loaded_path(script: Script, call: ast.Call) -> ast.expr | None:
    """The path of `X.load_state_dict(torch.load(PATH)..., strict=False)`, also by a name for what was loaded."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "load_state_dict" or not call.args:
        return None
    strict = argument(call, "strict", 1)
    if not isinstance(strict, ast.Constant) or strict.value is not False:
        return None
    state: ast.expr | None = call.args[0]
    while isinstance(state, ast.Subscript):
        state = state.value
    if isinstance(state, ast.Name):
        state = script.only_value(state)
    if isinstance(state, ast.Call) and "torch.load" in script.dotted(state.func):
        return argument(state, "f", 0)
    return None


def _prefix(script: Script, function: ast.expr, at: ast.AST) -> str | None:
    """What a wrapper puts before the names of the model whose method this is: "" for a plain one; None: it is no model, or not known."""
    model = function.value if isinstance(function, ast.Attribute) else None
    if isinstance(model, ast.Attribute) and model.attr in ("module", "_orig_mod"):
        return ""
    if not isinstance(model, ast.Name):
        return None
    made = [
        assigned.value
        for assigned in script.every(ast.Assign)
        if assigned.lineno < getattr(at, "lineno", 0)
        and script.function_of(assigned) is script.function_of(at)
        and any(isinstance(target, ast.Name) and target.id == model.id for target in assigned.targets)
    ]
    if not made or not isinstance(made[-1], ast.Call):
        return None
    wrapped = script.dotted(made[-1].func) & _WRAPPERS.keys()
    if wrapped:
        return _WRAPPERS[min(wrapped)]
    return None if any(name.startswith("torch.optim") for name in script.dotted(made[-1].func)) else ""


RULE = Rule(code="K27", page=PAGE, find=find)
