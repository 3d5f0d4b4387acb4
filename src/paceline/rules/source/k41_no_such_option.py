"""K41: the job passes a hyperparameter, and the script has no option of that name."""

import ast
import re
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, script_of
from paceline.spelling import nearest

PAGE = """\
A hyperparameter that the script has no option for

What it means: Hyperparameters reach a script as `--NAME VALUE`. The script reads its arguments with argparse, and has no such
  option.
Why it matters: `parse_args` ends every rank with code 2. `parse_known_args`, which SageMaker's examples use, drops the name and its value
  without a word: the job trains with the default.
What to do: Use the option's own name; `-` and `_` differ. A unique beginning of an option is taken by argparse for the option.
Source: argparse documentation, "Partial parsing" and "Argument abbreviations"; docs/contract.md.
"""

_OPTION = re.compile(r"""add_argument\(\s*(?:["']-\w["']\s*,\s*)?["'](--[\w.-]+)["']""")
# Whoever reads these may take any name.
_OTHER_WAYS = re.compile(
    r"SM_HPS|SM_HP_|SM_USER_ARGS|SM_TRAINING_ENV|hyperparameters\.json|sys\.argv|argparse_dataclass|HfArgumentParser|\b(?:click|fire|tyro|hydra"
    r"|absl|typer|jsonargparse|docopt|configargparse|simple_parsing|omegaconf|plac|clize|gflags)\b|sagemaker_training|add_arguments?\(\s*(?!["
    r"""'"]|\s)"""
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such hyperparameter: with an error if the parser is strict, else if an option with nearly that name is there."""
    script = script_of(before)
    texts = [before.script or "", *(file.text for file in before.imported)]
    if (
        not before.hyperparameters
        or not any("argparse" in text for text in texts)
        or any(map(_OTHER_WAYS.search, texts))
    ):
        return
    options = {option for text in texts for option in _OPTION.findall(text)}
    is_lenient = any("parse_known" in text for text in texts)
    for name in before.hyperparameters:
        option = f"--{name}"
        if option in options or sum(one.startswith(option) for one in options) == 1:
            continue
        near = nearest(option, options, 0.8)
        if near is not None or not is_lenient:
            yield script.finding(
                _parse_call(script),
                "K41",
                f"the job passes {option}, and the script has no such option: "
                + ("parse_known_args drops it" if is_lenient else "argparse ends each rank with code 2"),
                next=f"{near} is there"
                if near is not None
                else f"add_argument({option!r}), or leave the hyperparameter out",
                severity=Severity.WARNING if is_lenient else Severity.ERROR,
            )


def _parse_call(script: Script) -> ast.AST:
    """The call that reads the arguments, or the first statement where another file reads them."""
    for call in script.every(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("parse_"):
            return call
    return next(script.every(ast.Call), ast.Pass(lineno=1, col_offset=0))


RULE = Rule(code="K41", page=PAGE, find=find)
