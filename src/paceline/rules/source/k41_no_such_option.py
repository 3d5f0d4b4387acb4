"""K41: the job passes a hyperparameter, and the script has no option of that name."""

import ast
import re
from collections.abc import Iterator

from paceline.contract.hyperparameters import as_delivered, to_arguments
from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.options_in_source import PARSES, known_options, reads_command_line
from paceline.rules.script import script_of, scripts_of
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

# Whoever reads these may take any name.
_OTHER_WAYS = re.compile(
    r"SM_HPS|SM_HP_|SM_USER_ARGS|SM_TRAINING_ENV|hyperparameters\.json|argparse_dataclass|HfArgumentParser|\b(?:click|fire|tyro|hydra|absl"
    r"|typer|jsonargparse|docopt|configargparse|simple_parsing|omegaconf|plac|clize|gflags)\b|sagemaker_training|add_arguments\("
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such hyperparameter: with an error if the parser is strict, else if an option with nearly that name is there."""
    script = script_of(before)
    # Of another file that reads the arguments, the finding is that file's.
    parses = list(script.methods(*PARSES))
    if not before.hyperparameters or not parses or any(map(_OTHER_WAYS.search, before.texts)):
        return
    scripts = scripts_of(before)
    options = known_options(scripts)
    if not options or not reads_command_line(scripts):
        return
    is_lenient = any("known" in ast.unparse(call.func) for one in scripts for call in one.methods(*PARSES))
    words = to_arguments(as_delivered(before.hyperparameters, before.profile), before.profile)
    for option in words[::2]:
        if option in options or sum(one.startswith(option) for one in options) == 1:
            continue
        near = nearest(option, options, 0.8)
        if near is not None or not is_lenient:
            yield script.finding(
                parses[0],
                "K41",
                f"the job passes {option}, and the script has no such option: "
                + ("parse_known_args drops it" if is_lenient else "argparse ends each rank with code 2"),
                next=f"{near} is there"
                if near is not None
                else f"add_argument({option!r}), or leave the hyperparameter out",
                severity=Severity.WARNING if is_lenient else Severity.ERROR,
            )


RULE = Rule(code="K41", page=PAGE, find=find)
