"""How long a test waits for what must happen before it calls it missing."""

import os


def patient(seconds: float) -> float:
    """`seconds`, as many times longer as there are more runnable tasks than cores.

    A test fails on what does not happen, never on a machine that is busy with something else.
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
