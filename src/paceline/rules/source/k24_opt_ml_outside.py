"""K24: a path below /opt/ml in a job that has no such directory."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, constant_text, script_of

PAGE = """\
A path of SageMaker's containers outside of one

What it means: The script names a directory below /opt/ml itself. Only a container of SageMaker has it; elsewhere the job's tree lies in
  a directory of its own.
Why it matters: The data is not found (FileNotFoundError on every rank), or the model is written where nobody fetches it.
What to do: Read the variable under "next", which is right in the container too. Or run with `--local-hosts 1 --set opt_ml=true`: the job
  then sees its own tree at /opt/ml, without root where the machine allows user namespaces. Estimators do this for `local` by themselves.
  A path that is only the default of os.environ.get or of an argument that the job gives is not reported.
Source: sagemaker-training-toolkit, environment.py; docs/contract.md.
"""

_READERS = ("os.getenv", "os.environ.get")
_VARIABLES = (
    ("/opt/ml/input/data/", "SM_CHANNEL_{}"),
    ("/opt/ml/input/data", "SM_INPUT_DIR"),
    ("/opt/ml/model", "SM_MODEL_DIR"),
    ("/opt/ml/output/data", "SM_OUTPUT_DATA_DIR"),
    ("/opt/ml/output", "SM_OUTPUT_DIR"),
    ("/opt/ml/checkpoints", "SAGEMAKER_BASE_DIR"),
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such path that the script would use."""
    if before.engine == "sagemaker" or before.has_opt_ml:
        return
    script = script_of(before)
    for node in script.every(ast.Constant):
        text = constant_text(node) or ""
        if text.startswith("/opt/ml/") and not _is_spare(script, node, before.arguments):
            variable = _variable(text)
            yield script.finding(
                node,
                "K24",
                f"there is no {text} in this job",
                next=f'os.environ["{variable}"]'
                if variable
                else "--local-hosts 1 --set opt_ml=true, or a directory of your own",
            )


def _is_spare(script: Script, node: ast.Constant, arguments: tuple[str, ...]) -> bool:
    """Whether something overrides the path: a variable that is set, or an argument that is given. A docstring is no path."""
    above = script.parents.get(node)
    if isinstance(above, ast.Expr | ast.Compare):
        return True
    call = script.parents.get(above) if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call):
        return False
    if script.dotted(call.func) & set(_READERS):
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and argument(call, "default") is node:
        options = {constant_text(one) for one in call.args}
        return any(word.partition("=")[0] in options for word in arguments)
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("startswith", "exists", "isdir", "isfile")


def _variable(path: str) -> str | None:
    for prefix, variable in _VARIABLES:
        if path.startswith(prefix):
            channel = path.removeprefix(prefix).partition("/")[0].upper() if "{}" in variable else ""
            if "{}" not in variable or channel:
                return variable.format(channel) if variable != "SAGEMAKER_BASE_DIR" else None
    return None


RULE = Rule(code="K24", page=PAGE, find=find)
