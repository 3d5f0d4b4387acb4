"""What resume does on a host: when the ranks keep their state, what the user is told, and what is saved in the end."""

import asyncio
import os
import sys

import pytest
from kept_state import Rank

from paceline.facts import Job, Placement, Program, ProgramKind
from paceline.part import Beginning, Host
from paceline.parts.resume.agent.saver_process import SaverAnswer
from paceline.parts.resume.on_host import RUNNER, ResumeOnHost

ARGV = [sys.executable, "-u", "train.py"]
HERE = (Placement(host="h0", address="127.0.0.1", node_rank=0, first_rank=0, ranks=1),)


@pytest.fixture
def said():
    return []


@pytest.fixture
def on_host(tmp_path, said):
    """Resume on a host of a job, which says what it says to `said`."""

    def make(kind=ProgramKind.SCRIPT, **more):
        (tmp_path / "train.py").write_text("pass\n")
        host = Host(
            job=Job(
                name="j", program=Program(kind=kind, target=str(tmp_path / "train.py")), **{"resume": True, **more}
            ),
            run_id="r-1",
            command=("paceline", "run", "--resume", "auto", "train.py"),
            begins=Beginning(),
            directory=tmp_path / "run",
            name="h0",
            shares_machine=False,
            environ=dict(os.environ),
            addresses={},
            python=sys.executable,
            lasting=set(),
            say=said.append,
        )
        return ResumeOnHost(host)

    return make


def begin(part, placements=HERE, keeps_state=True):
    return part.kept_state(placements, None, 7, keeps_state=keeps_state)


def test_the_ranks_of_a_job_without_resume_keep_nothing_and_nothing_is_said(on_host, said):
    part = on_host(resume=False)
    assert begin(part) is None and part.argv(ARGV) == ARGV and said == []


def test_the_buffers_are_the_same_in_each_attempt_until_no_state_is_kept_any_more(on_host, said):
    part = on_host()
    state = begin(part)
    assert state is not None and begin(part) is state and part.argv(ARGV) == [*ARGV[:2], str(RUNNER), "train.py"]
    assert state.kept(0) == {0: []} and state.may_go_on({0: 0})
    assert begin(part, keeps_state=False) is None and begin(part, keeps_state=False) is None
    assert part.argv(ARGV) == ARGV and said == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kind": ProgramKind.EXECUTABLE}, "not a script or a module of this Python"),
        ({"kind": ProgramKind.RUN_PATH}, "not a script or a module of this Python"),
        ({"min_hosts": 2, "max_hosts": 2}, "a job of several machines cannot resume yet"),
    ],
)
def test_where_no_rank_can_resume_the_first_host_says_why_once(on_host, said, more, why):
    part = on_host(**more)
    assert begin(part) is None and begin(part) is None
    (line,) = said
    assert line.startswith("--resume is off: ") and why in line
    said.clear()
    other = Placement(host="h1", address="127.0.0.1", node_rank=0, first_rank=0, ranks=1)
    assert begin(on_host(**more), (other, *HERE)) is None and said == []


def test_a_save_that_takes_longer_than_a_stop_gives_is_told(on_host, said):
    part = on_host(stop_grace_seconds=20.0)
    part._tell_of_save(SaverAnswer(step=4, seconds=19.0))
    assert said == []
    part._tell_of_save(SaverAnswer(step=4, seconds=140.0))
    (line,) = said
    assert "took 140 s, and a stop gives 20 s" in line and "(F06)" in line


def test_a_save_that_fails_is_told_with_the_step_that_is_there(on_host, said):
    part = on_host()
    for step in (None, 7):
        part._tell_of_save(SaverAnswer(step=step, failed="no room"))
    assert "no step is saved" in said[0] and "the last saved step is 7" in said[1] and "(F06)" in said[1]


@pytest.mark.process
@pytest.mark.parametrize("exit_code", [0, 1])
def test_in_the_end_the_newest_step_is_saved_or_what_a_job_that_ended_well_does_not_need_is_removed(
    on_host, said, tmp_path, exit_code
):
    part = on_host(stop_grace_seconds=60.0)

    async def main():
        rank = Rank(descriptor=os.dup(begin(part).descriptor(0)))
        rank.keep(3)
        part.ranks_started()
        async with asyncio.timeout(60):
            while not part.host.lasting:
                await asyncio.sleep(0.01)
        await part.ended(exit_code)
        os.close(rank.descriptor)

    asyncio.run(main())
    saved = list((tmp_path / "run/state").glob("step-3/manifest.json"))
    assert not part.host.lasting and bool(saved) == bool(exit_code)
    assert [line.split(" in ")[0] for line in said] == (["saved step 3"] if exit_code else [])
    if exit_code:
        assert said[0].endswith("to go on from it: paceline run --resume r-1 train.py")
