"""docs/agents.md: the rules of the messages between agents. The page is generated from the rules, so it cannot differ from them."""

from collections.abc import Iterator

from paceline.launch.job.accepted_messages import RULES, MessageRule, tag
from paceline.launch.job.state import JobPhase

_HEAD = """# What agents say to each other

Made by `make docs` from `src/paceline/launch/job/accepted_messages.py`, whose tests send each message from a stranger, from a guest, from a
host of the attempt in another phase, and with each value out of its range.

One agent runs on each host; the agent of the first host is the coordinator. Every message is typed JSON with a length. If the job has a
token, each message carries a proof that its sender has that token. A value outside the range of its type is refused while it is read, and
the connection ends.

* A *stranger* has not said who it is. At most 64 such connections are open at once, 16 from one address, for three seconds and 16 KiB each.
* A *guest* has joined and has no part in the running attempt. It may send signs of life and say what its clock shows.
* A *host of the newest attempt* has been there since that attempt began. Another host that takes its name does not count as it.

A message from a sender that may not send it is ignored and reported once. A message in the wrong phase is ignored, since it may have been
under way. A value that no agent sends ends the connection. A host may send 64 MiB at once and 4 MiB a second, 10,000 messages at once and
500 a second; more waits in the buffers of its sender.

## From a host to the first one

| message | counts from | while the job is | ranges besides its type's |
|---|---|---|---|"""

_TAIL = """
## From the first host to the others

The other hosts obey the host that they have joined, which has proven that it holds the token. They check two messages themselves: `form`
must have one place for them, with their own name and as many ranks as they were started with, in a row of ranks without a gap; `stop` must
name a signal that exists. Nothing that the first host says is a path, a URL or a command: each host computes from its own command line
what it sends, and where to."""


def agents_page() -> str:
    """The content of the file."""
    return "\n".join([_HEAD, *_rows(), _TAIL]) + "\n"


def _rows() -> Iterator[str]:
    for kind, rule in RULES.items():
        yield f"| `{tag(kind)}` | {rule.sender} | {_phases(rule)} | {rule.ranges or '-'} |"


def _phases(rule: MessageRule) -> str:
    return (
        "anything"
        if rule.phases == frozenset(JobPhase)
        else ", ".join(phase for phase in JobPhase if phase in rule.phases)
    )
