"""How a program runs beside a job's ranks on another host, for `paceline why --hosts`: by ssh, in a Slurm job, in a pod."""

import re
import shlex
from collections.abc import Sequence

from paceline.errors import UsageError
from paceline.parts.engines.ssh.options import Settings, host_names, ssh_argv

_JOB = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,7})?")
_POD = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}(?:/[a-z0-9][a-z0-9-]{0,62})?")


def command_on(place: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The command here that runs `argv` there. `place`: NODE or USER@NODE by ssh, slurm:JOB on each node of the job, pod:NAME[/CONTAINER].

    Raises:  UsageError U05: it is no such place
    """
    kind, colon, name = place.partition(":")
    if colon and kind == "slurm" and _JOB.fullmatch(name):
        each = ("--overlap", "--ntasks-per-node=1", "--unbuffered", "--quiet")
        return ("srun", f"--jobid={name}", *each, *argv)
    if colon and kind == "pod" and _POD.fullmatch(name):
        pod, _, container = name.partition("/")
        return ("kubectl", "exec", pod, *(("-c", container) if container else ()), "--", *argv)
    hosts = host_names(place) if kind not in ("slurm", "pod") else ()
    if len(hosts) != 1:
        raise UsageError(
            "U05",
            f"{place!r} is no host, Slurm job or pod",
            saw="node-b, slurm:4711 or pod:train-1 are",
            next="paceline why --help",
        )
    return (*ssh_argv(Settings(hosts=hosts), hosts[0]), shlex.join(argv))
