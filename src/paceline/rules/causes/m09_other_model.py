"""M09: the parameters or buffers of the ranks' models differ."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import MODELS_DIFFER, crash, ended, log_command, saying, words_of
from paceline.diagnosis.crash.root_cause import gloo_sizes
from paceline.diagnosis.desync.desync import DesyncKind, call_text, disagreements
from paceline.diagnosis.desync.replicas import common_steps, marks_at
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "models differ between ranks"
PAGE = """\
Models differ between ranks

What it means: Ranks built models with a different number of parameters or different sizes. They have another
  configuration, vocabulary, argument or version of the code.
Why it matters: DDP refuses parameters that differ. Buffers, and models that are not wrapped, are exchanged wrongly
  without an error.
Deciding evidence: Ranks that differ from rank 0 printed DDP's "params[N] in this process with sizes ... appears not
  to match sizes of the same param in process 0", or its count of parameters. If all other ranks printed it, rank 0 is
  the odd one. For buffers there are two signs. DDP broadcasts more numbers on some rank than on others. Or a
  broadcast from inside DDP has another size on some rank: then values land in the wrong place, or, if rank 0 has
  more, gloo ends ranks with "N vs M" while the model is wrapped.
Not to be confused with: M10, where the checksum of the script or a version differs and this is the consequence; M02,
  where a collective that the script issues differs in size.
What to do: Print the configuration on every rank and compare. Read it on rank 0 and broadcast it.
How to inject it: examples/broken/m09_other_model.py, examples/broken/m09_buffers.py
Source: torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    told = list(saying(case, MODELS_DIFFER))
    if not told:
        by_marks = _by_buffers_held(case)
        yield from (by_marks,) if by_marks is not None else _by_broadcasts(case)
        if not case.divergences:
            yield from _while_wrapped(case)
        return
    exits = [exit for exit, _ in told]
    # A rank that paceline stopped a moment later may have printed the same before.
    all_who_say = {exit.rank for exit in case.exits if MODELS_DIFFER.search(words_of(case, exit))}
    odd_one = case.world_size is not None and case.world_size > 2 and len(all_who_say) == case.world_size - 1
    finding = crash(
        case,
        exits,
        code="M09",
        title=TITLE,
        level=Level.DIVERGENCE,
        saw=(
            *(f"{ended(exit)}: {line}" for exit, line in told[:3]),
            f"all of {named_ranks(all_who_say)} differ from rank 0, so rank 0 is the odd one" if odd_one else "",
        ),
        next=(
            "compare what each rank builds its model from: arguments, configuration files, vocabulary sizes",
            "read the configuration on rank 0 and broadcast it",
            log_command(case, exits[0].rank),
        ),
    )
    yield replace(finding, ranks=(0,), hosts=(case.host_of(0),)) if odd_one else finding


def _by_buffers_held(case: Case) -> CauseFinding | None:
    """Compares what the ranks record about their models while they train; works with any torch."""
    for step in common_steps(case):
        marks = marks_at(case, step)
        by_size: dict[int | None, list[int]] = defaultdict(list)
        for rank, mark in sorted(marks.items()):
            by_size[mark.buffers].append(rank)
        if len(by_size) > 1 and None not in by_size:
            sizes = sorted(by_size, key=lambda size: (len(by_size[size]), -by_size[size][0]))
            odd, usual = by_size[sizes[0]], by_size[sizes[-1]]
            return _buffers_differ(
                odd if len(odd) < len(usual) else marks,
                f"DDP broadcasts buffers of {sizes[0]:,} numbers on {named_ranks(odd)}, of {sizes[-1]:,} on {named_ranks(usual)}",
                step,
            )
    return None


def _by_broadcasts(case: Case) -> Iterator[CauseFinding]:
    """DDP broadcasts rank 0's parameters and buffers when it is made, and buffers at forward passes; it compares parameters only."""
    for divergence, found in disagreements(case, DesyncKind.SHAPE):
        mine, theirs = found.mine[0], found.theirs[0]
        from_python = divergence.basis == "calls"
        if from_python or mine.operation != "broadcast" or theirs.operation != "broadcast":
            continue
        odd_one = found.odd if found.told_apart else found.blamed
        yield _buffers_differ(
            odd_one,
            f"rank 0's values are broadcast: {call_text(mine)} on {named_ranks(found.odd)}, "
            f"{call_text(theirs)} on {named_ranks(found.usual)}",
            divergence.since_step,
        )


def _while_wrapped(case: Case) -> Iterator[CauseFinding]:
    """Ranks that gloo aborted while DDP was being made, because they received more than they had room for.

    DDP compares the parameters and then sends rank 0's values.
    """
    met = {exit.rank: sizes for exit in case.exits if (sizes := gloo_sizes(words_of(case, exit))) is not None}
    wrapping = {rank for rank, heartbeat in case.heartbeats.items() if heartbeat.phase == "wrapping"}
    # A heartbeat may be from just before its rank reached DDP.
    no_calls_yet = all(
        heartbeat.phase in ("starting", "wrapping") and not heartbeat.calls for heartbeat in case.heartbeats.values()
    )
    if met and met.keys() <= wrapping and no_calls_yet:
        received, expected = next(iter(met.values()))
        only_rank_0 = case.world_size is not None and case.world_size > 2 and len(met) == case.world_size - 1
        yield _buffers_differ(
            (0,) if only_rank_0 else {0, *met},
            f"while DDP was made, gloo on {named_ranks(met)} met {received:,} bytes of rank 0 where it expected {expected:,}",
            0,
        )


def _buffers_differ(ranks: Collection[int], sizes: str, step: int | None) -> CauseFinding:
    return CauseFinding(
        code="M09",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(sorted(ranks)),
        confidence=Confidence.LIKELY,
        since_step=step,
        saw=(sizes, "DDP compared the parameters and found them alike, so that the buffers differ in size"),
        next=(
            "compare the buffers of the ranks: [(n, b.shape) for n, b in model.named_buffers()]",
            "with broadcast_buffers=False buffers are not exchanged, and each rank keeps its own",
        ),
    )


RULE = Cause(code="M09", title=TITLE, page=PAGE, find=find, beats=("C01", "M02"), sure_by=(Ground.WORDS, Ground.MARKS))
