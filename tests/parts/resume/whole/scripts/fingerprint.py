"""What the scripts beside this file write about themselves: draws of each generator, a hash of a state, a pause in each step.

Loader workers of these scripts are forks, as by default before Python 3.14.
"""

import hashlib
import multiprocessing
import os
import random
import time

import numpy as np
import torch

multiprocessing.set_start_method("fork", force=True)


def draws():
    """One draw of each global generator."""
    return f"{random.random()!r} {float(np.random.rand())!r} {torch.rand(()).item()!r}"


def digest(state):
    """SHA-256 of a state_dict, names and bytes, in the order of the names."""
    sha = hashlib.sha256()
    _add(sha, state)
    return sha.hexdigest()


def pause():
    """SLOW_SECONDS long, so that somebody can look while the script trains."""
    seconds = float(os.environ.get("SLOW_SECONDS", "0"))
    if seconds:
        time.sleep(seconds)


def _add(sha, value):
    if isinstance(value, torch.Tensor):
        sha.update(f"{value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            sha.update(f"{key}:".encode())
            _add(sha, value[key])
    elif isinstance(value, list | tuple):
        for one in value:
            _add(sha, one)
    else:
        sha.update(repr(value).encode())
