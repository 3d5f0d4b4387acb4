"""The completion script for zsh, with its new completion system (compinit)."""

from collections.abc import Iterable, Sequence

from paceline.cli.completion.words import CompletedVerb, Completions, Kind, completions_of
from paceline.option import Option

_HEAD = """\
#compdef paceline
# Completion of paceline for zsh; `paceline help --completion zsh` writes it.

_paceline_runs() {
    local -a ids
    ids=(${PACELINE_HOME:-.paceline}/runs/*(N/:t))
    compadd -a ids
}

# WORD ... -- FUNCTION ...
_paceline_offer() {
    local place=${@[(i)--]}
    compadd -- "${@[1,place-1]}"
    "${@[place+1,-1]}"
}

_paceline() {
    local curcontext=$curcontext state line
    local -a verbs
    typeset -A opt_args
    verbs=(
@VERBS@
    )
    _arguments -C @GLOBAL@ \\
        '1:verb:->verb' '*::argument:->argument'
    case $state in
    verb) _describe verb verbs ;;
    argument)
        curcontext=${curcontext%:*:*}:paceline-$words[1]:
        case $words[1] in
@CASES@
        esac
        ;;
    esac
}

if [[ $funcstack[1] == _paceline ]]; then
    _paceline "$@"
else
    compdef _paceline paceline
fi
"""
_LOOKED_UP = {Kind.NOTHING: "", Kind.FILE: "_files", Kind.DIRECTORY: "_files -/", Kind.RUN: "_paceline_runs"}


def zsh_script(verbs: Sequence[CompletedVerb], names: dict[str, list[str]]) -> str:
    """The script. The first of `verbs` is the command itself."""
    command, *others = verbs
    filled = {
        "@VERBS@": "\n".join(f"        {_quoted(f'{verb.name}:{_escaped(verb.about)}')}" for verb in others),
        "@GLOBAL@": " ".join(_option(row, names) for row in command.rows),
        "@CASES@": "\n".join(_case(verb, names) for verb in others),
    }
    script = _HEAD
    for place, text in filled.items():
        script = script.replace(place, text)
    return script


def _case(verb: CompletedVerb, names: dict[str, list[str]]) -> str:
    specs = [_option(row, names) for row in verb.rows if not row.hidden]
    specs += _operands(verb)
    # Words after the script belong to the script: no option after the first word that is not an option.
    until = "-A '-*' " if verb.script_place == 1 else ""
    lines = " \\\n".join(f"                {spec}" for spec in specs)
    return f"        {verb.name})\n            _arguments -s -S {until}\\\n{lines}\n            ;;"


def _operands(verb: CompletedVerb) -> Iterable[str]:
    if verb.operand.words or verb.operand.kind is not Kind.NOTHING:
        place = "*" if verb.operand.kind is Kind.RUN else "1"
        yield _quoted(f"{place}:{verb.name}:{_action(verb.operand)}")
    if verb.script_place:
        yield "'*:argument:_files'"


def _option(row: Option, names: dict[str, list[str]]) -> str:
    """A specification of _arguments. Each spelling excludes the other, unless the option may be repeated."""
    text = f"[{_escaped(row.help)}]"
    value = "" if row.is_flag else f":{_escaped(row.value)}:{_action(completions_of(row, names))}"
    ends = ("", "") if row.is_flag else ("+", "=")
    specs = [
        f"{spelling}{ends[1] if spelling.startswith('--') else ends[0]}{text}{value}"
        for spelling in row.shown_spellings
    ]
    before = "*" if row.repeatable or row.count else f"({' '.join(row.shown_spellings)})"
    return " ".join(_quoted(f"{before}{spec}") for spec in specs)


def _action(offered: Completions) -> str:
    """Offered words, looked-up words, or both."""
    words = f"({' '.join(offered.words)})" if offered.words else ""
    looked_up = _LOOKED_UP[offered.kind]
    if words and looked_up:
        # The space keeps _arguments from adding its own words.
        return f" _paceline_offer {' '.join(offered.words)} -- {looked_up}"
    return words or looked_up


def _escaped(text: str) -> str:
    for sign in ("\\", "[", "]", ":"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
