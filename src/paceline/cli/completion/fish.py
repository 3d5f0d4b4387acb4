"""The completion script for fish, 3.0 or newer."""

from collections.abc import Iterable, Sequence

from paceline.cli.completion.words import CompletedVerb, Completions, Kind, completions_of
from paceline.cli.option import Option

_HEAD = """\
# Completion of paceline for fish; `paceline completion fish` writes it.

# Succeeds where the verb is this one; without an argument, where there is no verb yet.
function __paceline_verb
    set -l words (commandline -opc)
    set -e words[1]
    while string match -q -- '--color*' $words[1]
        set -l spelled $words[1]
        set -e words[1]
        test $spelled = --color; and set -e words[1]
    end
    test "$words[1]" = "$argv[1]"
end

function __paceline_runs
    set -l home .paceline
    set -q PACELINE_HOME; and set home $PACELINE_HOME
    command ls $home/runs 2>/dev/null
end

complete -c paceline -f
"""
_LOOKED_UP = {
    Kind.NOTHING: "",
    Kind.FILE: "",
    Kind.DIRECTORY: "(__fish_complete_directories)",
    Kind.RUN: "(__paceline_runs)",
}


def fish_script(verbs: Sequence[CompletedVerb], names: dict[str, list[str]]) -> str:
    """The script; the first of `verbs` is the command itself."""
    command, *others = verbs
    lines = [f"complete -c paceline -n __paceline_verb -a {verb.name} -d {_quoted(verb.about)}" for verb in others]
    lines += [_option("__paceline_verb", row, names) for row in command.rows]
    for verb in others:
        condition = f"'__paceline_verb {verb.name}'"
        lines += _operand(condition, verb)
        lines += [_option(condition, row, names) for row in verb.rows if not row.hidden]
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _operand(condition: str, verb: CompletedVerb) -> Iterable[str]:
    if verb.operand.words or verb.operand.kind in (Kind.RUN, Kind.DIRECTORY):
        yield f"complete -c paceline -n {condition} -a {_quoted(_offered(verb.operand))}"
    if verb.script_place or verb.operand.kind is Kind.FILE:
        yield f"complete -c paceline -n {condition} -F"


def _option(condition: str, row: Option, names: dict[str, list[str]]) -> str:
    words = [f"complete -c paceline -n {condition}"]
    for spelling in row.shown_spellings:
        words.append(f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}")
    if not row.is_flag:
        offered = completions_of(row, names)
        words.append("-r -F" if offered.kind is Kind.FILE else "-x")
        if text := _offered(offered):
            words.append(f"-a {_quoted(text)}")
    return " ".join([*words, f"-d {_quoted(row.help)}"])


def _offered(offered: Completions) -> str:
    return " ".join([*offered.words, *filter(None, [_LOOKED_UP[offered.kind]])])


def _quoted(text: str) -> str:
    r"""In single quotes, in which fish reads \\ and \' alone."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
