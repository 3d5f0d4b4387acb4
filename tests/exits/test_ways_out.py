"""Ten ways out, with every rank asked at every stage: five alone, and with --wide all, alone and beside others. `make exits` does 200."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from variants import all_but
from ways_out import WAYS_OUT, leave

pytestmark = pytest.mark.process
# Enough that every core has several ranks to run.
AT_ONCE = 4
# These stand for the others, which are variants of them.
KEPT = ("normal_end", "loader_workers", "spawned", "exception", "thread_trains_on")


def left(way, directory, user_environment, repository):
    directory.mkdir(exist_ok=True)
    return leave(way, directory, user_environment | {"PYTHONPATH": str(repository / "src")})


@pytest.mark.slow_but_first
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "way", all_but([way for way in WAYS_OUT if way.script in KEPT], WAYS_OUT), ids=lambda way: way.script
)
def test_every_finalizer_runs_and_the_exit_code_is_the_scripts(way, tmp_path, user_environment, repository):
    outcome = left(way, tmp_path, user_environment, repository)
    assert outcome.complaints == (), outcome.err


@pytest.mark.wide
@pytest.mark.timeout(1200)
def test_beside_each_other_as_well(tmp_path, user_environment, repository):
    with ThreadPoolExecutor(AT_ONCE) as jobs:
        outcomes = list(jobs.map(lambda way: left(way, tmp_path / way.script, user_environment, repository), WAYS_OUT))
    complaints = {outcome.script: outcome.complaints for outcome in outcomes}
    assert not any(complaints.values()), complaints
