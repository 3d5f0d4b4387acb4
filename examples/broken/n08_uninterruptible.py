"""N08: rank 1 looks at a file system that never answers, and hangs in state D. Needs root and /dev/fuse.

paceline run --nproc-per-node 2 examples/broken/n08_uninterruptible.py

The mount is a FUSE one whose server (this process) never says hello; it lives in a mount namespace of its own and goes with the rank.
"""

import ctypes
import os
import tempfile

from training import Training, arguments

CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x4000 | 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount_that_never_answers(path: str) -> None:
    """A FUSE file system without a server: its device stays open, and nobody reads from it."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    checked(libc.unshare(CLONE_NEWNS))
    checked(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    checked(libc.mount(b"dataset", path.encode(), b"fuse", 0, options.encode()))


args = arguments(__doc__)
with Training(args) as training, tempfile.TemporaryDirectory() as folder:
    for step in training.steps():
        if training.breaks(step):
            mount_that_never_answers(folder)
            os.listdir(folder)
        training.step()
