"""N11: all ranks of a group have come to a collective, and it does not end on the devices."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, name_of_recorder
from paceline.diagnosis.hang.device_waits import kernel_lines_of_gpus, needs_device_facts, open_counters
from paceline.diagnosis.hang.nccl_counts import nccl_counts
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "a collective that all ranks have come to does not end"
PAGE = """\
A collective that all ranks have come to does not end

What it means: Every rank of the process group has issued the collective, the calls agree, and no rank waits for
  another one elsewhere. So no rank is missing: a GPU, a link between GPUs or hosts, or NCCL does not end the
  collective. Or a kernel that one rank issued before it does not end.
Why it matters: No stack shows it: each rank waits for its own device. Without the flight recorder it looks like a rank
  that is late, and the search begins at the wrong rank.
Deciding evidence: In NCCL's flight recorder the oldest collective that is not over has the same number on all ranks of
  the group. If torch was told to time its collectives (TORCH_NCCL_ENABLE_TIMING=1, on ProcessGroupNCCL), the recorder
  says on which devices the collective has begun. If it has begun on all, no kernel before it is the reason.
Not to be confused with: N01 to N09, where a rank has not come; M01 to M03, where the calls differ; N12, where the
  recorder shows whose device is behind; N13, where the driver of one rank does not answer.
What to do: Look for errors of the GPUs and the links on each host: `dmesg | grep -i xid`, `nvidia-smi -q`,
  `nvidia-smi nvlink -e`. A GPU that uses little power while the others are busy is suspect. Start the job again on
  other hosts, or with NCCL_DEBUG=INFO and TORCH_NCCL_ENABLE_TIMING=1.
How to inject it: on a GPU, `torch.cuda._sleep(1 << 62)` on one rank before a collective.
Source: torch's flight recorder; NVIDIA, NCCL troubleshooting and "XID errors".
"""


def find(case: Case) -> Iterator[CauseFinding]:
    still = case.stall
    needs_device_facts(case)
    if still is None or not still.together or case.divergences:
        return
    counts = nccl_counts(case)
    begun = [counters.started for counters in open_counters(case).values()]
    on_all = bool(begun) and all(started is True for started in begun) and len(begun) == len(still.waiting)
    what = f"{still.operation or 'collective'} {still.index} of group {still.group}"
    size = f", {still.payload}" if still.payload else ""
    being = "is" if len(still.waiting) == 1 else "are"
    yield CauseFinding(
        code="N11",
        title=TITLE,
        level=Level.STALL,
        ranks=(),
        confidence=Confidence.HIGH if on_all else Confidence.LIKELY,
        since_step=still.since_step,
        saw=(
            f"{named_ranks(still.waiting)} {being} in {what}{size}, by {name_of_recorder(still.recorder)}: no rank is missing",
            "the collective has begun on every device"
            if on_all
            else "the recorder does not say on which devices the collective has begun, so a kernel before it may be the reason",
            *(
                ("NCCL's RAS service: all ranks have launched as many collectives",)
                if counts is not None and counts.all_alike
                else ()
            ),
            *kernel_lines_of_gpus(case),
        ),
        ruled_out=(
            "a late rank: all ranks of the group have issued the collective, and none of them waits elsewhere",
            "calls that differ: the recorder has the same call on all of them",
        ),
        next=(
            "on each host: dmesg | grep -i xid; nvidia-smi -q -d POWER,UTILIZATION,ECC; nvidia-smi nvlink -e",
            "a GPU that uses little power while the others are busy is the one to look at first",
            *(
                ()
                if on_all
                else ("what would decide it: run it again with TORCH_NCCL_ENABLE_TIMING=1 (not with nccl2)",)
            ),
        ),
    )


RULE = Cause(code="N11", title=TITLE, page=PAGE, find=find, sure_by=(Ground.CALLS,))
