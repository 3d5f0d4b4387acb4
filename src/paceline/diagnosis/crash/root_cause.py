"""Which rank failed first: failures in the order in which they happened, and failures that only follow another. Pure."""

import re
import signal
from collections.abc import Iterable, Sequence

from paceline.facts import RankExit

# Messages of a rank when another rank failed: never the cause while another candidate exists.
_SYMPTOM = re.compile(
    r"connection (reset|closed) by peer|broken pipe|connection was likely closed|socket(?:Progress)? timeout|"
    r"remote (?:process|worker)|NCCL communicator was aborted|failed to recv, got 0 bytes|"
    r"timed out waiting \d+ ?ms for (?:recv|send) operation|application timeout caused pair closure|"
    r"watchdog caught collective operation timeout|nccl ?remote ?error|"
    # torch/csrc/distributed/c10d/TCPStore.cpp: the others did not come to the store of this rank.
    r"timed out after [\d.]{1,12} ?[a-z]{0,12} waiting for clients|wait timeout after \d+ ?ms|"
    # Of TensorFlow and of JAX: the same whatever became of the other rank.
    r"collective ops is aborted by|\bsocket closed\b|stopped sending heartbeats|gloo all-?reduce failed|"
    # Texts of comm; a test compares them with these.
    r"(?:ended|is gone) in the middle of an exchange|its own output, or [\w ]+, says why|, gave up an exchange: |"
    r"failed: rank \d+ on \S+ says: |did not come to an exchange within|did not take part in an exchange for|"
    r"this exchange among the ranks of a host (?:was closed|is over)|\bdid not answer: |nothing more from rank \S+: |"
    r"the process that holds it has probably ended|this group has failed before|no further exchange: |"
    r"was closed before this exchange: |this is how a rank that is gone looks",
    re.IGNORECASE,
)

_LINES_AFTER_A_COLON = 3
_TITLE_OF_TENSORFLOW = "Graph execution error:"

# gloo ends the process that receives more than it asked for. The wrong call may be that of another process.
_GLOO_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\.\s*(\d+)\s+vs\s+(\d+)")

# What torch raises in a rank whose loader worker is gone: as it waits for a batch, or at the signal SIGCHLD.
_LOST_WORKER = re.compile(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:exited unexpectedly|is killed by signal)")

# With this code TensorFlow's PreemptionCheckpointHandler ends a process, unless the script gives it another.
# Source: tensorflow 2.21 tensorflow/python/distribute/failure_handling/failure_handling.py, `_RESTARTABLE_EXIT_CODE`
SAVED_AND_LEFT_CODE = 42
# The note of such an end after a stop.
SAVED_AND_LEFT = "saved and left by TensorFlow's PreemptionCheckpointHandler"

# An agent on a busy host sees late that a rank was killed, and the rank's peers note when they raise an exception for it.
_SEEN_LATE_NS = 1_000_000_000

# A rank that leaves closes its connections shortly before its process is gone, and its peers fail at once.
ECHO_SECONDS = 10.0


def by_blame(exits: Sequence[RankExit]) -> tuple[RankExit, ...]:
    """Failed ranks, the headline first.

    The first by time leads; an exception counts from when it was raised, and a SIGKILL from a second before its end was seen. A rank that
    only reports a broken connection, or was ended by paceline's signal, comes after every other.
    """
    return tuple(sorted((exit for exit in exits if exit.code != 0), key=_blame))


def with_early_ends(exits: Sequence[RankExit], waited_for: Iterable[int] = ()) -> tuple[RankExit, ...]:
    """Failures in the order of `by_blame`, including ranks that ended with 0 while others still needed them, or after an exception.

    `waited_for`: ranks that others waited for.

    Holds:   every rank ended with 0 and nobody waited -> (); without an end with 0 it is by_blame(exits)
    """
    # Where a shell stands between paceline and the script, it may end with 0 although the script has raised an exception.
    hidden = [exit for exit in exits if exit.code == 0 and exit.error is not None]
    fallen = (*by_blame(exits), *hidden)
    echoes = [exit for exit in fallen if is_symptom(exit)]
    # A second cause would explain the other failures without the rank that left.
    explained = any(not is_symptom(exit) and not exit.signalled_by_us for exit in fallen)
    waited = frozenset(waited_for)
    early = [
        exit
        for exit in exits
        if exit.code == 0
        and exit.error is None
        and not exit.signalled_by_us
        and (exit.rank in waited or (not explained and any(_echoes(echo, exit) for echo in echoes)))
    ]
    return tuple(sorted((*fallen, *early), key=_blame))


def blame_time_ns(exit: RankExit) -> int:
    """When the rank failed: an exception counts from when it was raised, not from its process's end."""
    return min(exit.time_ns, exit.error.time_ns) if exit.error else exit.time_ns


def is_symptom(exit: RankExit) -> bool:
    """Whether the rank only reports that another rank is gone."""
    return exit.error is not None and is_symptom_text(exit.error.message)


def is_symptom_text(text: str) -> bool:
    return bool(_SYMPTOM.search(text))


def telling_line(text: str) -> str:
    """The line of an exception's message that says most: mostly the first one.

    TensorFlow begins with a title and a list of operations. A message that prints a long value in its first sentence ends that sentence
    in its last line. A first line that ends with a colon says nothing without those below it.

    Source:  tensorflow 2.21 tensorflow/python/framework/errors_impl.py, "Graph execution error"
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if lines[0] == _TITLE_OF_TENSORFLOW:
        return next((line for line in lines[1:] if not line.startswith((" ", "\t", "Detected at node"))), lines[0])
    if len(lines) > 1 and lines[0].endswith(("{", "[", "(")):
        return f"{lines[0].strip()} ... {lines[-1].strip()}"
    if lines[0].endswith(":"):
        return " ".join(line.strip() for line in lines[:_LINES_AFTER_A_COLON])
    return lines[0].strip()


def lost_a_loader_worker(exit: RankExit) -> bool:
    """Whether the rank ended because one of its loader workers was killed, or ended without an exception."""
    return exit.error is not None and exit.error.type == "RuntimeError" and bool(_LOST_WORKER.match(exit.error.message))


def gloo_sizes(text: str) -> tuple[int, int] | None:
    """Bytes that gloo received and bytes that it expected, if the text has its error about the difference."""
    match = _GLOO_SIZES.search(text)
    return (int(match[1]), int(match[2])) if match else None


def how_it_ended(exit: RankExit) -> str:
    """A verb phrase: "raised ValueError", "was ended by SIGKILL", "ended with code 3", "saved and left"."""
    if exit.note == SAVED_AND_LEFT:
        return "saved and left"
    if exit.error is not None:
        return f"raised {exit.error.type}"
    if exit.code < 0:
        return f"was ended by {signal_name(-exit.code)}"
    return f"ended with code {exit.code}"


def signal_name(number: int) -> str:
    """ "SIGTERM" for 15; real-time and unknown signals by number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _blame(exit: RankExit) -> tuple[bool, bool, int, int]:
    late_ns = _SEEN_LATE_NS if exit.code == -signal.SIGKILL else 0
    return exit.signalled_by_us, is_symptom(exit), blame_time_ns(exit) - late_ns, exit.rank


def _echoes(echo: RankExit, end: RankExit) -> bool:
    return blame_time_ns(echo) >= end.time_ns - ECHO_SECONDS * 1e9
