"""Print a script that completes the command line of paceline: verbs, options and what stands behind them."""

import argparse
import json

from paceline import cli
from paceline.cli.completion.words import CompletedVerb, Completions, completed_verb
from paceline.option import COLOR, HELP, Option, Verb

VERB = Verb(
    "completion",
    __doc__ or "",
    (
        ("paceline completion bash > ~/.bash_paceline", "then: source ~/.bash_paceline"),
        ("paceline completion zsh > ~/.zfunc/_paceline", "a folder that is in fpath"),
    ),
    (Option("shell", "The shell that reads the script.", choices=("bash", "zsh", "fish"), is_positional=True),),
    page="""\
Verbs, options, the words that an option knows, files, directories and the ids of the runs of this directory are completed. What follows a
script is completed as files. Write the script anew after an upgrade:

```
paceline completion bash > ~/.local/share/bash-completion/completions/paceline
paceline completion zsh > ~/.zfunc/_paceline
paceline completion fish > ~/.config/fish/completions/paceline.fish
```

For bash this needs the package `bash-completion`; without it, write the script anywhere and `source` it in `~/.bashrc`. For zsh, `~/.zfunc`
stands for any folder that is in `fpath` before `compinit` runs.""",
    notes='`--json` prints `{"schema": "paceline.completion/1", "shell": ..., "script": ...}`.',
)
_COMMAND = "paceline"


def run(args: argparse.Namespace) -> int:
    text = script(args.shell)
    if args.json:
        print(json.dumps(completion_facts(args.shell, text)))
    else:
        print(text, end="")
    return 0


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
