"""However a script leaves its groups, the process ends with the script's own code, without a thread that aborts it on the way out."""

import json

import pytest
from ranks import Ranks, environment_of_ranks

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def leave(how, code, tmp_path, environment, hosts="aa"):
    ranks = Ranks("run_leaving.py", "paceline", hosts, tmp_path, environment_of_ranks(environment))
    ranks.start(how)
    ranks.wait(60, expected=[code] * len(hosts))
    assert not any("terminate called" in rank.out or "Traceback" in rank.out for rank in ranks.ranks)
    return ranks.ranks


def test_exchanges_that_nobody_waited_for_are_finished_by_destroy_process_group(tmp_path, user_environment):
    for rank in leave("destroys", 0, tmp_path, user_environment, hosts="aabb"):
        assert json.loads(rank.left.read_text()) == []


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("how", "code"), [("just_ends", 0), ("exits", 3), ("one_asks_for_more", 0)])
def test_a_script_that_destroys_nothing_ends_as_it_says(how, code, tmp_path, user_environment):
    leave(how, code, tmp_path, user_environment)
