"""docs/agents.md: what counts of what agents say to each other, made from the rules so that it cannot differ from them."""

from collections.abc import Iterator

from paceline.launch.job.protocol import RULES, MessageRule, tag
from paceline.launch.job.state import JobPhase

_HEAD = """# What agents say to each other

Made by `make docs` from `src/paceline/launch/job/protocol.py`, whose tests send each message from a stranger, from a guest, from a host of
the attempt in another phase, and with each value out of its range.

One agent runs on each host; the first one leads. Every message is typed JSON with a length and, where there is a token, with a proof that
whoever sends it has that token. What a message is not allowed to be it never becomes: a value outside its type's range is refused as it
is read, and the connection ends.

* A *stranger* has not said who it is: at most 64 such connections at once and 16 of one address, three seconds and 16 KiB each.
* A *guest* has a seat and no part in the running attempt. It may give signs of life and say what its clock shows.
* A *host of the newest attempt* has been there since that attempt began. Another one that takes its name is none.

What comes from somebody else is passed over and told once; what comes in another phase is passed over, since it may have been under way;
a value that no agent says ends the connection. A host may say 64 MiB at once and 4 MiB a second, 10,000 messages and 500 a second; what
is beyond waits in its own buffers.

## From a host to the first one

| message | counts from | while the job is | ranges besides its type's |
|---|---|---|---|"""

_TAIL = """
## From the first host to the others

They obey whoever they have joined, who has proven that it holds the token. What they check for themselves: `form` must have one place for
them, with their own name and as many ranks as they were started with, in a row of ranks without a gap; `stop` a signal that there is.
Nothing that the first host says is a path, a URL or a command: what a host sends, and where to, it computes from its own command line."""


def agents_page() -> str:
    """The whole file."""
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
