"""Network interfaces of this host: addresses, speed and MTU, from the kernel's own files and one ioctl."""

import array
import fcntl
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv6Address
from pathlib import Path

import msgspec

_SIOCGIFCONF = 0x8912
# struct ifreq: a name of 16 bytes, then an address of 24; an IPv4 address lies 4 bytes into it.
_ENTRY_BYTES, _NAME_BYTES, _ADDRESS_AT = 40, 16, 20
_UP = 0x1
_LINK_LOCAL = 0x20


class NetworkInterface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface. None: the kernel does not say it."""

    name: str
    """Name of the interface."""
    up: bool | None = None
    """Whether it is up; None: not known."""
    addresses: tuple[str, ...] = ()
    """Its IPv4 and IPv6 addresses."""
    speed_mbps: int | None = None
    """10^6 bits a second; None: not known."""
    mtu_bytes: int | None = None
    """Largest packet."""


def parse_if_inet6(text: str) -> dict[str, list[str]]:
    """Interface -> its IPv6 addresses, from /proc/net/if_inet6. A link-local one names its interface, as connect(2) wants it.

    Holds:   "fe80...01 02 40 20 80 eth0" -> {"eth0": ["fe80::1%eth0"]}
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, _, _, scope, _, name = line.split()
        zone = f"%{name}" if int(scope, 16) & _LINK_LOCAL else ""
        found.setdefault(name, []).append(f"{IPv6Address(bytes.fromhex(address))}{zone}")
    return found


def parse_ifconf(entries: bytes) -> dict[str, list[str]]:
    """Interface -> its IPv4 addresses, from the answer to SIOCGIFCONF. An address with a label of its own (eth0:1) is the interface's.

    Source:  netdevice(7)
    """
    found: dict[str, list[str]] = {}
    for begin in range(0, len(entries), _ENTRY_BYTES):
        label = entries[begin : begin + _NAME_BYTES].split(b"\0")[0].decode(errors="replace")
        address = socket.inet_ntoa(entries[begin + _ADDRESS_AT : begin + _ADDRESS_AT + 4])
        found.setdefault(label.partition(":")[0], []).append(address)
    return found


def read_interfaces(folder: Path = Path("/sys/class/net")) -> list[NetworkInterface]:
    """The network interfaces of this host."""
    inet, inet6 = parse_ifconf(_read_ifconf()), parse_if_inet6(_text(Path("/proc/net/if_inet6")))
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else sorted({*inet, *inet6})
    return [_interface(folder / name, inet, inet6) for name in names]


def _interface(path: Path, inet: Mapping[str, list[str]], inet6: Mapping[str, list[str]]) -> NetworkInterface:
    flags, speed, mtu = (_number(path / name) for name in ("flags", "speed", "mtu"))
    return NetworkInterface(
        name=path.name,
        up=None if flags is None else bool(flags & _UP),
        addresses=(*inet.get(path.name, ()), *inet6.get(path.name, ())),
        # A virtual or a sleeping card has -1.
        speed_mbps=speed if speed is not None and speed > 0 else None,
        mtu_bytes=mtu,
    )


def _read_ifconf() -> bytes:
    """The answer to SIOCGIFCONF. It is truncated if the buffer is too small; then it is requested again with a larger one."""
    size = 64 * _ENTRY_BYTES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        while True:
            room = array.array("B", bytes(size))
            address, _ = room.buffer_info()
            answer = fcntl.ioctl(any_socket, _SIOCGIFCONF, struct.pack("iP", size, address))
            length: int = struct.unpack("iP", answer)[0]
            if length < size:
                return room.tobytes()[:length]
            size *= 2


def _number(path: Path) -> int | None:
    try:
        return int(_text(path), 0)
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
