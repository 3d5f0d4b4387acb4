"""Print the verbs, the options of a verb, or the page of a code."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from paceline import cli
from paceline.cli.help_text import rows_text
from paceline.cli.moved import moved
from paceline.cli.terminal import ascii_only, room, use_color
from paceline.errors import UsageError
from paceline.option import Option, Verb

SCHEMA = "paceline.explain/1"
VERB = Verb(
    "help",
    __doc__ or "",
    (
        ("paceline help U04", "what to do about a port in use"),
        ("paceline help logs", "the options of a verb; the same as paceline logs --help"),
    ),
    (
        Option(
            "about",
            "A code, as printed in error[CODE]; a verb; codes, for every code with its title; or keys, for every key of run --set.",
            "CODE|VERB|codes|keys",
            default_text="the list of verbs",
            count="?",
            is_positional=True,
        ),
        Option(
            "completion",
            "Print a script that completes the command line of paceline in this shell.",
            choices=("bash", "zsh", "fish"),
        ),
    ),
    page="""\
Completed are verbs, options, the words that an option knows, files, directories and the ids of the runs of this directory. What follows a
script is completed as files. Write the script anew after an upgrade:

```
paceline help --completion bash > ~/.local/share/bash-completion/completions/paceline
paceline help --completion zsh > ~/.zfunc/_paceline
paceline help --completion fish > ~/.config/fish/completions/paceline.fish
```

For bash this needs the package `bash-completion`; without it, write the script anywhere and `source` it in `~/.bashrc`. For zsh, `~/.zfunc`
stands for any folder that is in `fpath` before `compinit` runs.""",
    notes="`--json` prints `paceline.explain/1`: of a code [its page](schemas.md#pacelineexplain1), else verbs, codes and keys; "
    'with `--completion` `{"schema": "paceline.completion/1", "shell": ..., "script": ...}`.',
)


def run(args: argparse.Namespace) -> int:
    """Print what was asked about; of a code that has gone, the page of the code that says it now.

    Raises:  UsageError U01: there is no such code or verb; U03: a completion script is about all of them
    """
    if args.completion:
        return _print_completion(args)
    if args.about in cli.all_verbs():
        return cli.main([args.about, "--help"])
    if args.about not in (None, "codes", "keys"):
        return _print_page(args)
    if args.about is None and not args.json:
        print(cli.overview(), end="")
        return 0
    from paceline.cli.job.options import VERB as RUN

    if args.about == "keys" and not args.json:
        print(rows_text(RUN.keys), end="")
        return 0
    # The pages take longer to load than all else that the list of verbs needs.
    from paceline.rules import pages
    from paceline.views.page import code_list

    if args.json:
        print(json.dumps(names_facts(cli.all_verbs(), pages(), RUN.keys)))
    else:
        print(code_list(pages(), width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
    return 0


def _print_completion(args: argparse.Namespace) -> int:
    from paceline.cli.completion.script import completion_facts, script

    if args.about is not None:
        raise UsageError(
            "U03", f"--completion prints a script, and no help for {args.about!r}", next=f"leave {args.about} out"
        )
    text = script(args.completion)
    print(json.dumps(completion_facts(args.completion, text)) + "\n" if args.json else text, end="")
    return 0


def _print_page(args: argparse.Namespace) -> int:
    from paceline.rules import page_of
    from paceline.rules.gone_codes import SAID_NOW
    from paceline.views.page import page_text

    asked = args.about.strip().upper()
    code = SAID_NOW.get(asked, asked)
    page = page_of(code)
    if page is None:
        near = _near(args.about)
        raise UsageError(
            "U01",
            f"{args.about!r} is no verb, and no code that has a page",
            saw=f"the nearest one is {near}" if near else "codes are a letter and two digits",
            next=f"paceline help {near}" if near else "paceline help",
        )
    if args.json:
        print(json.dumps(page_facts(code, page, gone=asked if asked != code else None)))
    else:
        if asked != code:
            print(f"{asked} is no longer used: {code} says it now.\n")
        print(page_text(code, page, color=use_color(args.color, sys.stdout)))
    return 0


def _near(word: str) -> str | None:
    """The code or the verb that was meant: C01 for C1, ps for prune."""
    from paceline.rules import page_of, pages
    from paceline.spelling import nearest

    code = word.strip().upper()
    full = f"{code[:1]}0{code[1:]}"
    if len(code) == 2 and page_of(full) is not None:
        return full
    return nearest(code, pages()) or next(iter(moved(word, ())), None) or nearest(word, cli.all_verbs())


def names_facts(verbs: Mapping[str, str], pages: Mapping[str, str], keys: Iterable[Option]) -> dict[str, Any]:
    """Every verb and every key with what it does, and every code with the title of its page, for a program."""
    from paceline.views.page import page_sections

    codes = {code: page_sections(pages[code])["title"] for code in sorted(pages)}
    return {"schema": SCHEMA, "verbs": dict(verbs), "codes": codes, "keys": {row.name: row.help for row in keys}}


def page_facts(code: str, page: str, gone: str | None = None) -> dict[str, Any]:
    """One page for a program. `gone`: the code that was asked for, if `code` says it now."""
    from paceline.views.page import page_sections

    return {"schema": SCHEMA, "code": code, "gone": gone, **page_sections(page)}
