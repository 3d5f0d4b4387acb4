"""Machines described in TOML: the catalogue's fields, checked one by one."""

import pytest

from paceline.catalog.machine_file import parse_machines, read_machines
from paceline.errors import UsageError

LAB = """
[[machine]]
name = "lab"
accelerator = "RTX A6000"
accelerator_count = 4
intra_link = "pcie4"
network_gbps = 25
efa = false

[[machine]]
name = "new"
accelerator = "ACME X1"

[[accelerator]]
name = "ACME X1"
bf16_tflops = 100
power_watts = 300
"""


def test_machines_have_the_fields_of_the_catalogue():
    file = parse_machines(LAB, source="lab.toml")
    lab, new = file.machines
    assert (lab.accelerator, lab.accelerator_count, lab.network_gbps, lab.efa) == ("RTX A6000", 4, 25.0, False)
    assert lab.usd_per_hour is None
    assert lab.sources == {"": "lab.toml"}
    assert new.accelerator_count == 1


def test_accelerators_of_the_file_stand_before_those_of_the_catalogue():
    file = parse_machines(LAB, source="lab.toml")
    assert file.accelerator("acme x1").bf16_tflops == 100
    assert file.accelerator("acme x1").power_watts == 300
    assert file.accelerator("RTX A6000").name == "NVIDIA RTX A6000"
    assert file.accelerator("nothing") is None


@pytest.mark.parametrize(
    ("text", "saw"),
    [
        ("", "describes nothing"),
        ("[[machine]\nname = 1", "line 1"),
        ("[machine]\nname = 'x'", "[[machine]]"),
        ("[[machines]]\nname = 'x'", "unknown table 'machines'"),
        ("[[machine]]\nvcpu_count = 4", "without a name"),
        ("[[machine]]\nname = 'x'\ngpus = 4", "unknown field 'gpus'"),
        ("[[machine]]\nname = 'x'\nnetwork_gbps = -1", "network_gbps = -1"),
        ("[[machine]]\nname = 'x'\nnetwork_gbps = nan", "network_gbps = nan"),
        ("[[machine]]\nname = 'x'\nnetwork_gbps = inf", "network_gbps = inf"),
        ("[[machine]]\nname = 'x'\naccelerator_count = 1.5", "a whole number"),
        ("[[machine]]\nname = 'x'\naccelerator_count = true", "a whole number"),
        ("[[machine]]\nname = 'x'\nefa = 'yes'", "true or false"),
        ("[[machine]]\nname = 'x'\naccelerator = 'ACME'", "which the catalogue does not have"),
        ("[[machine]]\nname = 'x'\nsources = 'y'", "unknown field 'sources'"),
        ("[[machine]]\nname = 'x'\n[[machine]]\nname = 'x'", "two machines are called 'x'"),
        ("machine = [1]", "[[machine]]"),
    ],
)
def test_what_a_file_gets_wrong_is_named(text, saw):
    with pytest.raises(UsageError) as refused:
        parse_machines(text, source="lab.toml")
    assert refused.value.code == "U27"
    assert saw in refused.value.saw
    assert refused.value.next


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "binary"):
        with pytest.raises(UsageError) as refused:
            read_machines(path)
        assert refused.value.code == "U27"
        assert refused.value.saw
