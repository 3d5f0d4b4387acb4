"""What is known of devices that ranks wait for: the input of the rules about them. Pure."""

import re
from collections.abc import Collection, Sequence

from paceline.diagnosis.case import Case, GroupCounters
from paceline.diagnosis.hang.wait_graph import HOST_RECORDER
from paceline.diagnosis.snapshots import Frame
from paceline.diagnosis.stacks import has_any
from paceline.findings import Unknown
from paceline.recording.rank_sets import named_ranks

_WAITS_FOR_DEVICE = ("torch/cuda/__init__.py:synchronize", "torch/cuda/streams.py:synchronize")
_GPU_ERROR = re.compile(r"\bXid\b|NVRM:", re.IGNORECASE)


def has_any_device_wait(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame waits for the rank's own device."""
    return has_any(frames[:1], _WAITS_FOR_DEVICE) is not None


def open_counters(case: Case) -> dict[int, GroupCounters]:
    """Rank -> its counters in the group of the stall, of each waiting rank that is in the stall's collective."""
    still = case.stall
    if still is None:
        return {}
    return {
        rank: counters
        for rank in still.waiting
        if (heartbeat := case.heartbeats.get(rank)) is not None
        for counters in heartbeat.groups or ()
        if (counters.recorder, counters.name, counters.completed + 1) == (still.recorder, still.group, still.index)
        and counters.enqueued > counters.completed
    }


def kernel_lines_of_gpus(case: Case, ranks: Collection[int] | None = None) -> tuple[str, ...]:
    """The newest line of the kernel about a GPU, on each host of these ranks (of all)."""
    hosts = None if ranks is None else {case.host_of(rank) for rank in ranks}
    found = []
    for name, host in case.host_snapshots.items():
        lines = [line for line in host.kernel_lines or () if _GPU_ERROR.search(line)]
        if lines and (hosts is None or name in hosts):
            found.append(f"the kernel of {name} said: {lines[-1]}")
    return tuple(found)


def needs_device_facts(case: Case) -> None:
    """Raises Unknown if ranks wait in something of a device, and the recorders do not show whether a rank is missing."""
    still = case.stall
    if still is None or still.late or still.together or case.divergences:
        return
    waits = [rank for rank, heartbeat in case.heartbeats.items() if any(
        c.recorder != HOST_RECORDER and not c.is_over for c in heartbeat.groups or ()
    )]  # fmt: skip
    if waits:
        raise Unknown(f"in what {named_ranks(sorted(waits))} wait on the device, and for which ranks")
