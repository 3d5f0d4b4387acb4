"""The completion script for fish, 3.0 or newer."""

from collections.abc import Iterable, Sequence

from paceline.cli.completion.words import CompletedVerb, Completions, Kind, completions_of
from paceline.option import Option

_HEAD = """\
# Completion of paceline for fish; `paceline help --completion fish` writes it.

# VERB OPTION: succeeds where that takes a value.
function __paceline_takes_value
    switch "$argv[1] $argv[2]"
@VALUES@
    end
    return 1
end

# Succeeds where the verb is this one; without an argument, where there is no verb yet. The second argument says which word is a script:
# behind it, this fails.
function __paceline_verb
    set -l words (commandline -opc)
    set -e words[1]
    while string match -q -- '--color*' $words[1]
        set -l spelled $words[1]
        set -e words[1]
        test $spelled = --color; and set -e words[1]
    end
    test "$words[1]" = "$argv[1]"; or return 1
    set -q argv[2]; or return 0
    set -e words[1]
    set -l plain 0
    while set -q words[1]
        set -l word $words[1]
        set -e words[1]
        if test "$word" = --
            return 1
        else if not string match -q -- '-*' $word
            set plain (math $plain + 1)
            test $plain -ge $argv[2]; and return 1
        else if __paceline_takes_value $argv[1] $word
            set -e words[1]
        end
    end
    return 0
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
    """The script. The first of `verbs` is the command itself."""
    command, *others = verbs
    lines = [f"complete -c paceline -n __paceline_verb -a {verb.name} -d {_quoted(verb.about)}" for verb in others]
    lines += [_option("__paceline_verb", row, names) for row in command.rows]
    for verb in others:
        lines += _operand(f"'__paceline_verb {verb.name}'", verb)
        until = f" {verb.script_place}" if verb.script_place else ""
        lines += [_option(f"'__paceline_verb {verb.name}{until}'", row, names) for row in verb.rows if not row.hidden]
    scripted = (verb for verb in others if verb.script_place)
    return _HEAD.replace("@VALUES@", "\n".join(map(_values, scripted))) + "".join(f"{line}\n" for line in lines)


def _values(verb: CompletedVerb) -> str:
    patterns = [f"'{verb.name} {spelling}'" for row in verb.rows if not row.is_flag for spelling in row.spellings]
    return f"        case {' '.join(patterns)}\n            return 0"


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
    r"""Quote with single quotes, in which fish interprets only \\ and \'."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
