"""/proc/PID/syscall as facts: the system call that a thread waits in, and the argument that names its file."""

from dataclasses import dataclass

RUNNING, PAGE_FAULT = "running", "page fault"

# Only calls in which training processes were seen waiting. Numbers: the kernel's own tables, one per kind of processor.
_NUMBERS = {
    "x86_64": {
        0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 8: "lseek", 9: "mmap",
        11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 23: "select", 26: "msync",
        34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
        47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync",
        75: "fdatasync", 76: "truncate", 77: "ftruncate", 80: "chdir", 82: "rename", 83: "mkdir", 84: "rmdir", 87: "unlink",
        89: "readlink", 128: "rt_sigtimedwait", 137: "statfs", 138: "fstatfs", 162: "sync", 202: "futex", 217: "getdents64",
        219: "restart_syscall", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat",
        263: "unlinkat", 264: "renameat", 267: "readlinkat", 270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range",
        281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 307: "sendmmsg",
        318: "getrandom", 326: "copy_file_range", 332: "statx", 426: "io_uring_enter", 435: "clone3", 437: "openat2", 439: "faccessat2",
        441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat", 43: "statfs",
        44: "fstatfs", 45: "truncate", 46: "ftruncate", 47: "fallocate", 48: "faccessat", 49: "chdir", 56: "openat", 57: "close",
        61: "getdents64", 62: "lseek", 63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv",
        70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 78: "readlinkat", 79: "newfstatat", 80: "fstat",
        81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 128: "restart_syscall", 137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto",
        207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 215: "munmap", 220: "clone", 221: "execve", 222: "mmap", 227: "msync",
        242: "accept4", 243: "recvmmsg", 260: "wait4", 269: "sendmmsg", 278: "getrandom", 285: "copy_file_range", 291: "statx",
        426: "io_uring_enter", 435: "clone3", 437: "openat2", 439: "faccessat2", 441: "epoll_pwait2", 449: "futex_waitv",
        455: "futex_wait",
    },
}  # fmt: skip
_DESCRIPTOR_FIRST = (
    "read write close fstat lseek ioctl pread64 pwrite64 readv writev connect accept accept4 sendto recvfrom sendmsg recvmsg "
    "recvmmsg sendmmsg fcntl flock fsync fdatasync ftruncate fstatfs getdents64 sync_file_range fallocate preadv pwritev splice "
    "epoll_wait epoll_pwait epoll_pwait2"
)
_PATH_FIRST = "open stat lstat access truncate chdir rename mkdir rmdir unlink readlink statfs execve"
_PATH_SECOND = "openat openat2 newfstatat statx unlinkat renameat readlinkat mkdirat faccessat faccessat2"
# Position of the path among the arguments.
_PATH_AT = dict.fromkeys(_PATH_FIRST.split(), 0) | dict.fromkeys(_PATH_SECOND.split(), 1)
# copy_file_range(from, ...), sendfile(to, from, ...): the descriptor that is read.
_DESCRIPTOR_AT = dict.fromkeys(_DESCRIPTOR_FIRST.split(), 0) | {"copy_file_range": 0, "sendfile": 1}


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One system call that has not returned. At most one of `descriptor` and `path_address` is known."""

    name: str
    """Name of the call."""
    descriptor: int | None = None
    """File descriptor of the call."""
    path_address: int | None = None
    """Address of the path in the process's own memory."""


def parse_system_call(text: str, machine: str) -> SystemCall | None:
    """/proc/PID/syscall: "running", or a number with six arguments; -1 is a fault in the kernel, such as for a page. None for neither.

    Holds:  "0 0x5 ..." on x86_64 is a read from descriptor 5
    """
    words = text.split()
    if not words:
        return None
    if words[0] == "running":
        return SystemCall(RUNNING)
    try:
        number = int(words[0])
        arguments = [int(word, 16) for word in words[1:7]]
    except ValueError:
        return None
    if number == -1:
        return SystemCall(PAGE_FAULT)
    name = _NUMBERS.get(machine, {}).get(number, f"call {number}")
    if (place := _PATH_AT.get(name)) is not None and place < len(arguments):
        return SystemCall(name, path_address=arguments[place])
    if (place := _DESCRIPTOR_AT.get(name)) is not None and place < len(arguments):
        return SystemCall(name, descriptor=arguments[place])
    return SystemCall(name)
