"""Finds why hosts cannot run a job, from the output of ssh and of the remote program. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from paceline import __version__
from paceline.clone import CLONE
from paceline.errors import UsageError
from paceline.parts.engines.remote_program import LEAST_PYTHON, TOO_OLD, ConnectionLost
from paceline.parts.engines.ssh.options import Settings, typed

# Room besides the code: for the ranks' logs and segments, and for packages that pip installs.
ROOM_BYTES = 64 << 20
_SSH_FAILED = 255
# ssh's output -> its meaning. The first match counts.
_MEANINGS = (
    ("Could not resolve hostname", "{host}: this name cannot be resolved here"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "{host} shows another host key than the one that is known"),
    (
        "Host key verification failed",
        "{host}'s host key is not known here, and a job cannot be asked whether it is right",
    ),
    ("Permission denied", "{host} does not let this user in without asking for a password"),
    ("Too many authentication failures", "{host} refused the keys that were offered before the right one came"),
    ("Connection refused", "{host} cannot be reached: nothing listens on its ssh port"),
    ("timed out", "{host} cannot be reached: it does not answer"),
    ("No route to host", "{host} cannot be reached: there is no way to it"),
)


def unreachable(settings: Settings, host: str, lost: ConnectionLost) -> UsageError:
    """The error E10 if ssh could not connect, or E11 if the host has no suitable Python."""
    if lost.code == _SSH_FAILED or (lost.code is not None and lost.code < 0):
        meaning = next((text for sign, text in _MEANINGS if sign in lost.ssh_said), "{host}: ssh could not connect")
        return UsageError("E10", meaning.format(host=host), saw=_as_said(lost), next=typed(settings, host))
    choice = "paceline submit --option python=/path/to/python ..."
    if TOO_OLD in lost.remote:
        version = lost.remote.partition(TOO_OLD)[2].split()[0]
        least = ".".join(map(str, LEAST_PYTHON))
        return UsageError(
            "E11", f"{host} has Python {version}; {least} or later is needed", saw=f"Python {version}", next=choice
        )
    return UsageError("E11", f"{host} has no Python that could be started", saw=_as_said(lost), next=choice)


def no_ssh(settings: Settings, error: OSError) -> UsageError:
    """The error E01: the ssh program of the settings could not be started here."""
    return UsageError(
        "E01",
        f"{settings.ssh} cannot be started",
        saw=str(error.strerror),
        next="apt-get install openssh-client",
    )


def refused_there(host: str, answer: Mapping[str, Any]) -> UsageError | None:
    """The error U22 if the host's disk refused a write; else None."""
    if "error" not in answer:
        return None
    return UsageError(
        "U22",
        f"{host} cannot keep the job's files",
        saw=str(answer["error"]),
        next="paceline submit --option workdir=/a/directory/with/room ...",
    )


def findings(
    settings: Settings, found: Mapping[str, Mapping[str, Any]], needed_bytes: int, first_address: str
) -> dict[str, list[UsageError]]:
    """Host -> its problems. `found`: the answer of each reachable host. The torch versions are compared with the first host's version."""
    wrong: dict[str, list[UsageError]] = {host: [] for host in found}
    reference = next(iter(found), None)
    for host, answer in found.items():
        refused = refused_there(host, answer)
        if refused is not None:
            wrong[host].append(refused)
            continue
        wrong[host] += [*_versions(settings, host, answer, reference, found), *_room(host, answer, needed_bytes)]
        if answer["unresolved"] is not None:
            wrong[host].append(_unresolved(host, answer["unresolved"], first_address))
    return wrong


def all_at_once(problems: Sequence[UsageError]) -> UsageError:
    """One error with the problems of every host. It has the code and the next step of the first problem."""
    first = problems[0]
    if len(problems) == 1:
        return first
    saw = "\n".join(f"{problem.code}  {problem.what} ({_one_line(problem.saw)})" for problem in problems)
    return UsageError(
        first.code, f"{len(problems)} things keep the hosts from running this job", saw=saw, next=first.next
    )


def other_code(host: str, wanted: str, found: str) -> UsageError:
    """The error U22: the code on the host is not the code that was sent."""
    return UsageError(
        "U22",
        f"{host} has other code than this machine after it was shipped",
        saw=f"digest {found[:16]} there, {wanted[:16]} here",
        next="send it again: the same command",
    )


def _versions(
    settings: Settings,
    host: str,
    answer: Mapping[str, Any],
    reference: str | None,
    found: Mapping[str, Mapping[str, Any]],
) -> list[UsageError]:
    wrong = []
    install = f"{typed(settings, host).removesuffix(' true')} {shlex.quote(answer['executable'])} -m pip install"
    if answer["paceline"] != __version__:
        have = f"paceline {answer['paceline']}" if answer["paceline"] else "no paceline"
        wrong.append(
            UsageError(
                "E11",
                f"{host} has {have}, this machine has {__version__}",
                saw=f"{have} for {answer['executable']} on {host}",
                next=f"{install} {CLONE}",
            )
        )
    wanted = found[reference].get("torch") if reference is not None else None
    if reference is not None and answer["torch"] != wanted:
        wrong.append(
            UsageError(
                "E11",
                f"{host} has torch {answer['torch'] or '(none)'}, {reference} has {wanted or 'none'}",
                saw=f"torch {answer['torch']} for {answer['executable']} on {host}",
                next=f"{install} torch=={wanted}" if wanted else f"{install} torch",
            )
        )
    return wrong


def _room(host: str, answer: Mapping[str, Any], needed_bytes: int) -> list[UsageError]:
    free, wanted = answer["free_bytes"], needed_bytes + ROOM_BYTES
    if free >= wanted:
        return []
    return [
        UsageError(
            "U22",
            f"{host} has too little room for the job's files",
            saw=f"{free >> 20} MiB free at {answer['directory']}; {wanted >> 20} MiB are needed",
            next="paceline submit --option workdir=/a/directory/with/room ...",
        )
    ]


def _unresolved(host: str, why: str, first_address: str) -> UsageError:
    return UsageError(
        "E10",
        f"{host} does not know the first host as {first_address}",
        saw=why,
        next="paceline submit --option first_address=ADDRESS ...",
    )


def _as_said(lost: ConnectionLost) -> str:
    return lost.ssh_said or lost.remote or f"ssh ended with {lost.code} and said nothing"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
