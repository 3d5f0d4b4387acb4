"""The checks of hosts: each fires on what is wrong, and is silent or says so where nothing is known."""

import pytest

from paceline.findings import Severity
from paceline.rules.host_facts import GpuState

GIB = 1 << 30


@pytest.mark.parametrize(
    ("code", "fields", "says"),
    [
        ("K30", {"torch": None}, "the Python of algo-1 has no torch"),
        ("K30", {"also": {"torch": "2.8.0"}}, "different versions of torch"),
        ("K30", {"also": {"python": "3.12.1"}}, "different versions of python"),
        ("K31", {"busy_ports": {29500: "127.0.0.1:29500 held by pid 7 (sshd)"}}, "port 29500 of algo-1 cannot be had"),
        ("K32", {"own_address": "127.0.1.1", "hosts": 2}, "leads to 127.0.1.1"),
        ("K32", {"own_address": None, "hosts": 2}, "leads nowhere"),
        ("K33", {"open_files": 256}, "256 files; 1024 are advised"),
        ("K33", {"open_files": 1024, "hosts": 128, "ranks": 8}, "1280 are advised"),
        ("K34", {"shm_bytes": 64 << 20}, "room for 64 MiB; 512 MiB are advised"),
        ("K35", {"run_dir_bytes": 300 << 20}, "300 MiB left"),
        (
            "K36",
            {"gpus": (GpuState(index=3, name="A", used_bytes=20 * GIB, memory_bytes=80 * GIB),)},
            "GPU 3 of algo-1 is in use",
        ),
        ("K36", {"gpus": (GpuState(index=0, uncorrected_errors=2),)}, "2 memory errors"),
    ],
)
def test_it_fires(found, code, fields, says):
    (finding,) = found(code, **fields)
    assert says in finding.what and finding.saw and finding.next


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("K30", {"also": {}}),
        ("K30", {"torch": None, "python": None}),
        ("K32", {"own_address": "127.0.1.1"}),
        ("K33", {"open_files": None}),
        ("K34", {"shm_bytes": GIB}),
        (
            "K36",
            {"gpus": (GpuState(index=0, used_bytes=1, memory_bytes=80 * GIB, uncorrected_errors=0), GpuState(index=1))},
        ),
    ],
)
def test_what_is_right_or_unknown_is_no_finding(found, code, fields):
    assert found(code, **fields) == ()


@pytest.mark.parametrize(
    ("code", "fields"), [("K34", {"shm_bytes": None}), ("K35", {"run_dir_bytes": None}), ("K36", {"gpus": None})]
)
def test_what_nobody_knows_is_not_judged(found, code, fields):
    assert isinstance(found(code, **fields), str)


def test_what_stops_a_job_is_an_error_and_the_rest_is_not(found):
    assert found("K31", busy_ports={80: "not allowed"})[0].severity is Severity.ERROR
    assert found("K31", busy_ports={80: "not allowed"})[0].next == "--master-port 29500"
    assert found("K35", run_dir_bytes=10 << 20)[0].severity is Severity.ERROR
    assert found("K30", torch=None)[0].severity is Severity.WARNING
