"""The estimators that a script or a notebook builds, found by their calls and checked as if the job were submitted. Nothing is executed."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.parts.engines.base import ENGINES
from paceline.parts.sagemaker.estimator import model_trainer_parts as parts
from paceline.parts.sagemaker.estimator.arguments import accepted, arguments_of
from paceline.parts.sagemaker.estimator.code import check_code
from paceline.parts.sagemaker.estimator.job import JobSpec, wishes_of
from paceline.parts.sagemaker.estimator.model_trainer import ModelTrainer
from paceline.parts.sagemaker.estimator.preflight import before_of_job
from paceline.rules.job_facts import checks_of
from paceline.rules.script import Script, parse
from paceline.rules.sources import read_source

_TRAINER = "ModelTrainer"
_CLASSES = ("Estimator", "PyTorch", "TensorFlow", _TRAINER)
_PARTS = (
    parts.SourceCode, parts.Compute, parts.Torchrun, parts.MPI, parts.InputData, parts.StoppingCondition, parts.OutputDataConfig,
    parts.CheckpointConfig, parts.Networking,
)  # fmt: skip
_PART_OF_NAME = {part.__name__: part for part in _PARTS}
_PACKAGES = ("sagemaker", "paceline")
# What a cell has that is not Python: magics of IPython, commands for a shell, help; also behind `name =`.
_NOT_PYTHON = re.compile(r"^([ \t]*)(\w[\w, ]*=[ \t]*)?(?:[%!?](?:.*\\\n)*.*|\w[\w.]*\?[ \t]*)$", re.MULTILINE)
_OTHER_LANGUAGE = re.compile(r"\s*%%(?!(?:time|timeit|capture|prun)\b)")
_A_ROLE = "arn:aws:iam::000000000000:role/not-known-here"
_MOST_NOTEBOOK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SourceCell:
    """A piece of source text."""

    path: str
    """As messages name it: "train.py", "nb.ipynb cell 3"."""
    text: str
    """Python, without the lines that are not."""


@dataclass(frozen=True, slots=True)
class FoundEstimator:
    """A call that builds an estimator."""

    class_name: str
    """Estimator, PyTorch, TensorFlow or ModelTrainer."""
    package: str
    """sagemaker or paceline."""
    place: str
    """As messages name it, "train.py:12"."""
    values: Mapping[str, Any]
    """Arguments whose values the source has."""
    unknown: tuple[str, ...]
    """Arguments whose values are known only when the source runs."""

    @property
    def script(self) -> str | None:
        """The script of its job, as far as the source has it."""
        return self.values.get("entry_point") or getattr(self.values.get("source_code"), "entry_script", None)


def cells_of(path: Path, name: str) -> list[SourceCell]:
    """The source text of a script, or of the code cells of a notebook.

    Raises:  UsageError U02: the notebook cannot be read
    """
    if path.suffix != ".ipynb":
        return [SourceCell(name, read_source(path) or "")]
    try:
        if path.stat().st_size > _MOST_NOTEBOOK_BYTES:
            raise ValueError(f"larger than {_MOST_NOTEBOOK_BYTES >> 20} MiB")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [
            (number, "".join(cell["source"])) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            "U02", f"{name} is no notebook that can be read", saw=str(error)[:200], next=f"python3 -m json.tool {name}"
        ) from None
    return [SourceCell(f"{name} cell {number}", _python(text)) for number, text in code]


def _python(text: str) -> str:
    """The Python of a cell, line for line."""
    if _OTHER_LANGUAGE.match(text):
        return ""
    # A line of Python may begin with % too, inside brackets.
    return text if isinstance(parse(text, "", None), Script) else _NOT_PYTHON.sub(_nothing, text)


def _nothing(line: re.Match[str]) -> str:
    return f"{line[1]}{f'{line[2]}None' if line[2] else 'pass'}" + "\n" * line[0].count("\n")


def estimators_in(cells: Sequence[SourceCell]) -> list[FoundEstimator]:
    """Each call of a class of the SageMaker SDK, or of paceline's, that builds an estimator. Later cells know the names of earlier ones."""
    scripts = [script for cell in cells if isinstance(script := parse(cell.text, cell.path, None), Script)]
    classes = {name: known for script in scripts for name, known in _imported(script)}
    bound: dict[str, ast.expr | None] = {}
    for script in scripts:
        for assigned in script.every(ast.Assign):
            for target in assigned.targets:
                if isinstance(target, ast.Name):
                    # A name that is bound twice may have either value.
                    bound[target.id] = None if target.id in bound else assigned.value
    found = []
    for script in scripts:
        for call in script.every(ast.Call):
            known = _class_of(script, call.func, classes)
            if known is not None:
                found.append(_estimator(script, call, *known, bound))
    return found


def _imported(script: Script) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names of such classes -> the package and the class."""
    for node in script.every(ast.ImportFrom):
        package = (node.module or "").partition(".")[0]
        for alias in node.names:
            if package in _PACKAGES and alias.name in _CLASSES:
                yield alias.asname or alias.name, (package, alias.name)


def _class_of(script: Script, function: ast.expr, classes: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    if isinstance(function, ast.Name):
        return classes.get(function.id) if function.id not in script.bound else None
    for name in script.dotted(function):
        package, _, rest = name.partition(".")
        if package in _PACKAGES and rest.rpartition(".")[2] in _CLASSES:
            return package, rest.rpartition(".")[2]
    return None


def _estimator(
    script: Script, call: ast.Call, package: str, kind: str, bound: Mapping[str, ast.expr | None]
) -> FoundEstimator:
    values: dict[str, Any] = {}
    unknown: list[str] = []
    given: list[tuple[str, ast.expr]] = [*zip(arguments_of(kind), call.args, strict=False)]
    if any(isinstance(one, ast.Starred) for one in call.args):
        given, unknown = [], ["**"]
    for name, node in (*given, *((word.arg or "**", word.value) for word in call.keywords)):
        try:
            value = _value(node, bound)
            values.update(**(value if name == "**" else {name: value}))
        except (TypeError, ValueError, UsageError):
            unknown.append(name)
    if "instance_groups" in unknown:
        unknown += ["instance_type", "instance_count"]
    return FoundEstimator(kind, package, script.place(call), values, tuple(unknown))


def _value(node: ast.expr, bound: Mapping[str, ast.expr | None], depth: int = 4) -> Any:
    """The value of an expression of literals, and of names that are bound once, to such.

    Raises:  ValueError, TypeError: it is another expression; UsageError: a part of a ModelTrainer with a field that it does not have
    """
    if isinstance(node, ast.Name) and depth:
        value = bound.get(node.id)
        if value is None:
            raise ValueError(node.id)
        return _value(value, bound, depth - 1)
    if isinstance(node, ast.Dict) and depth and all(key is not None for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key, bound, depth - 1): _value(one, bound, depth - 1) for key, one in pairs if key is not None}
    if isinstance(node, ast.List | ast.Tuple) and depth:
        elements = [_value(one, bound, depth - 1) for one in node.elts]
        return elements if isinstance(node, ast.List) else tuple(elements)
    if isinstance(node, ast.Call) and depth and not node.args and (part := _PART_OF_NAME.get(_last_name(node.func))):
        return part(**{word.arg or "": _value(word.value, bound, depth - 1) for word in node.keywords})
    return ast.literal_eval(node)


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def verdicts_of_estimator(found: FoundEstimator, directory: Path) -> tuple[Verdict, ...]:
    """The verdicts on the job of one estimator, which begins in `directory`; one that is refused has the refusals alone."""
    gone = _gone_in_v3(found)
    refused: list[UsageError] = []
    verdicts: tuple[Verdict, ...] = ()
    # A ModelTrainer says only with the rest of its arguments where its code is.
    if found.class_name != _TRAINER and not {"source_dir", "git_config"} & set(found.unknown):
        try:
            check_code(found.values, directory)
        except UsageError as error:
            refused.append(error)
    try:
        spec = _spec_of(found)
        if found.class_name == _TRAINER:
            check_code(spec.values, directory)
        verdicts = () if refused else checks_of(before_of_job(spec, directory))
    except UsageError as error:
        refused += [] if error.what in [one.what for one in refused] else [error]
    if refused:
        return *gone, *(_refusal(error, found) for error in refused)
    placed = (
        replace(verdict, findings=tuple(_at(finding, found.place) for finding in verdict.findings))
        for verdict in verdicts
    )
    return *gone, *placed


def _spec_of(found: FoundEstimator) -> JobSpec:
    """The checked arguments. A region and an image are asked for when the job is submitted.

    Raises:  UsageError U01, U31 and others, depending on the argument
    """
    given = {"role": _A_ROLE, **found.values}
    given.pop("sagemaker_session", None)
    if found.class_name == _TRAINER:
        # Its defaults are another job's.
        for name in ("**", "source_code", "compute", "distributed"):
            if name in found.unknown:
                raise UsageError("U01", f"{name} is known only when the source runs")
        return ModelTrainer(**given)._wishes()
    values, _ = accepted(found.class_name, given)
    return wishes_of(found.class_name, values, ENGINES)


def _refusal(error: UsageError, found: FoundEstimator) -> Verdict:
    if _may_be_given(error, found.unknown):
        return Verdict(error.code, Judgement.NOT_JUDGED, missing=f"{', '.join(found.unknown)} at {found.place}")
    finding = Finding(code=error.code, severity=Severity.ERROR, what=error.what, saw=error.saw, next=error.next)
    return Verdict(error.code, Judgement.FIRED, (_at(finding, found.place),))


def _gone_in_v3(found: FoundEstimator) -> tuple[Verdict, ...]:
    if found.package != "sagemaker" or found.class_name == _TRAINER:
        return ()
    finding = Finding(
        code="K10",
        severity=Severity.NOTICE,
        what=f"{found.class_name} of the SageMaker SDK v2 is gone in v3",
        saw=f"{found.place}: the import fails there",
        next=f"from paceline.estimator import {found.class_name}",
    )
    return (Verdict("K10", Judgement.FIRED, (finding,)),)


def _may_be_given(error: UsageError, unknown: Sequence[str]) -> bool:
    """Whether the refusal is about an argument whose value is not known."""
    return any(name == "**" or name in f"{error.what} {error.saw}" for name in unknown)


def _at(finding: Finding, place: str) -> Finding:
    """With the estimator's own place where a finding is about no line of a file."""
    return finding if finding.file else replace(finding, saw=f"{place}: {finding.saw}")
