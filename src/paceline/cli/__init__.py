"""The `paceline` command: finds the verb, imports only that verb, prints refusals, chooses the exit code."""

import errno
import importlib
import io
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paceline import __version__
from paceline.errors import NotEnoughEvidence, PacelineError, UsageError
from paceline.terminal_text import show_only_visible

if TYPE_CHECKING:
    from paceline.part import PartVerb

VERBS = {
    "run": "start a training job, as torchrun does, and record it",
    "check": "find mistakes in a script and its job; run nothing",
    "ps": "list runs, or delete old recordings",
    "logs": "print what the ranks of a run wrote",
    "top": "watch a run: pace, ranks, machines",
    "why": "say why a job hangs, failed or is slow, and what to do",
    "stack": "show where each rank is in its code, identical stacks folded",
    "stop": "end a run in order, or at once",
    "compare": "say whether a run is slower than another one, and where",
    "report": "write a run as one page of HTML, to read or to send",
    "env": "show what this machine and this torch can do and record",
    "help": "show a verb's options or the page of a code",
}
"""The verbs of the kernel. Those of parts are in `all_verbs`."""
# What they answer comes from recordings, which anybody may have written.
_READERS = frozenset(("compare", "logs", "ps", "report", "stack", "top", "why"))
INTERRUPTED, BROKEN_PIPE = 130, 141
_MOST_OF_AN_ERROR = 200
_COLORS = ("auto", "always", "never")


@cache
def _of_parts() -> "Mapping[str, PartVerb]":
    """The verbs of the parts that are there. It takes longer than all else before a verb, so only a word that is no verb here asks."""
    from paceline.part import parts

    return {name: verb for part in parts() for name, verb in part.verbs().items()}


def all_verbs() -> Mapping[str, str]:
    """Every verb and what it does, those of the kernel first."""
    return VERBS | {name: verb.about for name, verb in _of_parts().items()}


def _is_verb(word: str) -> bool:
    return word in VERBS or word in _of_parts()


def overview() -> str:
    """What `paceline --help` prints."""
    return f"""\
  paceline run --nproc-per-node 2 train.py   train on 2 ranks of this machine
  paceline top                               watch the newest run

usage: paceline [--version] [--json] [--color auto|always|never] VERB ...

Data-parallel training that keeps its pace and says why when it does not.

verbs:
{"".join(f"  {verb:<15}  {about}{chr(10)}" for verb, about in all_verbs().items())}
`paceline help VERB` shows the options of one verb, `help codes` every code.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Holds: torch is never imported; of the verbs, only the chosen one is imported
    """
    _prepare_standard_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatch(argv), argv)


def _prepare_standard_streams() -> None:
    """Open /dev/null for standard streams that are closed. Otherwise the next opened file would become stdin, stdout or stderr."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    # A script's name may contain characters that this terminal cannot show.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def guarded(action: Callable[[], int], argv: list[str]) -> int:
    """The exit code of an action. Every refusal of the action is printed for a person or, with --json, for a program."""
    show_only_visible()
    try:
        code = action()
        sys.stdout.flush()
        return code
    except PacelineError as error:
        return _refuse(error, argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe (`paceline logs | head`): print nothing, and keep the interpreter from flushing into the pipe at exit.
        _discard_output()
        return BROKEN_PIPE
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("paceline."):
            raise
        return _refuse(_no_part(error), argv)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _directory_is_gone():
            return _refuse(_no_directory(), argv)
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _discard_output()
        full = UsageError("U22", "the output does not fit on its disk", saw=os.strerror(error.errno), next="df -h")
        return _refuse(full, argv)


def _no_part(error: ModuleNotFoundError) -> UsageError:
    return UsageError(
        "E01",
        "this needs a part of paceline that is not here",
        saw=str(error),
        next="install all of paceline; `paceline --help` lists the verbs that are here",
    )


def _directory_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _no_directory() -> UsageError:
    return UsageError(
        "U22",
        "the current directory is not there any more",
        saw=f"{os.environ.get('PWD', 'its name is not known')} was removed while this shell was in it",
        next="cd /a/directory/that/is/there",
    )


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_json(argv: Sequence[str]) -> bool:
    """Whether --json belongs to paceline: it comes before every word that looks like the user's program."""
    return "--json" in itertools.takewhile(lambda word: not _begins_program(word), argv)


def _dispatch(argv: list[str]) -> int:
    argv, color, as_json = _leading(argv)
    if not argv:
        sys.stderr.write(overview())
        return UsageError.exit_code
    verb, rest = argv[0], argv[1:]
    if verb in ("-h", "--help"):
        if not rest and not as_json:
            # As `paceline help`, without loading it: nothing else is asked so often.
            sys.stdout.write(overview())
            return 0
        verb = "help"
    if verb in ("-V", "--version"):
        sys.stdout.write(f"paceline {__version__}\n")
        return 0
    if not _is_verb(verb):
        raise _unknown(verb, rest)
    module = verb_module(verb)
    try:
        args = _parse(module, rest)
    except SystemExit as help_shown:
        return int(help_shown.code or 0)
    if color is not None:
        args.color = _known_color(color)
    args.json = args.json or as_json
    if verb not in _READERS and (verb in VERBS or not _of_parts()[verb].reads_recordings):
        return int(module.run(args))
    try:
        return int(module.run(args))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _unreadable(verb, error) from error
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise _unreadable(verb, error) from error


def _unreadable(verb: str, error: Exception) -> NotEnoughEvidence:
    """The one door for values of a recording that no reader of it takes."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None and "paceline" in place.tb_next.tb_frame.f_code.co_filename:
        place = place.tb_next
    where = f"{os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}" if place is not None else "?"
    return NotEnoughEvidence(
        "U58",
        f"paceline {verb} cannot read a value of this recording",
        saw=f"{type(error).__name__} at {where}: {str(error)[:_MOST_OF_AN_ERROR]}",
        next="paceline why  # answers from other parts of the recording" if verb != "why" else "paceline logs",
    )


def verb_module(verb: str) -> ModuleType:
    """The module of a verb: a file of its name, or `verb.py` in a folder of its name.

    It has a `VERB` and `run(args)`. Where its words have several forms, `form(argv)` is the `Verb` with the options of one of them.
    """
    module = importlib.import_module(f"paceline.cli.{verb}" if verb in VERBS else _of_parts()[verb].module)
    return importlib.import_module(f"{module.__name__}.verb") if hasattr(module, "__path__") else module


def _parse(module: ModuleType, argv: list[str]) -> Any:
    """Parse the words of a verb: with the module's own `parse(argv)` if it has one, else by the verb's rows."""
    if hasattr(module, "parse"):
        return module.parse(argv)
    from paceline.cli.parsing import VerbParser

    return VerbParser(module.VERB).parse_args(argv)


def _leading(argv: list[str]) -> tuple[list[str], str | None, bool]:
    """The words from the verb on, and the --color and --json before the verb."""
    color, as_json = None, False
    while argv:
        if argv[0] == "--json":
            argv, as_json = argv[1:], True
        elif argv[0].startswith("--color="):
            argv, color = argv[1:], argv[0].partition("=")[2]
        elif argv[0] == "--color" and len(argv) > 1:
            argv, color = argv[2:], argv[1]
        else:
            break
    return argv, color, as_json


def _said_color(argv: Sequence[str]) -> str:
    """The --color before every word that looks like the user's program."""
    ours = list(itertools.takewhile(lambda word: not _begins_program(word), argv))
    for word, value in zip(ours, [*ours[1:], ""], strict=False):
        if word == "--color" and value in _COLORS:
            return value
        if word.partition("=")[0] == "--color" and word.partition("=")[2] in _COLORS:
            return word.partition("=")[2]
    return "auto"


def _begins_program(word: str) -> bool:
    return word == "--" or (not word.startswith("-") and word.endswith((".py", ".sh")))


def _known_color(color: str) -> str:
    if color not in _COLORS:
        raise UsageError("U03", f"--color {color!r} is none of {', '.join(_COLORS)}", saw=color, next="--color auto")
    return color


def _unknown(verb: str, rest: list[str]) -> UsageError:
    kind = "option" if verb.startswith("-") else "verb"
    saw, words = _meant(verb, rest)
    return UsageError(
        "U01",
        f"{verb!r} is no verb" if words[:2] == ["run", verb] and kind == "verb" else f"unknown {kind} {verb!r}",
        saw=saw or "verbs are " + ", ".join(all_verbs()),
        next=shlex.join(["paceline", *words]) if words else "paceline --help",
    )


def _meant(word: str, rest: list[str]) -> tuple[str, list[str]]:
    """Why a first word that is no verb stands there, and the words that were meant; empty if neither is known."""
    from paceline.cli import other_names
    from paceline.cli.moved import moved
    from paceline.cli.parsing import MISSPELT
    from paceline.spelling import nearest

    if word.startswith("-"):
        near = nearest(word, ("--help", "--version", "--color", "--json"), MISSPELT)
        if near is not None:
            return f"the nearest one is {near}", [near, *rest]
        if _is_for_run(word) and rest:
            return f"it is an option of paceline run: {word}", ["run", word, *rest]
        return (f"the verb is {rest[0]}", rest) if rest[:1] and _is_verb(rest[0]) else ("", [])
    if words := moved(word, rest):
        return f"paceline {words[0]} does that", words
    if word.endswith((".py", ".sh")):
        return "it looks like a script", ["run", word, *rest]
    if os.path.isfile(f"{word}.py"):
        return f"{word}.py is a script here", ["run", f"{word}.py", *rest]
    near = other_names.VERBS.get(word) if word in other_names.VERBS else nearest(word, all_verbs())
    return (f"the nearest one is {near}", [*near.split(), *rest]) if near else ("", [])


def _is_for_run(word: str) -> bool:
    from paceline.cli.parsing import called, spelled

    return called(spelled(verb_module("run").VERB.rows), word.partition("=")[0]) is not None


def _pasteable(advice: str, argv: list[str]) -> str:
    """The advice as the user's own command, corrected."""
    words, _, _ = _leading(argv)
    if not words or not _is_verb(words[0]):
        return advice
    from paceline.cli.corrected_command import corrected

    module = verb_module(words[0])
    return corrected(advice, words[1:], module.form(words[1:]) if hasattr(module, "form") else module.VERB)


def _refuse(error: PacelineError, argv: list[str]) -> int:
    from paceline.views.error import error_json, error_text

    # The parts themselves may be what is refused, and without them no command line can be corrected.
    with suppress(UsageError):
        error.next = _pasteable(error.next, argv)
    if wants_json(argv):
        import json

        import msgspec

        print(json.dumps(msgspec.to_builtins(error_json(error))), flush=True)
        return error.exit_code
    from paceline.cli.terminal import use_color

    print(error_text(error, color=use_color(_said_color(argv), sys.stderr)), file=sys.stderr, flush=True)
    return error.exit_code
