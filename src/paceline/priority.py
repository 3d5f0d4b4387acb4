"""How much of a busy machine this process takes beside a job."""

import os
from contextlib import suppress


def lower_priority(nice: int) -> None:
    """Lower the priority of this process and of its session. `nice`: 10 is about a tenth of a core where nothing is idle, 19 a hundredth.

    Source:  sched(7), "The autogroup feature": among sessions, the nice value of a process counts within its own session alone
    """
    os.nice(nice)
    with suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(nice))
