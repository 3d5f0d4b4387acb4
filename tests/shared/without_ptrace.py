"""Runs a program that may neither read another process's memory nor trace it, as Yama's ptrace_scope 1 has it where the kernel has no Yama.

    python without_ptrace.py PROGRAM ARGUMENT...

What is refused is what Yama refuses; what /proc shows stays as it is for this user.
Source:  seccomp(2); Linux, Documentation/admin-guide/LSM/Yama.rst; the numbers are those of x86_64 and of aarch64
"""

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD_NUMBER, _IS_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBERS = {"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}
"""Machine -> the numbers of ptrace, process_vm_readv and process_vm_writev."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_ptrace() -> None:
    """From now on this process, and what it starts, may do neither.

    Raises:  OSError: this kernel has no seccomp
    """
    numbers = _NUMBERS[platform.machine()]
    steps = [(_LOAD_NUMBER, 0, 0, 0)]
    steps += [(_IS_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    text = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(text)
    program = _Program(len(steps), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    refuse_ptrace()
    os.execvp(sys.argv[1], sys.argv[1:])
