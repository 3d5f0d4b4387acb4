"""GPUs do what they were told later than it is asked of them, and a copy of a tensor waits for the current stream alone."""

from __future__ import annotations

import sys


def wait() -> bool:
    """Wait until each GPU with memory of this process has done all its work. Returns whether there is one.

    The script may write to a tensor in another stream: a batch that is fetched ahead, a copy to pinned memory.
    """
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return False
    used = [number for number in range(cuda.device_count()) if cuda.memory_reserved(number)]
    for number in used:
        cuda.synchronize(number)
    return bool(used)
