"""R10: the clock of a host is far from the first host's."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import failures
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "clocks of the hosts disagree"
PAGE = """\
Clocks of the hosts disagree

What it means: The agents measure how far each host's clock is from the first host's clock. This host's clock is off
  by more than a minute.
Why it matters: paceline corrects its own timestamps. But on that host certificates and tokens with a validity time
  fail, and logs of other tools do not line up.
Deciding evidence: The agents exchanged timestamps and measured an offset of more than a minute, far above the round
  trip, in a job that is in trouble.
Not to be confused with: any other cause: clock skew explains only failing certificates and tokens.
What to do: Run `chronyc makestep` on that host, and keep chrony running.
How to inject it: a host with another clock; judged on made-up evidence only.
Source: RFC 5905, section 8.
"""


_FAR_SECONDS = 60.0


def find(case: Case) -> Iterator[CauseFinding]:
    if not (failures(case) or case.stall):
        return
    for host, snapshot in case.host_snapshots.items():
        offset = snapshot.clock_offset_seconds
        if offset is not None and abs(offset) > max(_FAR_SECONDS, 10 * (snapshot.round_trip_seconds or 0.0)):
            yield CauseFinding(
                code="R10",
                title=TITLE,
                level=Level.START,
                hosts=(host,),
                confidence=Confidence.UNCLEAR,
                saw=(
                    f"the clock of {host} is {abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the first host's",
                ),
                next=(f"run chronyc makestep on {host}",),
            )


RULE = Cause(code="R10", title=TITLE, page=PAGE, find=find, preview=True, sure_by=(Ground.SNAPSHOT,))
