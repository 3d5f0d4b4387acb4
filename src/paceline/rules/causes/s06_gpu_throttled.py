"""S06: a GPU runs slower than the others."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.slow.slowdown import cost_text, late_ranks, steady_timing
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "GPU throttled"
SLOWER_FRACTION = 0.85
# NVML's bits: hardware slowdown, thermal (software, hardware), power brake.
_REASONS = {0x8: "hardware slowdown", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake"}
PAGE = """\
A GPU runs at a lower clock than the others

What it means: A GPU on the host of a late rank is slowed down. Either the driver reports a slowdown (heat, power
  brake, hardware), or the GPU's clock under load is well below the median of the job's GPUs.
Why it matters: One hot GPU slows down every rank.
Deciding evidence: NVML's throttle reasons and the SM clock of each GPU over the window, together with late ranks on
  that host.
Not to be confused with: S01 (the clocks are equal, but the rank has more work); R08 (two ranks on one GPU).
What to do: Take the host out of service, check fans and power caps (nvidia-smi -q -d PERFORMANCE), and replace the
  GPU. Preview: this cause has not been tested on a real GPU.
How to inject it: nvidia-smi -lgc 600,600 on one GPU, as root.
Source: NVML, nvmlDeviceGetCurrentClocksEventReasons.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    timing = steady_timing(case)
    if len(timing.ranks) < 2 or not any(host.gpus for host in timing.hosts):
        return
    late = late_ranks(timing)
    if late is None:
        return
    clocks = [gpu["sm_clock_mhz"] for host in timing.hosts for gpu in host.gpus or () if gpu.get("sm_clock_mhz")]
    if not clocks:
        raise Unknown("the clocks of the GPUs")
    for host in timing.hosts:
        ranks = tuple(rank.rank for rank in late.ranks if rank.host == host.host)
        said = [text for gpu in host.gpus or () if (text := _slow(gpu, median(clocks)))]
        if not ranks or not said:
            continue
        yield CauseFinding(
            code="S06",
            title=TITLE,
            level=Level.SLOW,
            ranks=ranks,
            hosts=(host.host,),
            confidence=Confidence.LIKELY,
            since_step=late.since_step,
            saw=(*said[:2], f"{named_ranks(ranks)} on {host.host}: {cost_text(late.gain_seconds, timing)}"),
            next=(f"on {host.host}: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,CLOCK",),
        )


def _slow(gpu: dict[str, Any], usual_mhz: float) -> str:
    bits = int(gpu.get("throttle_reasons") or 0)
    reasons = ", ".join(text for bit, text in _REASONS.items() if bits & bit)
    clock = gpu.get("sm_clock_mhz")
    slower = clock is not None and clock < SLOWER_FRACTION * usual_mhz
    if not reasons and not slower:
        return ""
    return f"GPU {gpu.get('index', '?')} runs at {clock} MHz, the median is {usual_mhz:.0f}" + (
        f": {reasons}" if reasons else ""
    )


RULE = Cause(code="S06", title=TITLE, page=PAGE, find=find, beats=("S01",), preview=True, sure_by=(Ground.TIMES,))
