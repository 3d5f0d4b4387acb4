"""The catalogue's data files read into typed values: names, units, sources, and what is not known."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.catalog import lookup
from paceline.catalog.types import Accelerator
from paceline.errors import UsageError

DATA = Path(lookup.__file__).parent / "data"


def test_every_type_of_the_file_is_there():
    assert len(lookup.machine_types()) == 203
    assert sum(1 for one in lookup.machine_types() if one.sagemaker_training) == 145


def test_a_type_has_its_figures_with_their_units():
    found = lookup.machine_type("p4d.24xlarge")
    assert (found.accelerator, found.accelerator_count, found.intra_link) == ("NVIDIA A100-SXM4-40GB", 8, "nvlink3")
    assert (found.network_gbps, found.efa, found.efa_interface_count, found.usd_per_hour) == (400, True, 4, 21.9576)
    assert found.smddp == "all_reduce, all_gather"


@pytest.mark.parametrize("name", ["ml.p4d.24xlarge", " P4D.24xlarge ", "ML.P4d.24XLARGE"])
def test_sagemaker_names_are_the_same_types(name):
    assert lookup.machine_type(name) is lookup.machine_type("p4d.24xlarge")


def test_a_type_that_never_was_is_refused_with_the_nearest():
    with pytest.raises(UsageError) as refused:
        lookup.machine_type("ml.p3dn.48xlarge")
    assert refused.value.code == "P01"
    assert "p3dn.24xlarge" in refused.value.saw
    assert refused.value.next == "paceline plan --instances p3dn.24xlarge"


@pytest.mark.parametrize("name", ["", "p", "48xlarge", "p4d", "∞", "p5.999999999999xlarge", "a" * 10_000])
def test_any_other_name_is_refused_too(name):
    with pytest.raises(UsageError) as refused:
        lookup.machine_type(name)
    assert refused.value.code == "P01"


def test_every_figure_of_a_type_has_a_source():
    for one in lookup.machine_types():
        assert one.sources[""], one.name
        assert one.usd_per_hour is None or one.sources["usd_per_hour"], one.name
        assert one.intra_link is None or one.sources["intra_link"], one.name


def test_an_unknown_figure_is_none_and_not_zero():
    assert lookup.machine_type("p6e-gb200.36xlarge").accelerator_count is None
    assert lookup.machine_type("p2.xlarge").network_gbps is None
    assert lookup.machine_type("p5e.48xlarge").usd_per_hour is None
    assert lookup.machine_type("m5.large").accelerator_count == 0


def test_every_accelerator_of_a_type_is_described():
    for one in lookup.machine_types():
        assert one.accelerator is None or lookup.accelerator(one.accelerator).name == one.accelerator


def test_a_burst_is_always_more_than_what_stays():
    for one in lookup.machine_types():
        if one.network_gbps is not None and one.network_burst_gbps is not None:
            assert one.network_burst_gbps > one.network_gbps, one.name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100_SXM4_40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIe-80GB"),
        ("A100-SXM-80GB", "NVIDIA A100-SXM4-80GB"),
        ("Tesla V100-SXM2-16GB", "NVIDIA V100-SXM2-16GB"),
        ("V100-SXM3-32GB", "NVIDIA V100-SXM3-32GB"),
        ("RTX2080Ti-11GB", "NVIDIA RTX 2080 Ti"),
        ("GeForce_GTX_1080_Ti", "NVIDIA GTX 1080 Ti"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "NVIDIA H100-PCIe-80GB"),
        ("GH200-480GB", "NVIDIA GH200-96GB"),
        ("B200-SXM-192GB", "NVIDIA B200-SXM"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("Tesla T4", "NVIDIA T4"),
        ("K80-12GB", "NVIDIA K80"),
        ("RTX 3080 Laptop GPU", "NVIDIA RTX 3080 Laptop"),
        ("V100-32GB", "NVIDIA V100-32GB"),
    ],
)
def test_accelerators_are_found_by_the_names_that_drivers_and_tables_use(name, expected):
    assert lookup.accelerator(name).name == expected


def test_a_name_that_leaves_the_memory_open_leaves_it_unknown():
    assert lookup.accelerator("A100").memory_gib is None
    assert lookup.accelerator("A100").bf16_tflops == 312


def test_a_memory_that_the_accelerator_never_had_is_refused():
    assert lookup.find_accelerator("T4-64GB") is None
    with pytest.raises(UsageError) as refused:
        lookup.accelerator("A100-SXM4-30GB")
    assert "NVIDIA A100-SXM4-40GB" in refused.value.saw


def test_no_two_accelerators_share_a_spelling():
    rows = list(csv.DictReader((DATA / "accelerators.csv").read_text(encoding="utf-8").splitlines()))
    spellings = [spelling for row in rows for spelling in (row["name"], *filter(None, row["aliases"].split("|")))]
    for row in rows:
        for spelling in (row["name"], *filter(None, row["aliases"].split("|"))):
            assert lookup.accelerator(spelling).name == row["name"]
    assert len(spellings) == len(set(spellings))


def test_what_is_doubtful_names_fields_that_there_are():
    for one in lookup.accelerators():
        assert one.source, one.name
        for field in one.doubtful:
            assert field in Accelerator.__dataclass_fields__, (one.name, field)
            assert getattr(one, field) is not None, (one.name, field)


def test_matrix_units_are_never_slower_than_the_figures_they_are_built_on():
    for one in lookup.accelerators():
        if one.fp16_tflops and one.fp32_tflops:
            assert one.fp16_tflops >= one.fp32_tflops, one.name
        if one.measured_matmul_tflops and one.bf16_tflops:
            assert one.measured_matmul_tflops < one.bf16_tflops, one.name


def test_capacity_is_the_least_of_what_the_cloud_and_the_driver_say():
    assert lookup.capacity_bytes(lookup.machine_type("g5.xlarge")) == int(22.35 * 2**30)
    assert lookup.capacity_bytes(lookup.machine_type("p4d.24xlarge")) == int(39.59 * 2**30)
    assert lookup.capacity_bytes(lookup.machine_type("trn1.32xlarge")) == 32 * 2**30
    assert lookup.capacity_bytes(lookup.machine_type("m5.large")) is None


def test_spot_prices_are_by_zone_and_the_cheapest_is_first():
    prices = lookup.spot_prices("ml.p5.48xlarge")
    assert prices[0].zone == "use1-atl2-az1"
    assert [price.usd_per_hour for price in prices] == sorted(price.usd_per_hour for price in prices)
    assert lookup.spot_prices("p4d.24xlarge") == ()


def test_a_curve_s_time_comes_from_what_was_published():
    curves = {(curve.system, curve.gpus_per_node, len(curve.points)): curve for curve in lookup.collective_curves()}
    timed = curves["8x A100 node", 8, 20]
    assert timed.points[0] == (32768, pytest.approx(43.83e-6))
    by_algbw = curves["8x H200 node", 8, 20]
    assert by_algbw.points[0] == (32768, pytest.approx(32768 / 0.82e9))
    by_busbw = curves["AWS p6-b200.48xlarge", 8, 20]
    assert by_busbw.points[0] == (32768, pytest.approx(32768 * 2 * 7 / 8 / 1.2e9))
    for curve in lookup.collective_curves():
        assert list(curve.points) == sorted(curve.points)
        assert curve.source.startswith("https://")


@pytest.mark.process
def test_reading_the_catalogue_costs_a_command_line_little(user_environment):
    # CPU time, the best of three, because other work on the machine is not the catalogue's.
    program = (
        "import time; from paceline.catalog import lookup; t = time.process_time()\n"
        "lookup.machine_types(), lookup.find_accelerator('A100'), lookup.collective_curves(), lookup.spot_prices('p5.48xlarge')\n"
        "print(time.process_time() - t)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=user_environment, capture_output=True, text=True, check=True
        )
        for _ in range(3)
    ]
    assert min(float(run.stdout) for run in runs) < 0.1
