"""K27: a checkpoint of a wrapped model is loaded into the plain one, and strict=False says nothing of it."""

import ast
import re
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


# A script that has one of these takes the prefix away.
_TAKES_AWAY = re.compile(r"""["']module\.|["']_orig_mod|\[7:\]|\[10:\]|in_state_dict_if_present""")
_NO_MODEL = "no model"
_ITSELF = ("to", "cuda", "cpu", "float", "half", "bfloat16", "double", "train", "eval", "requires_grad_")
_LIBRARIES = ("torch", "torchvision", "timm", "transformers")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each load into a plain model of a file to which the state of wrapped ones alone is saved."""
    script = script_of(before)
    saved = [(path, prefix) for call in script.calls("torch.save") for path, prefix in _saves(script, call)]
    for call in script.methods("load_state_dict"):
        path = _loaded_path(script, call)
        if path is None or not _is_one_file(script, path) or _prefix(script, _owner(call), call) != "":
            continue
        prefixes = [prefix for other, prefix in saved if ast.dump(other) == ast.dump(path)]
        if prefixes and all(prefixes) and not any(map(_TAKES_AWAY.search, before.texts)):
            wrapped = f"model.{prefixes[0]}"
            yield script.finding(
                call,
                "K27",
                f"the names in this file begin with {prefixes[0]}, those of the model do not, and strict=False hides it: nothing is loaded",
                next=f"save {wrapped}state_dict(), and leave strict=False out",
            )


def _is_one_file(script: Script, path: ast.expr) -> bool:
    """Whether the names in a path have one value at most."""
    return all(len(script.bindings(part.id)) <= 1 for part in ast.walk(path) if isinstance(part, ast.Name))


def _saves(script: Script, call: ast.Call) -> Iterator[tuple[ast.expr, str | None]]:
    """The path of a torch.save, with the prefix of each model's state that it saves; None: one that is not known."""
    path, document = argument(call, "f", 1), argument(call, "obj", 0)
    if isinstance(document, ast.Name):
        document = script.only_value(document)
    if path is None:
        return
    states = [part for part in ast.walk(document or path) if isinstance(part, ast.Call) and _is_state(part)]
    if not states:
        yield path, None
    for state in states:
        prefix = _prefix(script, _owner(state), state)
        if prefix != _NO_MODEL:
            yield path, prefix


def _is_state(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict"


def _owner(call: ast.Call) -> ast.expr:
    """The object whose method this calls."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def _loaded_path(script: Script, call: ast.Call) -> ast.expr | None:
    """The path of `X.load_state_dict(torch.load(PATH)..., strict=False)`, also by a name for what was loaded."""
    strict = argument(call, "strict", 1)
    if not call.args or not isinstance(strict, ast.Constant) or strict.value is not False:
        return None
    state: ast.expr | None = call.args[0]
    while isinstance(state, ast.Subscript):
        state = state.value
    if isinstance(state, ast.Name):
        state = script.only_value(state)
    if isinstance(state, ast.Call) and "torch.load" in script.dotted(state.func):
        return argument(state, "f", 0)
    return None


def _prefix(script: Script, model: ast.expr, at: ast.AST) -> str | None:
    """What a wrapper puts before the names of a model: "" for a plain one; None: not known."""
    if isinstance(model, ast.Attribute):
        return "" if model.attr in ("module", "_orig_mod") else None
    if isinstance(model, ast.Name):
        made = [
            assigned
            for assigned in script.every(ast.Assign)
            if assigned.lineno < getattr(at, "lineno", 0)
            and script.function_of(assigned) is script.function_of(at)
            and any(isinstance(target, ast.Name) and target.id == model.id for target in assigned.targets)
        ]
        return _prefix(script, made[-1].value, made[-1]) if made else None
    if not isinstance(model, ast.Call):
        return None
    names = script.dotted(model.func)
    if wrapped := names & _WRAPPERS.keys():
        return _WRAPPERS[min(wrapped)]
    if any(name.startswith(("torch.optim", "torch.amp", "torch.cuda.amp")) for name in names):
        return _NO_MODEL
    if isinstance(model.func, ast.Attribute) and not names:
        # `net.to(device)`, which gives the model itself.
        return _prefix(script, model.func.value, at) if model.func.attr in _ITSELF else None
    own = {one.name for one in script.every(ast.ClassDef)}
    is_class = isinstance(model.func, ast.Name) and model.func.id in own
    return "" if is_class or any(name.partition(".")[0] in _LIBRARIES for name in names) else None


RULE = Rule(code="K27", page=PAGE, find=find)
