"""Hosts with a real sshd each, in networks of their own, and one more host from which jobs are submitted."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import paceline
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.namespace_holder import in_network_of

SSHD = "/usr/sbin/sshd"
_PRIVILEGE_SEPARATION = Path("/run/sshd")
_SOURCE = Path(paceline.__file__).parent.parent
_CONFIG = """\
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv HOME={home} OMP_NUM_THREADS=1 PYTHONPATH={source}
LogLevel ERROR
"""


class SshHosts:
    """`count` hosts algo-1, algo-2, ... with an sshd, and a last one from which they are reached. Each has a home directory of its own."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.count = count
        self.network = Hosts(count + 1)
        self.names = self.network.names[:count]
        self.servers: list[subprocess.Popen[bytes] | None] = [None] * count
        self._made: list[Path] = []

    def __enter__(self) -> "SshHosts":
        self.directory.mkdir(parents=True, exist_ok=True)
        if not _PRIVILEGE_SEPARATION.exists():
            _PRIVILEGE_SEPARATION.mkdir()
            self._made.append(_PRIVILEGE_SEPARATION)
        for key in ("host", "user"):
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / key)]
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        public = (self.directory / "host.pub").read_text()
        known = "".join(f"{name} {public}" for name in self.names)
        (self.directory / "known_hosts").write_text(known)
        self.ssh_config("config")
        self.network.__enter__()
        try:
            for index in range(self.count):
                self.start_server(index)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything on every host."""
        self.network.close()
        for server in self.servers:
            if server is not None:
                server.wait()
        for directory in self._made:
            with contextlib.suppress(OSError):
                directory.rmdir()

    def ssh_config(self, name: str, first: str = "") -> Path:
        """A configuration of ssh for the submitting host; `first` comes first, and so wins. The host "nokey" is offered no key."""
        file = self.directory / name
        every = f"  User root\n  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n  UserKnownHostsFile {self.directory}/known_hosts\n"
        key = f"Host * !nokey\n  IdentityFile {self.directory}/user\nHost nokey\n  IdentityFile /nonexistent\n"
        file.write_text(f"{first}Host *\n{every}{key}")
        return file

    @property
    def config(self) -> Path:
        return self.directory / "config"

    def home(self, index: int) -> Path:
        return self.directory / f"home{index}"

    def jobs(self, index: int) -> Path:
        return self.home(index) / ".paceline" / "jobs"

    def start_server(self, index: int) -> None:
        """Start the host's sshd where none runs, and wait until it listens."""
        running = self.servers[index]
        if running is not None and running.poll() is None:
            return
        self.home(index).mkdir(exist_ok=True)
        config = self.directory / f"sshd{index}"
        config.write_text(_CONFIG.format(keys=self.directory, home=self.home(index), source=_SOURCE))
        log = (self.directory / f"sshd{index}.log").open("ab")
        with log:
            server = self.network.run_in(
                index, [SSHD, "-D", "-e", "-f", str(config)], stderr=log, stdin=subprocess.DEVNULL
            )
        self.servers[index] = server
        tried = [
            sys.executable,
            "-c",
            f"import socket; socket.create_connection(('{self.network.address(index)}', 22), 1)",
        ]
        self.until(lambda: self.network.run_in(index, tried, stderr=subprocess.DEVNULL).wait() == 0, 20)

    def kill_servers(self, index: int) -> None:
        """SIGKILL to every sshd of a host, those of sessions included."""
        for pid in self.processes(index, "sshd"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server = self.servers[index]
        assert server is not None
        server.wait()

    def power_off(self, index: int) -> None:
        """The cable first, so that no connection is closed in order."""
        self.network.power_off(index)

    def processes(self, index: int, name: str = "") -> list[int]:
        """The processes of a host whose program begins with `name`."""
        return [pid for pid in in_network_of(self.network.keeper_pid(index)) if _name(pid).startswith(name)]

    def left(self, index: int) -> list[str]:
        """What runs on a host besides its sshd."""
        server = self.servers[index] if index < self.count else None
        here = {pid: _command(pid) for pid in self.processes(index) if server is None or pid != server.pid}
        return [command for command in here.values() if command]

    def submit(self, argv: Sequence[str], **options: object) -> "subprocess.Popen[bytes]":
        """Start a command on the submitting host."""
        return self.network.run_in(self.count, argv, **options)

    @staticmethod
    def until(condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "did not come true"
            time.sleep(0.05)


def ssh_is_here() -> str | None:
    """Why these hosts cannot be made; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ssh", "ssh-keygen", SSHD, "ip", "nsenter") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
