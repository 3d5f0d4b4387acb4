"""`paceline run --hosts`: what is refused before any host is asked, and what goes on to the agents."""

import pytest

from paceline.cli.run import verb
from paceline.errors import UsageError
from paceline.parts.engines.cli.on_hosts import _without_ours


@pytest.mark.parametrize(
    "argv",
    [
        ("--local-hosts", "2"),
        ("--nnodes", "2"),
        ("--node-rank", "1"),
        ("--rdzv-backend", "c10d"),
        ("--rdzv-endpoint", "a:1"),
        ("--rdzv-conf", "join_timeout=1"),
        ("--standalone",),
        ("--master-addr", "a"),
        ("--master-port", "1"),
    ],
)
def test_another_way_for_hosts_to_meet_is_refused_beside_hosts(argv):
    with pytest.raises(UsageError) as refused:
        verb.run(verb.parse(["--hosts", "a,b", *argv, "train.py"]))
    assert refused.value.code == "U05" and argv[0] in refused.value.what
    assert refused.value.next == f"leave {argv[0]} out"


@pytest.mark.parametrize(("option", "value"), [("--option", "port=22"), ("--env", "API_KEY=secret")])
def test_what_is_for_other_hosts_is_refused_without_them(option, value):
    with pytest.raises(UsageError) as refused:
        verb.run(verb.parse([option, value, "train.py"]))
    assert refused.value.code == "U05" and option in refused.value.what
    assert "secret" not in refused.value.saw


@pytest.mark.parametrize("option", ["port", "=22", "prot=22"])
def test_an_option_that_cannot_be_read_or_is_not_known_is_refused(option):
    with pytest.raises(UsageError) as refused:
        verb.run(verb.parse(["--hosts", "a,b", "--option", option, "train.py"]))
    assert refused.value.code == "U03"


def test_the_agents_get_the_words_that_are_not_ours():
    argv = ["--max-restarts", "2", "--hosts", "a,b", "--option", "port=22", "--env=X=1", "--tee", "3"]
    assert _without_ours(argv) == ["--max-restarts", "2", "--tee", "3"]
