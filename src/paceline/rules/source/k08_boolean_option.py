"""K08: a hyperparameter that the script's argparse reads as the opposite of what was passed, or not at all."""

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise

from paceline.contract.hyperparameters import as_delivered, to_arguments
from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun
from paceline.rules.options_in_source import options_of
from paceline.rules.script import Script, argument, constant_text, script_of

PAGE = """\
A boolean hyperparameter that argparse reads otherwise

What it means: The job passes a hyperparameter that the script reads with `type=bool` or with `action="store_true"`.
  Every hyperparameter reaches a script with a value after it: `--flag False`.
Why it matters: bool("False") is True, as for every text except the empty one. The job trains with the opposite of
  what was requested, without an error. `store_true` takes no value, so parse_args() ends the script with
  "unrecognized arguments: False", code 2.
What to do: The option under "next" accepts both spellings that arrive, True and true. `action="store_true"` is right
  for an option that is only typed by hand. Then pass it without a value, as an argument of the script and not as a
  hyperparameter.
Source: argparse documentation, "type"; aws/sagemaker-python-sdk issue 4247; docs/contract.md.
"""

_YES = ("true", "1", "yes", "on", "y", "t")
_NO = ("false", "0", "no", "off", "n", "f", "none", "null")
_WITHOUT_VALUE = ("store_true", "store_false", "BooleanOptionalAction")
_READS = "type=lambda text: text.lower() == 'true'"


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such option that the job passes."""
    script = script_of(before)
    passed = _passed(before)
    if not passed:
        return
    for call in script.methods("add_argument"):
        for option in (one for one in options_of(call) if one in passed):
            yield from _judged(script, call, option, passed[option])


def _judged(script: Script, call: ast.Call, option: str, value: str) -> Iterator[Finding]:
    kind = argument(call, "type")
    if isinstance(kind, ast.Name) and kind.id == "bool" and "bool" not in script.bound and not _own_bool(script):
        inverted = value.lower() in _NO
        if value:
            yield script.finding(
                call,
                "K08",
                f"{option} {_shown(value)} arrives as True: bool() of any text but the empty one is True"
                + ("" if inverted else "; False would too"),
                next=f"{script.place(call)}: {_READS} in place of type=bool",
                severity=Severity.ERROR if inverted else Severity.WARNING,
            )
    elif _takes_no_value(call):
        refused = _is_strict(script)
        if refused or value.lower() in _NO:
            yield script.finding(
                call,
                "K08",
                f"{option} takes no value, and the job passes {option} {_shown(value)}: "
                + ("argparse ends the script with code 2" if refused else "the value is not read"),
                next=f"{script.place(call)}: {_READS} in place of the action",
                severity=Severity.ERROR,
            )


def _shown(value: str) -> str:
    """The text if it means yes or no; otherwise nothing of it, because it could be a secret."""
    return value if value.lower() in (*_YES, *_NO) else "***"


def _passed(before: BeforeRun) -> Mapping[str, str]:
    """Option -> the text that follows it in the script's argv."""
    found: dict[str, str] = {}
    for word, following in pairwise((*before.arguments, "-")):
        option, equals, value = word.partition("=")
        if option.startswith("-") and equals:
            found[option] = value
        elif option.startswith("-") and not following.startswith("-"):
            found[option] = following
    words = to_arguments(as_delivered(before.hyperparameters, before.profile), before.profile)
    return found | dict(zip(words[::2], words[1::2], strict=True))


def _takes_no_value(call: ast.Call) -> bool:
    action = argument(call, "action")
    name = action.attr if isinstance(action, ast.Attribute) else action.id if isinstance(action, ast.Name) else None
    return (constant_text(action) or name) in _WITHOUT_VALUE


def _is_strict(script: Script) -> bool:
    """Whether every parser refuses an unknown word: the script uses only parse_args, and no positional argument would accept the word."""
    is_lenient = any(script.methods("parse_known_args", "parse_known_intermixed_args", "add_subparsers"))
    has_positional = any(call.args and not options_of(call) for call in script.methods("add_argument"))
    return any(script.methods("parse_args")) and not is_lenient and not has_positional


def _own_bool(script: Script) -> bool:
    """Whether a parser has its own definition of `bool`."""
    return any(
        isinstance(one, ast.Name) and one.id == "bool" for call in script.methods("register") for one in call.args
    )


RULE = Rule(code="K08", page=PAGE, find=find)
