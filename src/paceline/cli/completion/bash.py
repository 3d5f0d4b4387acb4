"""The completion script for bash, 3.2 or newer, without the package bash-completion."""

from collections.abc import Iterable, Sequence

from paceline.cli.completion.words import CompletedVerb, Completions, completions_of

_HEAD = """\
# Completion of paceline for bash; `paceline help --completion bash` writes it.

# Sets REPLY to what can stand behind an option of a verb; fails where that is a flag, or no option at all.
_paceline_value() {
    case $1 in
@VALUES@
    esac
    return 1
}

# Sets REPLY to the options of a verb.
_paceline_options() {
    case $1 in
@OPTIONS@
    esac
}

# Sets REPLY to what the first word of a verb can be.
_paceline_operand() {
    case $1 in
@OPERANDS@
    *) REPLY='nothing' ;;
    esac
}

# Succeeds where the word with this number is a script of its own: what follows it is not ours.
_paceline_has_script() {
    case $1 in
@SCRIPTS@
    *) return 1 ;;
    esac
}

_paceline_add() {
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$@" -- "$current")
}

# KIND WORD ...
_paceline_offer() {
    local kind=$1
    shift
    _paceline_add -W "$*"
    case $kind in
    file)
        compopt -o filenames 2>/dev/null
        _paceline_add -f
        ;;
    directory)
        compopt -o filenames 2>/dev/null
        _paceline_add -d
        ;;
    run) _paceline_add -W "$(command ls "${PACELINE_HOME:-.paceline}/runs" 2>/dev/null)" ;;
    esac
}

_paceline() {
    local IFS=$' \\t\\n' current=${COMP_WORDS[COMP_CWORD]} verb= option= glued= plain=0 index word REPLY=
    COMPREPLY=()
    # bash takes --option=value and host:port apart, the signs between as words of their own.
    [[ $current == [=:] ]] && current=
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $word == [=:] ]]; then
            glued=yes
        elif [[ -n $option || -n $glued ]]; then
            option= glued=
        elif [[ $word == -- ]]; then
            plain=$((plain + 1))
        elif [[ $word == -* ]]; then
            _paceline_value "${verb:-paceline}" "$word" && option=$word
        elif [[ -z $verb ]]; then
            verb=$word
        else
            plain=$((plain + 1))
        fi
        if [[ $plain -gt 0 ]] && _paceline_has_script "$verb" "$plain"; then
            _paceline_offer file
            return
        fi
    done
    if [[ -n $option ]]; then
        _paceline_value "${verb:-paceline}" "$option"
    elif [[ $current == -* ]]; then
        _paceline_options "${verb:-paceline}"
        REPLY="nothing $REPLY"
    else
        _paceline_operand "${verb:-paceline}"
        [[ $plain -eq 0 || $REPLY == run* ]] || REPLY=file
    fi
    _paceline_offer $REPLY
}

complete -F _paceline paceline
"""


def bash_script(verbs: Sequence[CompletedVerb], names: dict[str, list[str]]) -> str:
    """The script. The first of `verbs` is the command itself."""
    filled = {
        "@VALUES@": "\n".join(_values(verb, names) for verb in verbs),
        "@OPTIONS@": "\n".join(f"    {verb.name}) REPLY='{' '.join(_shown(verb))}' ;;" for verb in verbs),
        "@OPERANDS@": "\n".join(f"    {verb.name}) REPLY='{_reply(verb.operand)}' ;;" for verb in verbs),
        "@SCRIPTS@": "\n".join(
            f"    {verb.name}) [[ $2 -ge {verb.script_place} ]] ;;" for verb in verbs if verb.script_place
        ),
    }
    script = _HEAD
    for place, text in filled.items():
        script = script.replace(place, text)
    return script


def _values(verb: CompletedVerb, names: dict[str, list[str]]) -> str:
    """One branch per answer, for all options with this answer."""
    spellings: dict[str, list[str]] = {}
    for row in verb.rows:
        if not row.is_flag:
            spellings.setdefault(_reply(completions_of(row, names)), []).extend(row.spellings)
    cases = "".join(f"        {'|'.join(each)}) REPLY='{reply}' ;;\n" for reply, each in spellings.items())
    return (
        f"    {verb.name})\n        case $2 in\n{cases}        *) return 1 ;;\n        esac\n        return\n        ;;"
    )


def _shown(verb: CompletedVerb) -> Iterable[str]:
    return (spelling for row in verb.rows if not row.hidden for spelling in row.shown_spellings)


def _reply(offered: Completions) -> str:
    return " ".join([offered.kind, *offered.words])
