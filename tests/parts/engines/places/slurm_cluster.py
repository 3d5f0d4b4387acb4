"""A Slurm cluster of this test alone: munged, slurmctld, and one slurmd per emulated host, everything in one directory and ended with it.

Host 0 is where slurmctld runs and where commands are given; the others are the nodes. One node can be switched off.
"""

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.parts.lab.emulate.hosts import Hosts

COMMANDS = ("sbatch", "salloc", "scontrol", "scancel", "squeue", "sacct", "srun", "sinfo")
DAEMONS = ("slurmctld", "slurmd", "munged")
_UP_SECONDS = 40.0

CONFIGURATION = """\
ClusterName=paceline
SlurmctldHost={controller}
SlurmctldPort=6817
SlurmdPort=6818
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=60
MessageTimeout=10
KillWait=5
InactiveLimit=0
WaitTime=0
MinJobAge=300
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,sched_min_interval=0,bf_interval=2
EnforcePartLimits=ALL
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
NodeName={nodes} CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES PriorityTier=1 MaxTime=60 DefaultTime=10 State=UP
PartitionName=short Nodes={nodes} MaxTime=1 State=UP
PartitionName=urgent Nodes={nodes} MaxTime=5 PriorityTier=10 State=UP
"""


def missing() -> str | None:
    """Why there can be no cluster here; None where there can."""
    if os.geteuid() != 0:
        return "needs root: hosts with networks of their own"
    absent = [name for name in (*DAEMONS, "sbatch") if _path_of(name) is None]
    return (
        f"not installed: {', '.join(absent)} (apt-get install slurmctld slurmd slurm-client munge)" if absent else None
    )


class SlurmCluster:
    """`nodes` hosts algo-2, algo-3, ... that run slurmd, and algo-1 with slurmctld; lives for a `with` block.

    `environ`: what a command needs so that it speaks to this cluster, beside the environment that was given.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str], *, nodes: int = 2, cpus: int = 4) -> None:
        self.directory = directory
        self.hosts = Hosts(nodes + 1)
        self.node_names = self.hosts.names[1:]
        self._cpus = cpus
        self._binaries = directory / "bin"
        self._munge = directory / "munge" / "socket"
        self._stack = ExitStack()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        path = os.pathsep.join((str(self._binaries), environ.get("PATH", os.defpath)))
        self.environ = {**environ, "PATH": path, "SLURM_CONF": str(directory / "slurm.conf")}

    def __enter__(self) -> Self:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(self.hosts)
            self._write_files()
            self._start_munge()
            self._start("slurmctld", 0, "-D")
            for index in range(1, self.hosts.count):
                self.power_on(index)
            self.until(self._all_idle, _UP_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every daemon, then the hosts with all that runs in them."""
        for process in reversed(self._daemons.values()):
            process.kill()
            process.wait()
        self._daemons.clear()
        self._stack.close()

    def power_off(self, index: int) -> None:
        """Everything in this host ends at once and its cable is cut, as when somebody pulls the plug."""
        self.hosts.power_off(index)
        self._daemons.pop(self.hosts.names[index]).wait()

    def power_on(self, index: int) -> None:
        """Plug it in again and start its slurmd."""
        self.hosts.mend(index)
        name = self.hosts.names[index]
        (self.directory / f"spool-{name}").mkdir(exist_ok=True)
        self._start("slurmd", index, "-D", "-N", name, key=name)
        # One that was said to be down stays so until somebody says otherwise.
        self.command("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)

    def say_down(self, index: int) -> None:
        """Tell slurmctld what it would find out by itself after a minute."""
        self.command("scontrol", "update", f"NodeName={self.hosts.names[index]}", "State=DOWN", "Reason=switched off")

    def is_on(self, index: int) -> bool:
        """Whether this host has not been switched off."""
        return self.hosts.names[index] in self._daemons

    def command(self, *argv: str, check: bool = True) -> str:
        """What a Slurm command answers, asked on host 0."""
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=False, timeout=60)
        if check and done.returncode:
            raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for a condition; its value. Fails with the daemons' last words."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"did not come true within {seconds} s\n{self.logs()}"
            time.sleep(0.1)
        return value

    def all_up(self) -> None:
        """Wait until every node can take a job."""
        self.until(self._all_idle, _UP_SECONDS)

    def logs(self) -> str:
        """The end of every daemon's log."""
        files = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2500:]}" for file in files)

    def _all_idle(self) -> bool:
        for name, process in self._daemons.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}\n{self.logs()}"
        states = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T", check=False).split()
        return states == ["idle"] * len(self.node_names)

    def _write_files(self) -> None:
        for name in ("bin", "state", "munge"):
            (self.directory / name).mkdir(exist_ok=True)
        # munged refuses a directory that others may write to.
        (self.directory / "munge").chmod(0o755)
        nodes = f"algo-[2-{self.hosts.count}]"
        text = CONFIGURATION.format(
            controller=self.hosts.names[0], munge=self._munge, directory=self.directory, nodes=nodes, cpus=self._cpus
        )
        (self.directory / "slurm.conf").write_text(text)
        for name in COMMANDS:
            if (found := _path_of(name)) is not None:
                self._wrap(name, found)

    def _wrap(self, name: str, found: str) -> None:
        """A command of this name that is carried out on host 0."""
        argv = shlex.join((*self.hosts.prefix(0), found))
        file = self._binaries / name
        file.write_text(f'#!/bin/sh\nexec {argv} "$@"\n')
        file.chmod(0o755)

    def _start_munge(self) -> None:
        key = self.directory / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [f"--{name}-file={self.directory}/munge/{name}" for name in ("key", "pid", "seed", "log")]
        munged = _path_of("munged")
        assert munged is not None
        argv = [munged, "--foreground", "--force", f"--socket={self._munge}", *files]
        self._daemons["munged"] = self._popen(argv, "munged")
        self.until(self._munge_answers, 10.0)

    def _munge_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(self._munge))
            except OSError:
                return False
        return True

    def _start(self, daemon: str, index: int, *argv: str, key: str = "") -> None:
        found = _path_of(daemon)
        assert found is not None
        self._daemons[key or daemon] = self._popen([*self.hosts.prefix(index), found, *argv], key or daemon)

    def _popen(self, argv: list[str], name: str) -> "subprocess.Popen[bytes]":
        with (self.directory / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )


def _path_of(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
