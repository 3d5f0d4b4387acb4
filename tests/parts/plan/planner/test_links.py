"""Links from the words and rates of data files and of people."""

import pytest

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.collective import MIB, all_reduce_seconds
from paceline.parts.plan.planner.links import LinkClass, inter_link, intra_link, link_class, link_from_curve

A100 = Accelerator(name="A100", nvlink_gb_per_second=600.0, pcie_generation=4)
RTX = Accelerator(name="RTX 3090", nvlink_gb_per_second=112.5, pcie_generation=4)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("nvlink3", LinkClass.NVSWITCH),
        ("NVSwitch NVLink4 900GB/s bidir (hw class; not stated in log)", LinkClass.NVSWITCH),
        ("NVLink2 hybrid cube-mesh 300GB/s/GPU bidir", LinkClass.CUBE_MESH),
        ("nvlink2-cube-mesh", LinkClass.CUBE_MESH),
        ("nvlink-bridge", LinkClass.BRIDGE),
        ("NVLink bridge (stated in run name), PCIe between pairs", LinkClass.BRIDGE),
        ("PCIe (NVLink bridge not stated)", LinkClass.PCIE),
        ("pcie4", LinkClass.PCIE),
        ("PCIe, Gen4", LinkClass.PCIE),
        ("N/A", LinkClass.UNKNOWN),
        ("", LinkClass.UNKNOWN),
        (None, LinkClass.UNKNOWN),
    ],
)
def test_every_word_of_the_data_is_understood(word, kind):
    assert link_class(word) is kind
    link = intra_link(word, A100, 8)
    assert link is not None
    assert link.bytes_per_second > 0


def test_one_device_needs_no_link():
    assert intra_link("nvlink3", A100, 1) is None


def test_a_word_without_a_generation_takes_the_accelerator():
    with_word, without = intra_link("nvlink3", None, 8), intra_link("nvswitch", A100, 8)
    assert with_word is not None
    assert without is not None
    assert with_word.bytes_per_second == without.bytes_per_second


def test_a_later_generation_is_faster():
    for name, generations in (("nvlink", range(1, 6)), ("pcie", range(3, 7))):
        rates = [found.bytes_per_second for one in generations if (found := intra_link(f"{name}{one}", None, 8))]
        assert rates == sorted(set(rates))


def test_a_bridge_joins_two_and_leaves_four_to_pcie():
    two, four = intra_link("nvlink-bridge", RTX, 2), intra_link("nvlink-bridge", RTX, 4)
    assert two is not None
    assert four is not None
    assert four.bytes_per_second < two.bytes_per_second
    assert link_class(four.kind) is LinkClass.BRIDGE


def test_several_zones_are_never_faster():
    for kind in ("efa", "tcp", None):
        one, two = inter_link(400, kind), inter_link(400, kind, zones=2)
        assert all_reduce_seconds(100 * MIB, 2, two) > all_reduce_seconds(100 * MIB, 2, one)
        assert two.kind == "tcp"


def test_a_network_without_a_rate_is_refused():
    for gbps in (0, -1, float("nan")):
        with pytest.raises(UsageError, match="network"):
            inter_link(gbps)


def test_a_probe_is_used_as_it_was_measured():
    points = [(64 * 1024, 50e-6), (MIB, 80e-6), (64 * MIB, 700e-6)]
    link = link_from_curve(points, 8)
    assert [all_reduce_seconds(size, 8, link) for size, _ in points] == pytest.approx(
        [seconds for _, seconds in points]
    )
    assert all_reduce_seconds(1024 * MIB, 8, link) > 10 * 700e-6
    assert all_reduce_seconds(MIB, 4, link) < all_reduce_seconds(MIB, 8, link)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1.0, 0.0)],
        [(-1.0, 1.0)],
        [(1.0, float("inf"))],
        [(float("inf"), 1.0)],
        [(1.0, float("nan"))],
        [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)],
    ],
)
def test_a_probe_that_measured_nothing_is_refused(points):
    with pytest.raises(UsageError):
        link_from_curve(points, 8)


def test_an_exact_curve_gives_its_own_terms_back():
    points = [(size, 50e-6 + 2e-9 * size**0.5 + size * 1.75 / 200e9) for size in (1e5, 1e6, 1e7, 1e8)]
    link = link_from_curve(points, 8)
    assert link.latency_seconds == pytest.approx(50e-6, rel=1e-3)
    assert link.bytes_per_second == pytest.approx(200e9, rel=1e-3)
