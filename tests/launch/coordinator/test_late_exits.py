"""How the exits of an attempt are judged that come while the next one runs."""

import asyncio
from dataclasses import replace

from paceline.diagnosis.case import Case
from paceline.facts import RankExit, Run
from paceline.launch.coordinator.late_exits import LateExits

CAUSE = RankExit(host="b", rank=2, attempt=0, code=-9, time_ns=100 * 10**9)


def case():
    run = Run(id="r-1", name="j", directory="d", command=(), started_ns=0, first_host="a")
    return Case(run=run, now_ns=0, lasts=False, attempt=0)


def test_an_attempt_is_judged_with_the_exits_that_come_later():
    exits = LateExits()
    judged = replace(CAUSE, note="not killed for memory", tail="last words")

    async def main():
        waiting = asyncio.create_task(exits.with_exits(case(), {0, 2}))
        exits.take(replace(CAUSE, rank=0, host="a", signalled_by_us=True))
        await asyncio.sleep(0)
        assert not waiting.done()
        exits.take(judged)
        return await waiting

    found = asyncio.run(main())
    assert found.exits[0] == judged and found.tails == {2: "last words"}
    assert exits.as_judged((CAUSE, replace(CAUSE, attempt=1))) == (judged, replace(CAUSE, attempt=1))
    exits.forget(0)
    assert exits.as_judged((CAUSE,)) == (CAUSE,)
