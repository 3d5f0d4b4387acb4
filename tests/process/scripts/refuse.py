"""Runs a command whose system call is refused, as a sandbox does: `refuse.py NUMBER ERRNO COMMAND...`.

The filter is that of seccomp(2) for the machine on which it runs. It holds for every process below the command.
"""

import ctypes
import os
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_REFUSED, _ALLOWED = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(call: int, error: int) -> None:
    """Let the system call `call` fail with this error number in this process and all below it."""
    lines = [
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 1, call),
        (_RETURN, 0, 0, _REFUSED | error),
        (_RETURN, 0, 0, _ALLOWED),
    ]
    packed = b"".join(struct.pack("HBBI", *line) for line in lines)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(lines), packed))),
    ):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "this machine has no seccomp filters")


if __name__ == "__main__":
    refuse(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
