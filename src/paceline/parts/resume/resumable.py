"""Which loops of a script `paceline run --resume auto` would go on in, as far as its files show, and what hinders it."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paceline.findings import Finding, Severity
from paceline.parts.resume.loops_in_source import diff, loops_to_continue
from paceline.rules.job_facts import SourceFile
from paceline.rules.script import Script, parse

# Classes whose own files have the training loop -> how their own resume is asked for.
_TRAINERS = {
    **dict.fromkeys(
        ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer"),
        'ModelCheckpoint(save_last=True, every_n_train_steps=N) and trainer.fit(model, ckpt_path="last")',
    ),
    **dict.fromkeys(
        ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer", "trl.DPOTrainer"),
        "save_steps in TrainingArguments and trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))",
    ),
    "composer.Trainer": 'save_folder="..." and autoresume=True',
}
# Objects with a `step` that is not the optimizer's.
_OTHER_STEPS = ("sched", "prof", "progress", "env")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True)
class InspectedLoop:
    """A loop that goes on after a restart."""

    file: str
    """The source file, as messages name it."""
    line: int
    """The line in that file, from 1."""
    text: str
    """That line."""
    trains: bool
    """Whether it looks like the training loop: an optimizer steps in it, and in no loop inside it."""
    by_hand: bool
    """Whether the script itself names it with `steps`."""


@dataclass(frozen=True, slots=True)
class ResumeInspection:
    """What the inspection found."""

    loops: tuple[InspectedLoop, ...]
    """In the order of the files and of their text."""
    findings: tuple[Finding, ...]
    """What hinders a resume; those that are errors make it impossible."""
    diffs: tuple[str, ...]
    """Of each file with such loops: as it is, and as it runs."""
    not_judged: tuple[str, ...]
    """Files that are not Python."""


def look_at(files: Sequence[SourceFile]) -> ResumeInspection:
    """Look at the script, which is the first of the files, and at the user's own files that it imports."""
    parsed = [(file, script) for file in files if isinstance(script := parse(file.text, file.path, None), Script)]
    bare = _functions_with_a_bare_step(script for _, script in parsed)
    loops: list[InspectedLoop] = []
    findings: list[Finding] = []
    for file, script in parsed:
        tree = ast.parse(file.text)
        by_hand = [loop for loop in ast.walk(tree) if isinstance(loop, ast.For) and _is_steps(loop.iter)]
        for loop in sorted([*loops_to_continue(tree, file.text), *by_hand], key=lambda loop: loop.lineno):
            line = script.lines[loop.lineno - 1].strip()
            trains = _has_bare_step(loop.body, bare)
            loops.append(InspectedLoop(file.path, loop.lineno, line, trains, loop in by_hand))
        findings += _found(script, bare)
    if not any(loop.trains for loop in loops) and not any(finding.code == "F11" for finding in findings):
        findings.append(_no_training_loop(files))
    return ResumeInspection(
        loops=tuple(loops),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)),
        diffs=tuple(text for file, _ in parsed if (text := diff(file.text, file.path))),
        not_judged=tuple(sorted({file.path for file in files} - {file.path for file, _ in parsed})),
    )


def _found(script: Script, bare: frozenset[str]) -> Iterator[Finding]:
    for node, name in _trainers(script):
        yield script.finding(
            node,
            "F11",
            f"the training loop is in {name.partition('.')[0]}, not in a file of yours: paceline cannot go on in it",
            next=f"its own way to resume: {_TRAINERS[name]}",
            severity=Severity.ERROR,
        )
    for call in script.calls("shutil.rmtree"):
        # While it trains, a script removes what it has written itself, such as an old checkpoint.
        if script.loop_of(call) is None:
            yield script.finding(
                call,
                "F13",
                "a directory is removed: the script would remove it again when it runs from the top after a restart",
                next="remove it before the job; if the script has not made the directory itself, no state is kept behind this call",
            )


def _no_training_loop(files: Sequence[SourceFile]) -> Finding:
    return Finding(
        code="F11",
        severity=Severity.WARNING,
        what=f"{files[0].path}: no loop in which an optimizer steps",
        saw=f"looked for a loop with a call of `.step()` in {', '.join(file.path for file in files[:4])}",
        next="if the loop is there, name it: from paceline.resume import steps; for batch in steps(loader):",
        file=files[0].path,
    )


def _trainers(script: Script) -> Iterator[tuple[ast.AST, str]]:
    """Where such a Trainer, or a class of one, is made or derived."""
    for name in _TRAINERS:
        yield from ((call, name) for call in script.calls(name))
        for node in script.every(ast.ClassDef):
            if any(name in script.dotted(base) for base in node.bases):
                yield node, name


def _functions_with_a_bare_step(scripts: Iterable[Script]) -> frozenset[str]:
    """Names of functions that make a step outside of all of their loops, themselves or through each other."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for script in scripts:
        functions += [*script.every(ast.FunctionDef), *script.every(ast.AsyncFunctionDef)]
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(node.name for node in functions if _has_bare_step(node.body, found))
        if more <= found:
            return found
        found |= more


def _has_bare_step(body: Iterable[ast.stmt], functions: frozenset[str]) -> bool:
    """Whether these statements make a step, loops and functions inside them aside."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_LOOPS, *_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call) and (_is_step(node) or _last_word(node.func) in functions):
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False


def _is_step(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    owner = _last_word(call.func.value).lower()
    return not any(word in owner for word in _OTHER_STEPS)


def _is_steps(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last_word(node.func) == "steps"


def _last_word(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
