"""The script that completes the command line of paceline: verbs, options and what stands behind them."""

from paceline import cli
from paceline.cli.completion.words import CompletedVerb, Completions, completed_verb
from paceline.option import COLOR, HELP, Option

_COMMAND = "paceline"


def script(shell: str) -> str:
    """The completion script of one shell."""
    from paceline.cli.completion.bash import bash_script
    from paceline.cli.completion.fish import fish_script
    from paceline.cli.completion.zsh import zsh_script

    made = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    names = _names()
    return made[shell](_completed(names), names)


def _completed(names: dict[str, list[str]]) -> list[CompletedVerb]:
    """The command itself, whose operands are the verbs, and every verb."""
    command = CompletedVerb(
        name=_COMMAND,
        about="",
        rows=(COLOR, HELP, Option("version", "Print the version.", letter="V")),
        operand=Completions(words=tuple(cli.all_verbs())),
        script_place=0,
    )
    return [
        command,
        *(completed_verb(cli.verb_module(verb).VERB, about, names) for verb, about in cli.all_verbs().items()),
    ]


def _names() -> dict[str, list[str]]:
    """The names that each metavar with a list of names stands for."""
    from paceline.catalog.lookup import machine_types
    from paceline.rules import pages

    return {"CODE": sorted(pages()), "VERB": list(cli.all_verbs()), "MACHINE": [one.name for one in machine_types()]}


def completion_facts(shell: str, script: str) -> dict[str, str]:
    """The script for a program."""
    return {"schema": "paceline.completion/1", "shell": shell, "script": script}
