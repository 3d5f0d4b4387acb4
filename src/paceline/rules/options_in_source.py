"""The options that a script gives to argparse, and whether argparse reads the words that a job passes."""

import ast
from collections.abc import Sequence

from paceline.rules.script import Script, argument, constant_text

PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")


def options_of(call: ast.Call) -> list[str]:
    """The options of one `add_argument`."""
    return [text for one in call.args if (text := constant_text(one)) is not None and text.startswith("-")]


def reads_command_line(scripts: Sequence[Script]) -> bool:
    """Whether argparse certainly gets the words of the command line, as they are."""
    given = [
        one
        for script in scripts
        for call in script.methods(*PARSES)
        for one in (*call.args, *(word.value for word in call.keywords if word.arg != "namespace"))
    ]
    # A name is most often the None of `def main(argv=None)`.
    return all(isinstance(one, ast.Name) for one in given) and not any(
        part.attr == "argv" for script in scripts for part in script.every(ast.Attribute)
    )


def known_options(scripts: Sequence[Script]) -> frozenset[str]:
    """Every option that the parsers of these files take; empty if others may give them more."""
    made = [call for script in scripts for call in script.calls("argparse.ArgumentParser")]
    added = [call for script in scripts for call in script.methods("add_argument")]
    named = [one for script in scripts for one in script.every(ast.Attribute) if one.attr == "add_argument"]
    is_certain = (
        made
        and not any(argument(call, "parents") or any(word.arg is None for word in call.keywords) for call in made)
        and len(named) == len(added)
        and all(constant_text(one) is not None for call in added for one in call.args)
        and not any(_takes_the_rest(call) for call in added)
        and not _is_shared(scripts, added)
    )
    if not is_certain:
        return frozenset()
    options = {option for call in added for option in options_of(call)}
    switches = {option for call in added if "BooleanOptional" in _text(call, "action") for option in options_of(call)}
    return frozenset(options | {f"--no-{option.removeprefix('--')}" for option in switches} | {"-h", "--help"})


def _takes_the_rest(call: ast.Call) -> bool:
    return _text(call, "nargs").endswith(("REMAINDER", "'...'"))


def _text(call: ast.Call, name: str) -> str:
    value = argument(call, name)
    return ast.unparse(value) if value is not None else ""


def _is_shared(scripts: Sequence[Script], added: Sequence[ast.Call]) -> bool:
    """Whether code that is not in these files may add options: a parser is imported, or a function from elsewhere gets it."""
    own = {function.name for script in scripts for function in script.every(ast.FunctionDef)}
    used = [*added, *(call for script in scripts for call in script.methods(*PARSES))]
    parsers = {ast.unparse(call.func.value) for call in used if isinstance(call.func, ast.Attribute)}
    return any(
        not parsers.isdisjoint(script.origins)
        or any(
            ast.unparse(call.func).rpartition(".")[2] not in own
            for call in script.every(ast.Call)
            if any(
                isinstance(one, ast.Name | ast.Attribute) and ast.unparse(one) in parsers
                for one in (*call.args, *(word.value for word in call.keywords))
            )
        )
        for script in scripts
    )
