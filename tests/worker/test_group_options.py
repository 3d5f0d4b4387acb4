"""Watching changes nothing about the options of torch's own process groups."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
SCRIPT = Path(__file__).parent / "scripts" / "group_options.py"


def test_the_options_of_a_gloo_group_are_those_of_an_unwatched_job(workplace):
    watched = workplace.run(sys.executable, str(SCRIPT), world_size=2)
    unwatched = workplace.run(sys.executable, str(SCRIPT), world_size=2, PYTHONPATH="")
    # An unwatched rank may be aborted by torch's own threads after its last line ("terminate called without an active exception").
    assert [rank.code for rank in watched] == [0] * 2, watched[0].err
    assert [rank.out for rank in watched] == [rank.out for rank in unwatched]
    assert "seconds=33" in watched[0].out and "seconds=77" in watched[0].out
