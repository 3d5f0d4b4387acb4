"""K40: the script demands an option --local_rank, which today's launchers do not pass."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.options_in_source import options_of, reads_command_line
from paceline.rules.script import Script, argument, script_of, scripts_of

PAGE = """\
The script demands --local_rank

What it means: `torch.distributed.launch` passed `--local_rank` to each rank until torch 1.x. torchrun, `paceline run` and SageMaker's
  launchers set the variable LOCAL_RANK in its place, and the script requires the option.
Why it matters: argparse ends every rank with code 2 before anything is trained.
What to do: Read the variable: `int(os.environ["LOCAL_RANK"])`. To keep the option, give it that default in place of `required=True`.
Source: torch.distributed.launch documentation: "--local-rank ... read from os.environ['LOCAL_RANK'] instead"; XPixelGroup/BasicSR #626.
"""

_OPTIONS = ("--local_rank", "--local-rank")


def find(before: BeforeRun) -> Iterator[Finding]:
    """The option, if it is required and the job does not pass it."""
    script = script_of(before)
    passed = {word.partition("=")[0] for word in before.arguments} | {f"--{name}" for name in before.hyperparameters}
    if not passed.isdisjoint(_OPTIONS):
        return
    for call in script.methods("add_argument"):
        options = options_of(call)
        is_demanded = not set(options).isdisjoint(_OPTIONS) and _is_required(call) and not script.is_conditional(call)
        if is_demanded and reads_command_line(scripts_of(before)):
            yield script.finding(
                call,
                "K40",
                f"nothing passes {options[0]} to the ranks, and argparse ends each of them with code 2",
                next=f"{script.place(call)}: {_with_default(call, script)}",
                severity=Severity.ERROR,
            )


def _is_required(call: ast.Call) -> bool:
    required = argument(call, "required")
    return isinstance(required, ast.Constant) and required.value is True


def _with_default(call: ast.Call, script: Script) -> str:
    imports = "" if "os" in script.bound else "import os; "
    return f'{imports}default=int(os.environ.get("LOCAL_RANK", 0)) in place of required=True'


RULE = Rule(code="K40", page=PAGE, find=find)
