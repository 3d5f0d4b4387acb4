"""A program that runs another one where unshare(2) is refused: `python -c REFUSE_UNSHARE PROGRAM ARGUMENTS`."""

REFUSE_UNSHARE = """
import ctypes, os, struct, sys
# A seccomp filter that answers unshare(2) with EPERM, as many container runtimes do.
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
buffer = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
filter = Filter(len(code), ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"""
