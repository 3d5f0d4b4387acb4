"""C01: a rank's own code raised. The finding names the first real traceback; ranks that only lost the connection afterwards are victims."""

import re
import shlex
from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import (
    MODELS_DIFFER,
    after_it,
    crash,
    ended,
    failures,
    lacks_guard,
    log_command,
    own_line_of,
    place_of,
    tail_of,
    words_of,
)
from paceline.diagnosis.crash.keras_release import other_release
from paceline.diagnosis.crash.known_exceptions import NOT_OF_THE_SCRIPT, no_line_at_fault, ways_out
from paceline.diagnosis.crash.missing_package import install_torch, lacks_torch, missing_package
from paceline.diagnosis.crash.origins import is_drivers, is_interrupt
from paceline.diagnosis.crash.root_cause import telling_line
from paceline.diagnosis.crash.shared_memory import Shortage, shortage_in
from paceline.facts import RankError, RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "exception in the script"
PAGE = """\
Exception in the script

What it means: One rank raised a Python exception, and the exception is the rank's own: it does not merely report that
  another rank is gone. The other ranks fail a moment later with "Connection closed by peer". Their tracebacks are
  often longer and are printed last, but they are not the cause.
Why it matters: The last traceback on the terminal usually belongs to a victim. The first traceback names the line to
  change.
Deciding evidence: paceline takes the exception that was raised first and whose text is not a lost connection. Times
  are those of each rank's clock, corrected for the hosts' offsets. Ranks that raised the same exception at the same
  line count as one finding. ConnectionResetError after "An attempt has been made to start a new process" is no lost rank: the script
  has no main guard, and its loader workers import it (K26).
Not to be confused with: C02 and C04, where no exception is raised; C08, C09, M08, M09 and the R codes, which know
  what this exception means.
What to do: Read the line named under "saw" and the rank's stderr. If every rank raised the exception, run the script
  on one rank: `--nproc-per-node 1`.
How to inject it: examples/broken/c01_exception.py
Source: paceline/worker/error_file.py writes the exception when it is raised.
"""


ENDED_ITSELF = "script ended with an error code"
ENDED_ELSEWHERE = "a process that the script waits for has ended"
NO_GUARD = "the script starts processes where it is imported"
_GUARD = 'put what the script does below `if __name__ == "__main__":`, as multiprocessing asks for'
# What bash, and what dash, say with exit code 127.
_NO_COMMAND = re.compile(r"(?<![^\s:])([^\s:]+): (?:command )?not found\Z")
_OPT_ML = re.compile(r"/opt/ml/(?:input/data/([A-Za-z0-9_.-]+)|model|output|checkpoints|input)")
_VARIABLES = "read SM_HPS, SM_HOSTS, SM_CURRENT_HOST, SM_NUM_GPUS and SM_CHANNEL_* from os.environ"
# Packages of SageMaker's containers that scripts import -> what to do where they are not installed.
_OF_THE_CONTAINER = {
    "sagemaker_training": f"add sagemaker-training to requirements.txt beside the script, or {_VARIABLES}",
    "sagemaker_containers": f"it is sagemaker_training today: add sagemaker-training to requirements.txt and import that, or {_VARIABLES}",
}


def find(case: Case) -> Iterator[CauseFinding]:
    groups: dict[tuple[str, str, str], list[RankExit]] = {}
    for exit in failures(case):
        if MODELS_DIFFER.search(words_of(case, exit)):
            # M09 says which rank differs.
            continue
        if shortage_in(words_of(case, exit)) is Shortage.EITHER:
            # It is C08 or C10.
            continue
        if exit.error is not None and is_interrupt(exit.error.type):
            # It is C04.
            continue
        if exit.error is not None:
            # The numbers in a text (a rank, an address, a size) differ between ranks that failed at the same line.
            groups.setdefault(
                (exit.error.type, place_of(exit), "" if place_of(exit) else exit.error.message), []
            ).append(exit)
        elif exit.code > 0 and exit.code <= 128:
            groups.setdefault((str(exit.code), "", ""), []).extend((exit, *_stopped_with_the_same_words(case, exit)))
    for exits in groups.values():
        yield _finding(case, exits)


def _stopped_with_the_same_words(case: Case, exit: RankExit) -> Iterator[RankExit]:
    """Ranks that paceline stopped for this one's end after they had written the same last line: they were about to end as well."""
    said = _last_line(case, exit.rank)
    for other in case.exits:
        if said and other.signalled_by_us and other.rank != exit.rank and _last_line(case, other.rank) == said:
            yield other


def _last_line(case: Case, rank: int) -> str:
    return tail_of(case, rank).strip().rpartition("\n")[2]


def _finding(case: Case, exits: list[RankExit]) -> CauseFinding:
    first = exits[0]
    error = first.error
    said = f": {telling_line(error.message)[:300]}" if error is not None and error.message.strip() else ""
    lacking = missing_package(error)
    where = place_of(first)
    before = after_it(case, first, exits)
    words = "" if error is not None else _last_line(case, first.rank)
    unguarded = lacks_guard(case, first)
    title = TITLE if error is not None else ENDED_ITSELF
    is_elsewhere = error is not None and no_line_at_fault(f"{error.type}: {error.message}")
    of_another = error is not None and is_drivers(error.type)
    if is_elsewhere:
        title = NOT_OF_THE_SCRIPT
    if of_another:
        title = ENDED_ELSEWHERE
    return crash(
        case,
        exits,
        code="C01",
        title="this Python has no torch" if lacks_torch(error) else NO_GUARD if unguarded else title,
        confidence=Confidence.UNCLEAR if of_another else Confidence.LIKELY if is_elsewhere else Confidence.HIGH,
        saw=(
            f"{ended(first)}{said}",
            f"at {where}" + (f": {error.source.strip()}" if error is not None and error.source else "")
            if where
            else "",
            f"its last line on stderr: {words[:200]}" if words else "",
            "a process that it started imported the script, and was to start processes itself" if unguarded else "",
            f"{'raised' if error is not None else 'ended'} {before} fell" if before else "",
            f"the same on {named_ranks(exit.rank for exit in exits)}" if len(exits) > 1 else "",
            first.note if first.code == 0 else "",
        ),
        ruled_out=() if where or error is not None else ("a signal: the process ended by itself",),
        next=(
            *(_install(lacking, error) if lacking and error is not None else ()),
            _GUARD if unguarded else "",
            'or DataLoader(multiprocessing_context="fork"), the default before Python 3.14' if unguarded else "",
            _in_the_tree(error),
            _SPAWN_ARGUMENTS if error is not None and _is_of_spawn(error) else "",
            other_release(error),
            _on_path(first, words),
            _PIPEFAIL if first.code == 0 else "",
            *ways_out(words if error is None else f"{error.type}: {error.message}"),
            "the output of the process that ended: its first traceback is the cause" if of_another else "",
            f"edit {own_line_of(first)}"
            if where and not lacks_torch(error) and not of_another and not is_elsewhere
            else "",
            # A script that ends itself often says why on stdout.
            log_command(case, first.rank) if error is not None else f"paceline logs {case.run.id} --rank {first.rank}",
        ),
    )


def _on_path(exit: RankExit, words: str) -> str:
    """What to do about a program that a shell script did not find."""
    if exit.code != 127 or not (match := _NO_COMMAND.search(words)):
        return ""
    return f"install {match[1]}, or put its directory on PATH; if it is in a virtual environment, activate that first"


def _is_of_spawn(error: RankError) -> bool:
    """Whether mp.spawn called a function with arguments that do not fit it."""
    return error.type == "TypeError" and "positional argument" in error.message and "spawn(" in (error.source or "")


_SPAWN_ARGUMENTS = (
    "mp.spawn calls the function with the rank and then each of args: one argument is a tuple with a comma, args=(x,)"
)


_PIPEFAIL = "what starts the script must end with its code, or the job counts as done: `set -o pipefail` where a shell pipes it into tee"


def _in_the_tree(error: RankError | None) -> str:
    """What to write in place of a path that is only there in a container of SageMaker."""
    if error is None or error.type != "FileNotFoundError" or not (match := _OPT_ML.search(error.message)):
        return ""
    variable = f"SM_CHANNEL_{match[1].upper().replace('-', '_')}" if match[1] else "SM_MODEL_DIR or SM_OUTPUT_DATA_DIR"
    return f"read the directory from os.environ: {variable}; or paceline run --local-hosts 1 --set opt_ml=true"


def _install(package: str, error: RankError) -> tuple[str]:
    if lacks_torch(error):
        return (install_torch(error.python),)
    python = shlex.quote(error.python) if error.python else "python"
    if package in _OF_THE_CONTAINER:
        return (_OF_THE_CONTAINER[package],)
    return (f"{python} -m pip list: is {package} installed for the Python that ran the script?",)


RULE = Cause(code="C01", title=TITLE, page=PAGE, find=find, beats=("N10",), sure_by=(Ground.EXIT, Ground.WORDS))
