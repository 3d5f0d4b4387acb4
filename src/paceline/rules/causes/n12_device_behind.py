"""N12: a rank has come, or would come, and its device has not: work that the rank issued before does not end there."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, name_of_recorder
from paceline.diagnosis.hang.device_waits import has_any_device_wait, kernel_lines_of_gpus, open_counters
from paceline.diagnosis.hang.lagging_ranks import late_ranks
from paceline.diagnosis.stacks import place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a rank's device is behind"
PAGE = """\
A rank's device is behind

What it means: The rank's Python has done its part, and its GPU has not. A kernel or a collective that the rank issued
  does not end on its device, and what follows on the same stream waits behind it.
Why it matters: The rank's stack shows a wait for the device, as on every other rank. Nothing in the script is at fault
  at that line.
Deciding evidence: One of three observations. A collective is over on the other ranks, and is not over on this one, by
  NCCL's flight recorder. Or a collective has begun on the other devices, and not on this one (with
  TORCH_NCCL_ENABLE_TIMING=1). Or the rank has not come to the collective and its main thread waits for its own device.
Not to be confused with: N11, where no device is seen to be behind; N13, where the driver does not answer at all; N01
  and N06, where the rank's own code is the reason.
What to do: Look for an error of this GPU: `dmesg | grep -i xid` and `nvidia-smi -q` on the host that the finding names.
  If there is none, a kernel of the model does not end: run it again with CUDA_LAUNCH_BLOCKING=1, and look at the line.
How to inject it: on a GPU, `torch.cuda._sleep(1 << 62)` on one rank, then a collective.
Source: torch's flight recorder, fields state and time_discovered_started_ns.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    still = case.stall
    if still is None:
        return
    recorder = name_of_recorder(still.recorder)
    what = f"{still.operation or 'collective'} {still.index} of group {still.group}"
    waiting = (
        f"{named_ranks(still.waiting)} wait{'s' * (len(still.waiting) == 1)}"
        if still.waiting
        else "the job stands still"
    )
    if still.behind:
        saw = f"other devices wait in {what} or are past it, and that of {named_ranks(still.behind)} is not as far, by {recorder}"
        saw += f"; {waiting}"
        yield _finding(case, still.behind, saw, Confidence.LIKELY)
        return
    begun = {rank: counters.started for rank, counters in open_counters(case).items()}
    not_begun = tuple(sorted(rank for rank, started in begun.items() if started is False))
    if (
        still.together
        and not_begun
        and all(started is not None for started in begun.values())
        and len(not_begun) < len(begun)
    ):
        saw = (
            f"{what} has begun on the devices of the others and not on that of {named_ranks(not_begun)}, by {recorder}"
        )
        yield _finding(case, not_begun, saw, Confidence.HIGH)
        return
    for late in late_ranks(case):
        if has_any_device_wait(late.frames):
            saw = f"its main thread is {place_of(late.snapshot)}, and waits for its own device; {late.how_late}"
            yield _finding(case, (late.rank,), saw, Confidence.LIKELY)


def _finding(case: Case, ranks: tuple[int, ...], saw: str, confidence: Confidence) -> CauseFinding:
    said = kernel_lines_of_gpus(case, ranks)
    return CauseFinding(
        code="N12",
        title=TITLE,
        level=Level.STALL,
        ranks=ranks,
        confidence=Confidence.HIGH if said else confidence,
        since_step=case.stall.since_step if case.stall is not None else None,
        saw=(saw, *said),
        ruled_out=("a rank that has not come: its Python waits for the device",),
        next=(
            f"on {', '.join(dict.fromkeys(case.host_of(rank) for rank in ranks))}: dmesg | grep -i xid; nvidia-smi -q",
            "no error there: run it again with CUDA_LAUNCH_BLOCKING=1, and look at the line that does not return",
        ),
    )


RULE = Cause(code="N12", title=TITLE, page=PAGE, find=find, beats=("N01", "N06", "N11"), sure_by=(Ground.CALLS,))
