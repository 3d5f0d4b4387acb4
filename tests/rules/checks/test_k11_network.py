"""K11: several hosts, and what lies between them."""

import pytest

from paceline.findings import Severity


def test_a_burst_is_told_in_numbers_with_types_that_last(found, job):
    (finding,) = found("K11", job(of="m5.large", instance_type="ml.m5.large", hosts=2))
    assert finding.severity is Severity.WARNING
    assert "10 Gbit/s is a burst that ends after 5 to 60 minutes; the sustained rate is 0.75 Gbit/s" in finding.saw
    assert "ml.c5n.9xlarge" in finding.saw
    assert finding.next == "paceline plan --instance ml.m5.large --host-counts 1,2,4 --for ddp-cpu SCRIPT"


def test_many_gpus_behind_one_interface_are_told_in_numbers(found, job):
    (finding,) = found("K11", job(of="p3.16xlarge", hosts=2, script_path="my train.py"))
    assert finding.next == "paceline plan --instance p3.16xlarge --host-counts 1,2,4 'my train.py'"
    assert "8 accelerators share 25 Gbit/s: 3.12 for each" in finding.saw


def test_cpus_on_credits_are_told(found, job):
    (finding,) = found("K11", job(of="t3.large", hosts=2))
    assert "credits" in finding.saw


@pytest.mark.parametrize(
    ("of", "hosts"), [("p4d.24xlarge", 2), ("m5.large", 1), ("c5n.18xlarge", 4), ("c5.18xlarge", 2)]
)
def test_a_network_that_stays_draws_nothing(found, job, of, hosts):
    assert not found("K11", job(of=of, hosts=hosts))


def test_hosts_of_an_unknown_type_are_not_judged(missing, job):
    assert "machine type" in missing("K11", job(engine="ssh", hosts=2))


def test_hosts_on_this_machine_need_no_network(found, job):
    assert not found("K11", job(hosts=2, instance_type="local"))
