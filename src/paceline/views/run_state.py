"""The state of a run in a few words: for a badge, for a note in a list, for the first line of a picture."""

from paceline.diagnosis.case import Stall
from paceline.diagnosis.run_state import RunState
from paceline.recording.rank_sets import named_ranks
from paceline.views.units import count, duration
from paceline.views.why import finding_short, stall_text


def state_words(state: RunState, now_ns: int) -> str:
    """ "hangs, 4m 06s": the state, and for how long; of a run that was ended while it stood still, that it did."""
    stall = state.lasting_stall
    if stall is None and state.stall is not None and state.word in ("failed", "stopped"):
        return f"{state.word}, stood still"
    return state.word if stall is None else f"{state.word}, {_lasted(stall, now_ns)}"


def state_note(state: RunState, now_ns: int) -> str:
    """ "N01 stands still 2m 48s, rank 0": code, state and ranks, for a list; empty if nothing is the matter."""
    finding, stall = state.finding, state.lasting_stall
    code = finding.code if finding is not None else ""
    what = (
        f"{state.word} {_lasted(stall, now_ns)}" if stall is not None else finding.title if finding is not None else ""
    )
    ranks = finding.ranks if finding is not None else stall.late if stall is not None else ()
    return " ".join(filter(None, (code, what))) + (f", {named_ranks(ranks)}" if ranks else "")


def stall_line(state: RunState, now_ns: int) -> str:
    """What a run that lasts waits for, and since when; empty if it makes steps.

    "stands still for 26 s after step 30: N01 a rank is asleep: rank 0 on algo-1; its main thread is at train.py:64"
    """
    stall = state.lasting_stall
    if stall is None:
        return ""
    if state.finding is None:
        return f"{state.word}: {stall_text(stall, now_ns)}"
    after = f" after step {count(stall.since_step)}" if stall.since_step is not None else ""
    return f"{state.word} for {_lasted(stall, now_ns)}{after}: {finding_short(state.finding)}"


def _lasted(stall: Stall, now_ns: int) -> str:
    return duration((now_ns - stall.since_ns) / 1e9)
