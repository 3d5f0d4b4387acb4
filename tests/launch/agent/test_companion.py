"""The processes beside the ranks of a host: one that ends before the ranks is the host's failure."""

import asyncio
import os
import sys
from types import SimpleNamespace

import pytest

from paceline.launch.agent.companion import Companions
from paceline.part import Companion


def watched(tmp_path, program, *, ranks=(0,), serves_until="", act=lambda companions: None):
    """A companion that has ended: what was said of it, and the companions of its host."""
    said, begun = [], []

    async def main():
        companions = Companions(
            "h", lambda: ranks, begun.append, lambda how: said.append(("lost", how)),
            lambda name, **fields: said.append((name, fields["text"])),
        )  # fmt: skip
        asked = Companion(
            name="server", argv=(sys.executable, "-c", program), environment={"ANSWER": "3"}, serves_until=serves_until
        )
        spec = SimpleNamespace(environment={**os.environ, "RANK": "0"}, working_directory=None)
        companion = companions.start(asked, spec, tmp_path / "log")
        assert companions.serve_others == bool(serves_until)
        act(companions)
        async with asyncio.timeout(20):
            await companions.watch(companion)
            await companions.unneeded()
        assert begun == [companion.process.pid]
        return companions

    return said, asyncio.run(main())


FAILS = "import os, sys; print('no port', 'RANK' in os.environ); sys.exit(int(os.environ['ANSWER']))"
HOW = "the server of h ended with 3: no port False"


@pytest.mark.parametrize(("ranks", "until"), [((0,), ""), ((), "rank 0 has ended")], ids=["ranks", "other hosts"])
def test_one_that_ends_while_it_is_needed_is_lost_and_its_log_named(tmp_path, ranks, until):
    said, companions = watched(tmp_path, FAILS, ranks=ranks, serves_until=until)
    assert said == [("notice", f"{HOW}; its output: {tmp_path / 'log'}"), ("lost", HOW)] and companions.lost == HOW


def test_one_that_ends_after_the_ranks_is_not(tmp_path):
    said, companions = watched(tmp_path, FAILS, ranks=())
    assert said == [] and companions.lost == ""


def test_one_of_an_attempt_that_is_ended_is_needed_no_more(tmp_path):
    said, companions = watched(tmp_path, FAILS, serves_until="rank 0 has ended", act=Companions.release)
    assert said == [] and not companions.serve_others
    assert companions.serves_until == "its server serves until rank 0 has ended"
