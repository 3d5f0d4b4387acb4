"""K07: the script treats SM_HOSTS or a similar variable as a number or a list, but it is a text."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
A list in a variable, used as if it were a number

What it means: SM_HOSTS, SM_CHANNELS and similar variables hold JSON, such as ["algo-1", "algo-2"]; SM_CURRENT_HOST
  holds a name. The script converts the text to a number (int), counts its characters (len), or uses one of its
  characters as a host.
Why it matters: int() raises ValueError on every rank. len() gives 10 for one host and 20 for two: a wrong world size,
  and a start that waits for ranks that do not exist. Published examples contain both.
What to do: Use the expression under "next": len(json.loads(os.environ["SM_HOSTS"])) is the number of hosts. Under a
  launcher that starts one rank for each GPU, WORLD_SIZE is the number of ranks.
Source: sagemaker-training-toolkit, environment.py, to_env_vars; docs/contract.md.
"""

# Variables that hold a JSON list.
_LISTS: tuple[str | None, ...] = (
    "SM_HOSTS",
    "SM_CHANNELS",
    "SM_USER_ARGS",
    "SM_INSTANCE_GROUPS",
    "SM_DISTRIBUTION_INSTANCE_GROUPS",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS",
)
_NUMBERS = ("int", "float")
_CHARACTERS = ("list", "tuple", "set", "sorted", "enumerate", "reversed")


def find(before: BeforeRun) -> Iterator[Finding]:
    """Every place at which such a text is used as a number or a list."""
    script = script_of(before)
    yield from _calls(script)
    yield from _characters(script)
    yield from _argparse_defaults(script)


def _calls(script: Script) -> Iterator[Finding]:
    for call in script.every(ast.Call):
        if not isinstance(call.func, ast.Name) or len(call.args) != 1 or call.func.id in script.bound:
            continue
        function, variable = call.func.id, script.variable(call.args[0])
        if function in _NUMBERS and variable in (*_LISTS, "SM_CURRENT_HOST"):
            if not script.is_caught(call, "ValueError"):
                caught = script.is_caught(call, "Exception", "BaseException", "")
                yield _raises(script, call, variable, Severity.WARNING if caught else script.severity(call))
        elif function == "len" and variable in _LISTS and not _asks_whether_empty(script, call):
            what = f"len() of the raw {variable} counts its characters, not its entries"
            yield _finding(script, call, what, f"len({_loads(variable)})", Severity.WARNING)
        elif function in _CHARACTERS and variable in _LISTS:
            what = f"{function}() of the raw {variable} iterates over its characters, not its entries"
            yield _finding(script, call, what, f"{function}({_loads(variable)})", Severity.WARNING)


def _raises(script: Script, node: ast.AST, variable: str | None, severity: Severity) -> Finding:
    if variable == "SM_CURRENT_HOST":
        what = "SM_CURRENT_HOST is a name such as algo-1: converting it to a number raises ValueError"
        return _finding(script, node, what, f'{_loads("SM_HOSTS")}.index(os.environ["SM_CURRENT_HOST"])', severity)
    what = f"{variable} is a JSON list, not a number: this raises ValueError"
    return _finding(script, node, what, f"len({_loads(variable)})", severity)


def _characters(script: Script) -> Iterator[Finding]:
    loops: list[ast.For | ast.comprehension] = [*script.every(ast.For), *script.every(ast.comprehension)]
    for source in (loop.iter for loop in loops):
        if (variable := script.variable(source)) in _LISTS:
            what = f"the loop iterates over the characters of the raw {variable}, not over its entries"
            yield _finding(script, source, what, f"for ... in {_loads(variable)}", Severity.WARNING)
    for part in script.every(ast.Subscript):
        if (variable := script.variable(part.value)) in _LISTS and not isinstance(part.slice, ast.Slice):
            what = f"this is one character of the raw {variable}, not one entry"
            yield _finding(script, part, what, f"{_loads(variable)}[{ast.unparse(part.slice)}]", Severity.WARNING)
    for call in script.methods("index"):
        if isinstance(call.func, ast.Attribute):
            if (variable := script.variable(call.func.value)) in _LISTS:
                what = f"this counts the characters of the raw {variable} before the text, not its entries"
                yield _finding(script, call, what, f"{_loads(variable)}.index(...)", Severity.WARNING)


def _argparse_defaults(script: Script) -> Iterator[Finding]:
    """Finds such a default of an argparse option: argparse passes a text default to `type`, as if it had been typed."""
    for call in script.methods("add_argument"):
        kind, variable = argument(call, "type"), script.variable(argument(call, "default"))
        if isinstance(kind, ast.Name) and kind.id not in script.bound:
            if kind.id in _NUMBERS and variable in (*_LISTS, "SM_CURRENT_HOST"):
                yield _raises(script, call, variable, script.severity(call))
            elif kind.id == "list" and variable in _LISTS:
                what = f"type=list makes the raw {variable} a list of characters"
                yield _finding(
                    script, call, what, f"type=json.loads, default=os.environ[{variable!r}]", Severity.WARNING
                )


def _asks_whether_empty(script: Script, call: ast.Call) -> bool:
    above = script.parents.get(call)
    if isinstance(above, ast.Compare):
        other = [part for part in (above.left, *above.comparators) if part is not call]
        return all(isinstance(part, ast.Constant) and part.value == 0 for part in other)
    return isinstance(above, ast.If | ast.IfExp | ast.While | ast.UnaryOp | ast.BoolOp | ast.Assert)


def _loads(variable: str | None) -> str:
    return f'json.loads(os.environ["{variable}"])'


def _finding(script: Script, node: ast.AST, what: str, right: str, severity: Severity) -> Finding:
    return script.finding(node, "K07", what, next=right, severity=severity)


RULE = Rule(code="K07", page=PAGE, find=find)
