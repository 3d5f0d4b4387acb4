"""K03: keys that do not come out even."""

import pytest

from paceline.findings import Severity
from paceline.rules.job_facts import ChannelKeys

SHARDED = "ShardedByS3Key"


def channel(count, name="train", distribution=SHARDED):
    return ChannelKeys(name=name, distribution=distribution, key_count=count)


def test_a_remainder_is_a_warning_that_says_who_gets_what(found, job):
    (finding,) = found("K03", job(hosts=4, channels=(channel(10),)))
    assert finding.severity is Severity.WARNING
    assert finding.saw == "2 of 4 hosts would get 3 keys, 2 would get 2"
    assert "8 or 12 keys" in finding.next


def test_fewer_keys_than_hosts_stop_the_job(found, job):
    (finding,) = found("K03", job(hosts=4, channels=(channel(1),)))
    assert finding.severity is Severity.ERROR
    assert "1 key for 4 hosts; 3 of them" in finding.what


@pytest.mark.parametrize(
    ("hosts", "of"),
    [(4, channel(12)), (1, channel(None)), (4, channel(10, distribution="FullyReplicated"))],
)
def test_what_comes_out_even_draws_nothing(found, job, hosts, of):
    assert not found("K03", job(hosts=hosts, channels=(of,)))


def test_a_channel_that_nobody_counted_is_not_judged(missing, job):
    assert "of channel train" in missing("K03", job(hosts=2, channels=(channel(None), channel(4, "test"))))


def test_a_channel_that_nobody_counted_does_not_hide_another(found, job):
    (finding,) = found("K03", job(hosts=2, channels=(channel(None), channel(5, "test"))))
    assert "'test'" in finding.what
