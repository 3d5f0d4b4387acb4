"""What is said of a job whose run has ended while its keeper is still there."""

import json
import os

import pytest

from paceline.facts import SecondaryStatus
from paceline.parts.engines.detached import REQUEST_FILE, observe_kept
from paceline.process_identity import start_ticks


@pytest.fixture
def kept(recording):
    """A run that has ended, and a keeper that lives: this process."""

    def make(exit_code, retries, tries=1):
        first = recording("r-000001")
        first.identity()
        (first.path / REQUEST_FILE).write_text(json.dumps({"job": {"retries": retries}}))
        last = first
        for number in range(2, tries + 1):
            last = recording(f"r-000001.{number}")
            last.identity()
        last.event("run_finished", status="Failed", secondary_status="Failed", exit_code=exit_code, reason="over")
        handle = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "machine": os.uname().nodename}
        return observe_kept(handle, first.path)

    return make


@pytest.mark.parametrize("exit_code", [0, 1, 143, 202])
def test_a_job_that_failed_by_itself_is_not_said_to_start_again(kept, exit_code):
    assert kept(exit_code, retries=3).secondary_status is SecondaryStatus.UPLOADING


@pytest.mark.parametrize(("retries", "word"), [(1, SecondaryStatus.RESTARTING), (0, SecondaryStatus.UPLOADING)])
def test_a_lost_host_is_tried_again_as_long_as_retries_are_left(kept, retries, word):
    assert kept(200, retries=retries).secondary_status is word


def test_after_the_last_retry_nothing_starts_again(kept):
    seen = kept(200, retries=1, tries=2)
    assert (seen.tries, seen.secondary_status) == (2, SecondaryStatus.UPLOADING)
