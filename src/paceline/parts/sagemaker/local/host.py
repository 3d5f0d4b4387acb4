"""One host of a job as a process, with its own /etc/hosts and /opt/ml. It runs the host's program, and no process remains.

This is a separate program: `main([SPEC])`. It starts the host's program in its own session and forwards SIGTERM. When that program has
ended, it ends all processes that the program left. When the server ends, in whatever way, its end of the lifeline pipe closes, and this
program kills the whole host. Standard library only.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.mounts import bind_over, rename_host
from paceline.namespaces import NamespaceRefused, enter_with_hosts
from paceline.prctl import Prctl, set_process

OPT_ML = Path("/opt/ml")
# The process that cleans up after an agent that was killed; see launch/agent/guardian.py.
_GUARDIAN = b"job-guardian"
_LOOK_SECONDS = 0.05
_LAST_WORDS_SECONDS = 5.0
_CANNOT_START = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """The settings of a host. `tree` "": /opt/ml is left alone. `to_all`: SIGTERM goes to the program's whole process group.

    `lifeline`: a descriptor that reaches end of file when the server has ended.
    """

    name: str
    addresses: Mapping[str, str]
    private: bool
    tree: str
    directory: str
    argv: Sequence[str]
    to_all: bool
    lifeline: int


def program(spec: HostSpec) -> list[str]:
    """The command that starts a host in this Python, whatever PYTHONPATH the job has."""
    fields = {name: getattr(spec, name) for name in HostSpec.__slots__}
    return _argv(json.dumps(fields))


def probe() -> list[str]:
    """The command of a program that prints which features of a host are refused here: nothing, `mounts WHY` or `hosts WHY`."""
    return _argv("probe")


def main(argv: Sequence[str]) -> int:
    """Run a host until its program has ended. Returns its exit code, or 128 + n if signal n ended it."""
    if argv[0] == "probe":
        return _probe()
    spec = HostSpec(**json.loads(argv[0]))
    try:
        _become(spec)
    except (NamespaceRefused, OSError) as refused:
        why = refused.args[0] if isinstance(refused, NamespaceRefused) else refused
        os.write(2, f"host {spec.name} cannot be made: {why}\n".encode())
        return _CANNOT_START
    set_process(Prctl.SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        set_process(Prctl.SET_PDEATHSIG, signal.SIGKILL)
        _execute(spec)
    return _keep(child, spec)


def _argv(argument: str) -> list[str]:
    package = str(Path(__file__).resolve().parents[4])
    place = f"import sys; sys.path.insert(0, {package!r})"
    code = f"{place}; from {__name__} import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-I", "-S", "-c", code, argument]


def _probe() -> int:
    stage = "hosts"
    try:
        enter_with_hosts({"algo-1": "127.0.0.2"})
        stage = "mounts"
        bind_over(Path("/"), OPT_ML)
    except (NamespaceRefused, OSError) as refused:
        why = refused.args[0] if isinstance(refused, NamespaceRefused) else refused
        os.write(1, f"{stage} {why}\n".encode())
    return 0


def _become(spec: HostSpec) -> None:
    # The first of these steps also creates the user namespace, if one is needed.
    if spec.private:
        enter_with_hosts(spec.addresses)
        rename_host(spec.name)
    if spec.tree:
        bind_over(Path(spec.tree), OPT_ML)


def _execute(spec: HostSpec) -> None:
    os.setsid()
    os.close(spec.lifeline)
    try:
        os.chdir(spec.directory)
        os.execvp(spec.argv[0], list(spec.argv))
    except OSError as error:
        os.write(2, f"{spec.argv[0]}: {error.strerror}\n".encode())
    os._exit(_CANNOT_START)


def _keep(child: int, spec: HostSpec) -> int:
    def pass_on(number: int, frame: Any) -> None:
        _signal(child, number, whole_group=spec.to_all)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    has_lifeline = True
    while (status := _ended(child)) is None:
        if select.select([spec.lifeline] if has_lifeline else [], [], [], _LOOK_SECONDS)[0]:
            has_lifeline = False
            _signal(child, signal.SIGKILL, whole_group=True)
    _end_the_rest()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _signal(child: int, number: int, *, whole_group: bool) -> None:
    # Before the program has its own group, it is a single process. After its end it has none, which is noticed a moment later.
    for send in (os.killpg, os.kill) if whole_group else (os.kill,):
        try:
            send(child, number)
        except ProcessLookupError:
            continue
        return


def _ended(child: int) -> int | None:
    """The wait status of the program once it has ended. Orphans that this process inherited are reaped meanwhile."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return status
        if pid == 0:
            return None


def _end_the_rest() -> None:
    """SIGKILL everything below this process. A process that cleans up after others gets a few seconds to end by itself."""
    deadline = time.monotonic() + _LAST_WORDS_SECONDS
    while left := list(_children()):
        late = time.monotonic() >= deadline
        for pid in left:
            if late or _GUARDIAN not in _command(pid):
                _signal(pid, signal.SIGKILL, whole_group=False)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_LOOK_SECONDS / 5)


def _children() -> Iterator[int]:
    me = str(os.getpid())
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    after_name = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if after_name[1] == me:
                yield int(entry)


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
