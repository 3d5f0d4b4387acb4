"""N13: the CUDA driver does not answer for a rank's process."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.device_waits import kernel_lines_of_gpus
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the CUDA driver does not answer for a rank"
PAGE = """\
The CUDA driver does not answer for a rank

What it means: A question to the driver about the rank's GPU does not return. The GPU has failed or fallen off the bus,
  or the driver is stuck. The rank's Python may still run.
Why it matters: The rank and torch's own watchdog wait inside the driver and cannot report it, and the process may not
  end when it is told to.
Deciding evidence: NCCL's flight recorder answers with its counters, which need no device, and does not answer with its
  entries, for which it asks the driver, for three seconds and longer while the job stands still.
Not to be confused with: N02 and N09, where the process answers nothing; N12, where the driver answers and the device is
  behind.
What to do: Look at the host that the finding names: `dmesg | grep -i xid`, and whether `nvidia-smi` returns. A GPU that
  has failed needs a reset or another host.
How to inject it: not on a healthy machine. The tests let every query of an event wait.
Source: NVIDIA, "XID errors"; torch's ProcessGroupNCCL on queries of events that hang.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    if case.stall is None:
        return
    for rank, heartbeat in sorted(case.heartbeats.items()):
        if heartbeat.driver_answers is not False:
            continue
        snapshot, said = case.snapshots.get(rank), kernel_lines_of_gpus(case, (rank,))
        is_in_kernel = snapshot is not None and snapshot.state == "D"
        yield CauseFinding(
            code="N13",
            title=TITLE,
            level=Level.STALL,
            ranks=(rank,),
            confidence=Confidence.HIGH if said or is_in_kernel else Confidence.LIKELY,
            since_step=case.stall.since_step,
            saw=(
                f"NCCL's flight recorder in pid {heartbeat.pid} on {heartbeat.host} answers with its counters and not with its entries, "
                "which it asks the driver for",
                *(("state D (uninterruptible)",) if is_in_kernel else ()),
                *said,
            ),
            ruled_out=("a stopped process: it answers what needs no device",),
            next=(f"on {heartbeat.host}: dmesg | grep -i xid; nvidia-smi (does it return?)",),
        )


RULE = Cause(
    code="N13",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("N01", "N06", "N07", "N08", "N11", "N12"),
    sure_by=(Ground.SNAPSHOT, Ground.EVENTS),
)
