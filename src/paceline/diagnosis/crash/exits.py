"""What rules ask about ended ranks: whose error counts, which ranks only followed, and how far each had come. Pure."""

import re
import signal
from collections.abc import Iterable, Iterator, Sequence

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.rendezvous import claimed_twice
from paceline.diagnosis.crash.root_cause import blame_time_ns, gloo_sizes, how_it_ended, is_symptom, is_symptom_text
from paceline.facts import RankExit
from paceline.findings import CauseFinding, Confidence, Unknown
from paceline.recording.rank_sets import named_ranks

_PORT_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)

# DDP compares every model with that of rank 0, so the rank that reports this may be right.
MODELS_DIFFER = re.compile(
    r"appears not to match (sizes|strides) of the same param in process|DDP expects same model across all ranks|"
    r"inconsistent \d+ params|Params? .*do(es)? not match across ranks"
)

# What multiprocessing prints in a process that imports a script as its main module and is told to start processes by it.
_NO_GUARD = re.compile(
    r"attempt has been made to start a new process before the\s+current process has finished its bootstrapping"
)


def failures(case: Case) -> tuple[RankExit, ...]:
    """Ranks that failed by themselves: not by paceline's signal, and not because another rank was gone. In the order of failure.

    Raises:  Unknown: the run is over, and the recording does not say how its ranks ended
    """
    if not case.lasts and not case.exits and not any(event.get("event") == "rank_exited" for event in case.events):
        raise Unknown("how the ranks ended")
    # A shell between paceline and the script may end with 0 although the script raised an exception.
    return tuple(
        exit
        for exit in case.exits
        if (exit.code != 0 or exit.error is not None) and not exit.signalled_by_us and not is_echo(case, exit)
    )


def is_echo(case: Case, exit: RankExit) -> bool:
    """Whether a rank only failed after another: its error, or the cause of that error, is a lost connection."""
    # The rank has lost the connection to the process that starts its workers, which is no other rank.
    if lacks_guard(case, exit):
        return False
    # Ranks exchange different things: M02, M04 and M06 say which.
    if is_symptom(exit) or gloo_sizes(words_of(case, exit)) is not None:
        return True
    # Two processes with the same rank both serve its store, and the second finds the port in use: R06 names them.
    if _PORT_IN_USE.search(words_of(case, exit)) and exit.rank in claimed_twice(case):
        return True
    # gloo's own threads abort the process if no thread waits for the exchange that failed.
    own_words = exit.error is not None or ended_by(exit, signal.SIGABRT)
    return own_words and exit is not case.exits[0] and is_symptom_text(tail_of(case, exit.rank))


def lacks_guard(case: Case, exit: RankExit) -> bool:
    """Whether the rank's program starts processes wherever it is imported, and its new processes had to import it."""
    return bool(_NO_GUARD.search(tail_of(case, exit.rank)))


def ended_by(exit: RankExit, *signals: signal.Signals) -> bool:
    """Whether one of these signals ended it: by a negative code, or by 128 and more if a shell is in between."""
    return any(exit.code in (-number, 128 + number) for number in signals)


def early_ends(case: Case) -> tuple[RankExit, ...]:
    """Ranks that ended with 0 and raised nothing while others still needed them."""
    return tuple(exit for exit in case.exits if exit.code == 0 and exit.error is None)


def tail_of(case: Case, rank: int) -> str:
    return case.tails.get(rank, "")


def words_of(case: Case, exit: RankExit) -> str:
    """The exception's text and the end of the rank's stderr."""
    error = f"{exit.error.type}: {exit.error.message}\n" if exit.error is not None else ""
    return error + tail_of(case, exit.rank)


def matching_line(text: str, pattern: re.Pattern[str]) -> str:
    """The last line that contains the pattern, cut to 200 characters; "" if there is none."""
    lines = [line.strip() for line in text.splitlines() if pattern.search(line)]
    return lines[-1][:200] if lines else ""


def saying(case: Case, pattern: re.Pattern[str]) -> Iterator[tuple[RankExit, str]]:
    """Failed ranks whose own output matches, each with its line."""
    for exit in failures(case):
        if line := matching_line(words_of(case, exit), pattern):
            yield exit, line


def place_of(exit: RankExit) -> str:
    """The user's own line as "FILE:LINE in FUNCTION"; "" if it is not known."""
    error = exit.error
    if error is None or error.file is None:
        return ""
    return f"{error.file}:{error.line}" + (f" in {error.function}" if error.function else "")


def own_line_of(exit: RankExit) -> str:
    """The same as "FILE:LINE" in the user's own file, even if the job ran a copy of it."""
    error = exit.error
    return "" if error is None or error.file is None else f"{error.own_file or error.file}:{error.line}"


def steps_of(case: Case, rank: int) -> int | None:
    """Steps that a rank had made, from its record or its heartbeat."""
    record, heartbeat = case.ranks.get(rank), case.heartbeats.get(rank)
    counts = [one.step_count for one in (record, heartbeat) if one is not None and one.step_count is not None]
    return max(counts, default=None)


def _resumed_at(case: Case) -> int:
    """The kept step at which the attempt went on, from which its ranks count; 0: it began at the start of the script."""
    steps = [
        event.get("resume_step")
        for event in case.events
        if event.get("event") == "restart" and event.get("attempt") == case.attempt
    ]
    return next((step for step in steps if isinstance(step, int)), 0)


def victims(case: Case, culprits: Iterable[int]) -> tuple[str, ...]:
    """One line about the ranks that failed after these and are not to blame; nothing if there are none."""
    blamed = frozenset(culprits)
    fallen = [exit for exit in case.exits if exit.rank not in blamed and exit.code != 0]
    ours = [exit.rank for exit in fallen if exit.signalled_by_us]
    echoes = [exit.rank for exit in fallen if not exit.signalled_by_us and is_echo(case, exit)]
    said = []
    if echoes:
        said.append(f"{named_ranks(echoes)} only lost the connection to it")
    if ours:
        said.append(f"{named_ranks(ours)} ended by paceline's own signal")
    return tuple(said)


def after_it(case: Case, exit: RankExit, alike: Iterable[RankExit] = ()) -> str:
    """How long after this end the next rank failed by itself, without those that failed in the same way; "" if none did."""
    same = {exit.rank, *(other.rank for other in alike)}
    later = [other for other in case.exits if other.rank not in same and other.code != 0 and not other.signalled_by_us]
    if not later:
        return ""
    gap = (min(map(blame_time_ns, later)) - blame_time_ns(exit)) / 1e9
    return f"{max(gap, 0.0):.1f} s before the next rank" if gap > -1 else ""


def crash(
    case: Case,
    exits: Sequence[RankExit],
    *,
    code: str,
    title: str,
    saw: Sequence[str],
    next: Sequence[str],
    ruled_out: Sequence[str] = (),
    confidence: Confidence = Confidence.HIGH,
    level: Level = Level.CRASH,
) -> CauseFinding:
    """A finding about ended ranks, with the parts that all such findings have: ranks, hosts, step, and ranks that followed."""
    ranks = tuple(sorted({exit.rank for exit in exits}))
    steps = [count for rank in ranks if (count := steps_of(case, rank)) is not None]
    return CauseFinding(
        code=code,
        title=title,
        level=level,
        ranks=ranks,
        hosts=tuple(dict.fromkeys(exit.host for exit in exits)),
        confidence=confidence,
        since_step=_resumed_at(case) + min(steps) if steps else None,
        saw=tuple(line for line in saw if line),
        ruled_out=(*(line for line in ruled_out if line), *victims(case, ranks)),
        next=tuple(line for line in next if line),
    )


def ended(exit: RankExit) -> str:
    """ "rank 1 on algo-1 was ended by SIGKILL"."""
    return f"rank {exit.rank} on {exit.host} {how_it_ended(exit)}"


def log_command(case: Case, rank: int) -> str:
    return f"paceline logs {case.run.id} --rank {rank} --stderr"
