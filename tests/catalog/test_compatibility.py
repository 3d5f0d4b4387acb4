"""Whether a type is for a kind of job: hardware reasons in numbers, and the types that would do."""

import pytest

from paceline.catalog.compatibility import JobKind, support
from paceline.catalog.lookup import machine_type, machine_types
from paceline.catalog.types import MachineType
from paceline.errors import UsageError


def type_support(name, kind, version=None):
    return support(machine_type(name), kind, version)


def texts(name, kind, version=None):
    return " | ".join(reason.text for reason in type_support(name, kind, version).reasons)


def test_a_single_gpu_with_a_burst_is_refused_for_smddp_with_every_reason():
    told = texts("ml.g5.xlarge", "smddp")
    assert "never built for it" in told
    assert "1 GPU" in told
    assert "no EFA" in told
    assert "10 Gbit/s is a burst that ends after 5 to 60 minutes; the sustained rate is 2.5 Gbit/s" in told
    assert type_support("g5.xlarge", "smddp").nearest == ("p4d.24xlarge", "p4de.24xlarge")


def test_gpus_on_pcie_are_named_with_their_rate():
    assert "no NVLink: 4 NVIDIA T4 exchange over PCIe Gen3 (15.8 GB/s one way at most)" in texts(
        "g4dn.12xlarge", "smddp"
    )


def test_newer_hardware_lacks_nothing_but_the_library():
    told = texts("p5.48xlarge", "smddp")
    assert "8 NVIDIA H100-SXM5-80GB on nvlink4, with EFA: only the library's own build" in told


@pytest.mark.parametrize(
    ("name", "version", "allowed"),
    [
        ("p3.16xlarge", "1.4.1", True),
        ("p3.16xlarge", "2.0.1", False),
        ("p3dn.24xlarge", "2.3", False),
        ("p3.16xlarge", "1", True),
        ("p3.16xlarge", "2", False),
        ("p4d.24xlarge", "1.0.0", True),
        ("p4d.24xlarge", "2.5.0", True),
        ("p4de.24xlarge", "1.5", False),
        ("p4de.24xlarge", "1.6.0", True),
        ("p4d.24xlarge", "2.9", False),
        ("p5.48xlarge", "2.5.0", False),
    ],
)
def test_smddp_depends_on_its_version(name, version, allowed):
    assert type_support(name, "smddp", version).allowed is allowed


def test_a_version_that_is_none_is_refused():
    with pytest.raises(UsageError) as refused:
        type_support("p4d.24xlarge", "smddp", "latest")
    assert refused.value.code == "U03"


def test_a_machine_without_a_gpu_is_offered_one():
    answer = type_support("ml.m5.large", "ddp-gpu")
    assert answer.allowed is False
    assert answer.reasons[0].numbers == {"gpu_count": 0, "vcpu_count": 2}
    assert "g4dn.xlarge" in answer.nearest


def test_a_share_of_a_gpu_is_no_gpu():
    assert type_support("g6f.xlarge", "ddp-gpu").allowed is False


def test_a_chip_that_is_no_gpu_is_refused_for_gpu_jobs():
    assert type_support("trn1.32xlarge", "ddp-gpu").allowed is False


def test_what_is_not_known_is_not_judged():
    assert type_support("g2.8xlarge", "ddp-gpu").allowed is None
    assert type_support("p2.xlarge", "multi-host").allowed is None
    assert type_support("trn2.3xlarge", "efa").allowed is None


def test_several_hosts_are_possible_without_efa_and_it_is_said_what_they_pay():
    answer = type_support("p3.16xlarge", "multi-host")
    assert answer.allowed is True
    assert [reason.forbids for reason in answer.reasons] == [False, False]
    assert answer.reasons[1].numbers["gbps_each"] == pytest.approx(25 / 8)


def test_sagemaker_takes_only_its_own_types():
    answer = type_support("g4dn.metal", "sagemaker-training")
    assert answer.allowed is False
    assert answer.reasons[0].numbers == {"types_count": 145}
    assert all(machine_type(name).sagemaker_training for name in answer.nearest)


def test_a_machine_of_one_s_own_has_no_answer_about_sagemaker():
    own = MachineType(name="lab", accelerator="NVIDIA RTX A6000", accelerator_count=4, intra_link="pcie4")
    assert support(own, "sagemaker-training").allowed is None
    assert support(own, "multi-host").allowed is None
    assert support(own, "ddp-gpu").allowed is True


def test_a_link_that_is_not_known_is_not_called_slow():
    own = MachineType(name="lab", accelerator="NVIDIA A100-SXM4-40GB", accelerator_count=8)
    told = " | ".join(reason.text for reason in support(own, "ddp-gpu", nearest=False).reasons)
    assert "not known" in told
    assert "no NVLink" not in told
    switched = MachineType(name="lab", accelerator="NVIDIA A100-SXM4-40GB", accelerator_count=8, intra_link="NVSwitch")
    assert not support(switched, "ddp-gpu", nearest=False).reasons


@pytest.mark.parametrize("kind", list(JobKind))
def test_every_type_has_an_answer_with_its_reasons(kind):
    for one in machine_types():
        answer = support(one, kind, nearest=False)
        assert answer.allowed is True or answer.reasons, one.name
        assert (answer.allowed is False) == any(reason.forbids for reason in answer.reasons), one.name


@pytest.mark.parametrize("kind", list(JobKind))
def test_the_nearest_types_would_do(kind):
    for one in machine_types():
        for name in support(one, kind).nearest:
            assert support(machine_type(name), kind, nearest=False).allowed is True, (one.name, name)


def test_a_kind_that_is_none_is_a_mistake():
    with pytest.raises(ValueError, match="spam"):
        support(machine_type("m5.large"), "spam")


def test_a_gpu_is_known_by_any_of_its_names_and_a_strange_one_is_not_judged():
    def of(accelerator):
        return support(MachineType(name="lab", accelerator=accelerator, accelerator_count=1), "ddp-gpu", nearest=False)

    assert of("RTX A6000").allowed is True
    assert of("ACME X1").allowed is None
    assert of("AWS Trainium").allowed is False


def test_a_machine_with_gpus_is_not_sent_to_other_chips():
    lab = MachineType(name="lab", accelerator="RTX A6000", accelerator_count=4, network_gbps=25, efa=False)
    nearest = support(lab, "multi-host").nearest
    assert nearest and all((machine_type(name).accelerator or "").startswith("NVIDIA") for name in nearest)
