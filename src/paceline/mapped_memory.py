"""Maps a file into memory without a descriptor that stays open. Standard library only.

`mmap.mmap` keeps a descriptor of its own for as long as the map lives (before Python 3.13 always), and closes it by its number. A program
that becomes a daemon closes all descriptors. The number is then that of a file of its own, which the end of the map would close.
"""

import ctypes
import mmap
import os
import weakref

_FAILED = ctypes.c_void_p(-1).value
_c = ctypes.CDLL(None, use_errno=True)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_c.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_shared(descriptor: int, size_bytes: int, *, offset: int = 0, populate: bool = False) -> memoryview:
    """The bytes of an open file, shared with every process that maps it. They are unmapped when nothing refers to them any more.

    `populate`: all pages are there at once. The descriptor is the caller's, who may close it.

    Raises:  OSError: the file cannot be mapped
    """
    flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
    address = _c.mmap(None, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, offset)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    array = (ctypes.c_ubyte * size_bytes).from_address(address)
    # Threads of C++ may use the memory until the process has ended.
    weakref.finalize(array, _c.munmap, address, size_bytes).atexit = False
    return memoryview(array).cast("B")


def discard(memory: memoryview) -> None:
    """Give the pages of mapped memory back, in the file too. The map stays, and reads as zeros."""
    _c.madvise(ctypes.addressof(ctypes.c_ubyte.from_buffer(memory)), len(memory), mmap.MADV_REMOVE)
