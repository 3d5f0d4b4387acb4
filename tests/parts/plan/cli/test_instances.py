"""`paceline plan --instances`: what it prints of many types, of one, of this machine, and what it refuses."""

import json

import pytest

from paceline.cli import main
from paceline.probes.environment import Cpus, HostMemory
from paceline.probes.gpu_links import GpuLinks, read_gpu_links
from paceline.probes.gpus import Gpu, GpuReading
from paceline.probes.interfaces import NetworkInterface
from paceline.probes.this_machine import describe


def shown(capsys, *argv):
    assert main(["plan", "--instances", *argv]) == 0
    return capsys.readouterr().out


def facts(capsys, *argv):
    return json.loads(shown(capsys, *argv, "--json"))


def test_without_a_name_every_type_has_a_line(capsys):
    lines = shown(capsys).splitlines()
    assert lines[0].split()[0] == "TYPE"
    assert len([line for line in lines if line.startswith(("p", "g", "m", "c", "r", "t", "i", "d"))]) >= 203


def test_one_type_is_shown_whole_with_reasons_and_sources(capsys):
    text = shown(capsys, "ml.g5.xlarge")
    assert "2.5 Gbit/s sustained, 10 for 5 to 60 minutes" in text
    assert "SMDDP was never built for it" in text
    assert "nearest: p4d.24xlarge" in text
    assert "not confirmed           fp32_tflops" in text
    assert "karpenter" in text


def test_json_has_every_field_and_null_for_unknown(capsys):
    answer = facts(capsys, "p5e.48xlarge")
    assert answer["schema"] == "paceline.instances/1"
    only = answer["instances"][0]
    assert only["usd_per_hour"] is None
    assert only["accelerator_figures"]["bf16_tflops"] == 989
    assert set(only["support"]) == {"sagemaker-training", "smddp", "ddp-gpu", "ddp-cpu", "multi-host", "efa"}
    assert only["sources"][""]


def test_where_says_what_it_could_not_judge(capsys):
    answer = facts(capsys, "--where", "gpus>=8,price<30")
    assert "p4d.24xlarge" in {one["name"] for one in answer["instances"]}
    assert "p5e.48xlarge" in answer["not_judged"]
    assert "not judged, a figure is unknown: " in shown(capsys, "--where", "gpus>=8,price<30")


def test_for_judges_each_type_for_one_kind_of_job(capsys):
    lines = shown(capsys, "p3.16xlarge", "p4d.24xlarge", "--for", "smddp@2.3").splitlines()
    assert lines[0].endswith("SMDDP")
    assert lines[1].endswith("no")
    assert lines[2].endswith("yes")


def test_for_without_a_name_shows_the_types_that_allow_the_job_and_counts_the_others(capsys):
    lines = shown(capsys, "--for", "smddp").splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["p4d.24xlarge", "p4de.24xlarge", "p3.16xlarge", "p3dn.24xlarge"]
    assert lines[5:] == ["and 199 types: no (--json has them all, with the reasons)"]
    assert len(facts(capsys, "--for", "smddp")["instances"]) == 203
    assert "\nand 2 types: no" in shown(capsys, "--where", "family=p3", "--for", "smddp")


def test_nothing_that_matches_is_said(capsys):
    assert shown(capsys, "m5.large", "--where", "gpus>0") == "no type meets the conditions\n"


def test_machines_of_a_file_are_shown_beside_the_catalogue_s(capsys, tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(
        '[[machine]]\nname = "lab"\naccelerator = "RTX A6000"\naccelerator_count = 4\nintra_link = "pcie4"\n'
    )
    answer = facts(capsys, "lab", "p4d.24xlarge", "--file", str(file))
    assert [one["name"] for one in answer["instances"]] == ["lab", "p4d.24xlarge"]
    assert answer["instances"][0]["accelerator_figures"]["name"] == "NVIDIA RTX A6000"
    assert [one["name"] for one in facts(capsys, "--file", str(file))["instances"]] == ["lab"]


def test_accelerators_mark_what_no_source_confirms(capsys):
    text = shown(capsys, "--accelerators")
    assert "31.2?" in next(line for line in text.splitlines() if line.startswith("NVIDIA A10G"))
    assert len(facts(capsys, "--accelerators")["accelerators"]) >= 60


def test_this_machine_is_described_from_what_it_says(capsys):
    only = facts(capsys, "--here")["instances"][0]
    assert only["vcpu_count"] >= 1
    assert only["memory_gib"] > 0


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["ml.p3dn.48xlarge"], "P01"),
        (["--where", "colour=red"], "U03"),
        (["--for", "spam"], "U03"),
        (["--for", "efa@2"], "U03"),
        (["--for", "smddp@new"], "U03"),
        (["--file", "/nowhere.toml"], "U27"),
        (["p4d.24xlarge", "--accelerators"], "U03"),
    ],
)
def test_what_it_refuses_has_a_code_and_a_next_step(capsys, argv, code):
    assert main(["plan", "--instances", *argv, "--json"]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert code in json.dumps(refused)


A100 = "NVIDIA A100-SXM4-40GB"


def described(**changed):
    values = {
        "product": None,
        "fabrics": [],
        "cpu": Cpus(usable_count=96),
        "memory": HostMemory(total_bytes=1152 << 30),
        "interfaces": [NetworkInterface(name="eth0", up=True, addresses=("10.0.0.2",), speed_mbps=25_000)],
        "gpus": GpuReading(
            gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name=A100, memory_bytes=40536 << 20) for n in range(8))
        ),
        "links": GpuLinks(nvlink_count=12, nvlink_version=3, pcie_generation=4),
    }
    return describe(**(values | changed))


def test_a_machine_with_gpus_names_them_as_the_catalogue_does():
    found = described()
    assert (found.accelerator, found.accelerator_count, found.intra_link) == (A100, 8, "nvlink3")
    assert (found.network_gbps, found.efa, found.usd_per_hour) == (25, None, None)
    assert found.accelerator_memory_gib == pytest.approx(39.59, abs=0.01)


def test_on_ec2_the_catalogue_adds_what_the_machine_cannot_know():
    found = described(product="p4d.24xlarge", fabrics=["efa_0", "efa_1", "efa_2", "efa_3"])
    assert (found.name, found.network_gbps, found.usd_per_hour) == ("p4d.24xlarge", 400, 21.9576)
    assert (found.efa, found.efa_interface_count) == (True, 4)
    assert found.sources["vcpu_count"] == "this machine"


def test_gpus_of_several_kinds_are_not_called_one_of_them():
    gpus = GpuReading(gpus=(Gpu(index=0, uuid="a", name=A100), Gpu(index=1, uuid="b", name="Tesla T4")))
    found = described(gpus=gpus)
    assert found.accelerator is None
    assert found.accelerator_count == 2
    assert "several kinds" in found.note


def test_without_a_driver_the_bus_says_whether_there_is_a_gpu():
    without = GpuReading(gpus=None, reason="NVML: no driver")
    assert described(gpus=without, on_the_bus=False).accelerator_count == 0
    assert described(gpus=without, on_the_bus=True).accelerator_count is None
    assert described(gpus=without, on_the_bus=None).accelerator_count is None


class Nvml:
    """Two GPUs with some NVLinks; a call that this driver lacks raises."""

    NVML_FEATURE_ENABLED = 1

    class NVMLError(Exception):
        pass

    def __init__(self, links, version=6, gpus=2):
        self.links, self.version, self.gpus, self.closed = links, version, gpus, False

    def nvmlDeviceGetCount(self):
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= self.links:
            raise self.NVMLError("not supported")
        return 1

    def nvmlDeviceGetNvLinkVersion(self, handle, link):
        return self.version

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):
        return 5

    def nvmlShutdown(self):
        self.closed = True


@pytest.mark.parametrize(
    ("links", "version", "word"),
    [(18, 6, "nvlink4"), (18, 7, "nvlink5"), (12, 5, "nvlink3"), (0, 0, "pcie5"), (4, 99, "nvlink")],
)
def test_links_between_gpus_are_named_as_the_catalogue_names_them(links, version, word):
    nvml = Nvml(links, version)
    assert read_gpu_links(nvml).word == word
    assert nvml.closed


def test_without_gpus_there_is_no_link_and_a_reason():
    assert read_gpu_links(Nvml(0, gpus=0)).word is None
    assert read_gpu_links(Nvml(0, gpus=0)).reason
