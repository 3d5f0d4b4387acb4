"""Memory that the ranks of one host share: a file without a name, mapped by all of them.

The file never has a name that could be left behind: it is anonymous memory (`memfd_create`), which is not bounded by the size of /dev/shm,
small in containers; where the kernel refuses that, an unnamed file in /dev/shm or in the temporary directory. Its descriptor travels to the
other ranks over a socket. When the last process that mapped it is gone, however it went, the memory is the kernel's again.
"""

import mmap
import os
import tempfile

import torch

PAGE_BYTES = 4096


def unnamed_file(size_bytes: int) -> int:
    """Descriptor of a file of that many bytes, all of them reserved, so that writing to it later cannot fail for want of room.

    Raises:  OSError: no place has the room
    """
    refusals = []
    for open_file in (_anonymous_memory, _file_in_shared_memory, _temporary_file):
        try:
            descriptor = open_file()
        except (OSError, AttributeError) as error:
            refusals.append(str(error))
            continue
        try:
            # A page that cannot be had when it is first written would be SIGBUS; asked for beforehand it is an error.
            os.posix_fallocate(descriptor, 0, size_bytes)
            return descriptor
        except OSError as error:
            os.close(descriptor)
            refusals.append(str(error))
    raise OSError(f"no {size_bytes} bytes of memory to share between the ranks of this host: {'; '.join(refusals)}")


def _anonymous_memory() -> int:
    return os.memfd_create("paceline-exchange", os.MFD_CLOEXEC)


def _file_in_shared_memory() -> int:
    return _unnamed_in("/dev/shm")


def _temporary_file() -> int:
    return _unnamed_in(tempfile.gettempdir())


def _unnamed_in(directory: str) -> int:
    return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


class Segment:
    """One mapping of the file: cells of 8 bytes at the front for counters, then bytes that tensors are laid over."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        """Maps it, and closes the descriptor."""
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        try:
            self.map = mmap.mmap(descriptor, size_bytes, flags=flags)
        finally:
            os.close(descriptor)
        self.cells = memoryview(self.map).cast("Q")

    def tensor(self, dtype: torch.dtype, offset_bytes: int, count: int) -> torch.Tensor:
        """A flat tensor of `count` elements over these bytes; it keeps the mapping alive."""
        # One that is made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            tensor: torch.Tensor = torch.frombuffer(self.map, dtype=dtype, count=count, offset=offset_bytes)
        return tensor


def whole_pages(size_bytes: int) -> int:
    """Rounded up, so that what follows starts on a page of its own."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
