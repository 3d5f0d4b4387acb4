"""C09: the volume that rank 1 saves its checkpoint to has no room. Needs root, for a volume of its own.

paceline run --nproc-per-node 2 examples/broken/c09_disk_full.py
"""

import atexit
import ctypes
import os
import tempfile

import torch
from training import Training, arguments

CLONE_NEWNS, MS_PRIVATE_RECURSIVE, MNT_DETACH = 0x20000, 0x44000, 2
args = arguments(__doc__, disk_kib=64)


def small_volume(kib: int) -> str:
    """A tmpfs of so many KiB that only the main thread sees, in a mount namespace that ends with it."""
    directory = tempfile.mkdtemp(prefix="paceline-broken-")
    libc = ctypes.CDLL(None, use_errno=True)
    for failed in (
        libc.unshare(CLONE_NEWNS),
        libc.mount(b"none", b"/", None, MS_PRIVATE_RECURSIVE, None),
        libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, f"size={kib}k".encode()),
    ):
        if failed:
            raise SystemExit(f"no volume of our own: {os.strerror(ctypes.get_errno())}")
    atexit.register(os.rmdir, directory)
    atexit.register(libc.umount2, directory.encode(), MNT_DETACH)  # runs first
    return directory


with Training(args) as training:
    volume = training.is_broken and small_volume(args.disk_kib)
    for step in training.steps():
        if volume and step >= args.at_step:
            with open(f"{volume}/checkpoint-{step}.bin", "wb") as file:
                file.write(torch.ones(2**14).numpy().tobytes())
        training.step()
