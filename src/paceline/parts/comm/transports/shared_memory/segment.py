"""Memory that the ranks of one host share: a file without a name, which all of them map.

The file never has a name, so no file can remain. It is anonymous memory (`memfd_create`), which the size of /dev/shm does not limit
(containers have a small /dev/shm). If the kernel refuses that, it is an unnamed file in /dev/shm or in the temporary directory. Its
descriptor is sent to the other ranks over a socket. When the last process that mapped it has ended, in whatever way, the kernel frees it.
"""

import os
import tempfile

from .....mapped_memory import map_shared

PAGE_BYTES = 4096


def unnamed_file(size_bytes: int) -> int:
    """Descriptor of a file of this many bytes. All bytes are reserved, so that a later write cannot fail for lack of space.

    Raises:  OSError: there is nowhere enough space
    """
    refusals = []
    for open_file in (_anonymous_memory, _file_in_shared_memory, _temporary_file):
        try:
            descriptor = open_file()
        except (OSError, AttributeError) as error:
            refusals.append(str(error))
            continue
        try:
            # A page that is not available at its first write would be SIGBUS. Reserving it now makes it an error.
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
    """One mapping of the file: cells of 8 bytes at the front for counters, then bytes for the arrays."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        """Map the file and close the descriptor."""
        try:
            self.map = map_shared(descriptor, size_bytes, populate=True)
        finally:
            os.close(descriptor)
        self.cells = self.map.cast("Q")


def whole_pages(size_bytes: int) -> int:
    """Round up to whole pages, so that the next data starts on a new page."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
