"""Conditions on types: what they compare, what they refuse, and that an unknown figure is neither yes nor no."""

import pytest

from paceline.catalog.filters import conditions, matches
from paceline.catalog.lookup import machine_type, machine_types
from paceline.catalog.types import MachineType
from paceline.errors import UsageError


def names(text):
    wanted = conditions(text)
    return {one.name for one in machine_types() if matches(one, wanted)}


def test_conditions_are_joined_by_and():
    found = names("gpus>=8, efa=yes, gpu=a100")
    assert found == {"p4d.24xlarge", "p4de.24xlarge"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name=ml.p5.48xlarge", {"p5.48xlarge"}),
        ("family=p3", {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}),
        ("smddp=yes", {"p3.16xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge"}),
        ("link=cube-mesh,network<50", {"p3.8xlarge", "p3.16xlarge"}),
        ("gpu_memory>=100,price<100", {"p5en.48xlarge"}),
    ],
)
def test_what_each_field_finds(text, expected):
    assert names(text) == expected


def test_equal_may_be_written_twice_and_not_equal_is_the_rest():
    assert names("gpus==0") | names("gpus!=0") <= {one.name for one in machine_types()}
    assert names("gpus==0") == names("gpus=0")
    assert not names("efa=yes") & names("efa!=yes")


def test_an_unknown_figure_neither_holds_nor_fails():
    assert matches(machine_type("p5e.48xlarge"), conditions("price<1000")) is None
    assert matches(machine_type("p5e.48xlarge"), conditions("price<1000,gpus>8")) is False


def test_nvlink_is_unknown_where_the_link_of_several_accelerators_is():
    asked = conditions("nvlink=no")
    assert matches(MachineType(name="lab", accelerator="x", accelerator_count=8), asked) is None
    assert matches(MachineType(name="lab", accelerator="x", accelerator_count=1), asked) is True


def test_no_condition_holds_for_all():
    assert matches(machine_type("m5.large"), conditions("")) is True


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gpus=>4", "--where 'gpus>=4'"),
        ("gpu>4", "--where 'gpus>4'"),
        ("vcpu=<96", "--where 'vcpus<=96'"),
        ("memory=>1.5", "--where 'memory>=1.5'"),
        ("efa>yes", "--where 'gpus>=8,efa=yes,gpu=a100,price<40'"),
    ],
)
def test_a_comparison_that_is_nearly_right_is_put_right(text, meant):
    with pytest.raises(UsageError) as refused:
        conditions(text)
    assert refused.value.next == meant


@pytest.mark.parametrize(
    "text", ["foo=1", "gpus", "gpus>=many", "efa>yes", "efa=maybe", "name<p", "gpus=", "=3", "gpus>=8;x"]
)
def test_what_cannot_be_asked_is_refused(text):
    with pytest.raises(UsageError) as refused:
        conditions(text)
    assert refused.value.code == "U03"
    assert refused.value.saw
