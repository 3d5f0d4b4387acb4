"""The `--option KEY=VALUE` options of the SSH engine, and the arguments of ssh that follow from them. Pure."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.errors import UsageError

WORKDIR = "~/.paceline/jobs"
AGENTS_PORT = 29500
# A silent host counts as lost after three requests without an answer, five seconds apart.
_ALIVE_SECONDS, _ALIVE_COUNT = 5, 3
_CONNECT_SECONDS = 10
# A job has no terminal for questions. The user's settings for logins (forwarded ports, a command) must not apply to it.
_ALWAYS = (
    "BatchMode=yes",
    f"ConnectTimeout={_CONNECT_SECONDS}",
    f"ServerAliveInterval={_ALIVE_SECONDS}",
    f"ServerAliveCountMax={_ALIVE_COUNT}",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "LogLevel=INFO",
)
# ssh passes the user's name to a shell if a ProxyCommand has %r. So only letters, digits and safe characters are allowed, for example
# DOMAIN\\user.
_USER = re.compile(r"\w(?:[\w.+\\-]*[\w.+-])?")
_HOST = re.compile(rf"(?:{_USER.pattern}@)?[A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of the ssh engine."""

    hosts: tuple[str, ...]
    """The hosts' names for ssh, in order of node rank."""
    spares: tuple[str, ...] = ()
    """Hosts that replace lost hosts."""
    user: str | None = None
    """User for the login; None: ssh chooses."""
    port: int | None = None
    """Port of the hosts' SSH servers; None: ssh chooses."""
    identity: str | None = None
    """File of the private key; None: ssh chooses."""
    ssh: str = "ssh"
    """The ssh program."""
    ssh_config: str | None = None
    """Configuration file of ssh; None: the user's own file."""
    options: tuple[str, ...] = ()
    """Further arguments of ssh."""
    python: str | None = None
    """The Python on the hosts; None: the path of this process's Python if a host has it, else python3."""
    agents_port: int | None = None
    """Port of the first host's agent; None: 29500, or a free port if 29500 is in use."""
    workdir: str = WORKDIR
    """The directory on every host in which each job has its own directory."""
    first_address: str | None = None
    """The address at which the hosts reach the first host; None: ssh's HostName of the first host."""


OPTIONS = tuple(Settings.__dataclass_fields__)


def read_settings(options: Mapping[str, str]) -> Settings:
    """The settings from the options.

    Raises:  UsageError U05: an invalid value, no hosts, or a host that is named twice
    """
    hosts, spares = host_names(options.get("hosts", "")), host_names(options.get("spares", ""))
    if not hosts:
        raise _refused("the ssh engine is given no hosts", "no --hosts", "--hosts node1,node2")
    named = (*hosts, *spares)
    twice = next((host for host in named if named.count(host) > 1), None)
    if twice is not None:
        raise _refused(
            f"the host {twice} is named twice", ",".join(named), f"--option hosts={','.join(dict.fromkeys(hosts))}"
        )
    return Settings(
        hosts=hosts,
        spares=spares,
        user=_user(options.get("user", "")),
        port=_number("port", options),
        identity=options.get("identity") or None,
        ssh=options.get("ssh") or "ssh",
        ssh_config=options.get("ssh_config") or None,
        options=_argv(options.get("options", "")),
        python=options.get("python") or None,
        agents_port=_number("agents_port", options),
        workdir=options.get("workdir") or WORKDIR,
        first_address=options.get("first_address") or None,
    )


def host_names(text: str) -> tuple[str, ...]:
    """The hosts of a comma-separated list. Each must be a word that ssh can only read as a host.

    Holds:   "a, b" -> ("a", "b"); "" -> ()
    Raises:  UsageError U05: a word is not a host
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if not _HOST.fullmatch(name):
            raise _refused(f"{name!r} is not the name of a host", text, "--hosts node1,user@node2")
    return names


def ssh_argv(settings: Settings, host: str, own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The arguments of ssh before the remote command. `own`: the connection's own arguments.

    Holds:   if an option is given twice, ssh takes the first, so --option options=... wins over ours
    """
    always = tuple(word for option in _ALWAYS for word in ("-o", option))
    return (settings.ssh, *own, *_chosen(settings), *always, "-T", host)


def typed(settings: Settings, host: str) -> str:
    """The command that shows a user what ssh itself reports about a host."""
    return shlex.join((settings.ssh, *_chosen(settings), host, "true"))


def in_home(path: str) -> str:
    """The path for a remote shell. It is quoted, except for a home directory at its beginning.

    Holds:   "~/a b" -> "~/'a b'"
    """
    home, slash, rest = path.partition("/")
    return f"{home}/{shlex.quote(rest)}" if slash and re.fullmatch(r"~\w*", home) and rest else shlex.quote(path)


def _chosen(settings: Settings) -> tuple[str, ...]:
    given = (("-F", settings.ssh_config), ("-l", settings.user), ("-p", settings.port), ("-i", settings.identity))
    return (*(word for flag, value in given if value is not None for word in (flag, str(value))), *settings.options)


def _user(name: str) -> str | None:
    if name and not _USER.fullmatch(name):
        raise _refused(f"user={name} is not the name of a user", f"--option user={name}", "--option user=NAME")
    return name or None


def _number(key: str, options: Mapping[str, str]) -> int | None:
    text = options.get(key)
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise _refused(
            f"{key}={text} is not a port", f"--option {key}={text}; expected 1 to 65535", f"--option {key}=29500"
        )
    return int(text)


def _argv(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise _refused(f"options={text!r} cannot be read", str(error), "--option 'options=-o ProxyJump=gate'") from None


def _refused(what: str, saw: str, next: str) -> UsageError:
    return UsageError("U05", what, saw=saw, next=next)
