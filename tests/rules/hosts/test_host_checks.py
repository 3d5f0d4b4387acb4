"""The checks of hosts: each fires on what is wrong, and is silent or says so where nothing is known."""

import pytest

from paceline.findings import Severity
from paceline.rules.host_facts import GpuState, TriedLink

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


def test_a_python_without_torch_is_named_with_what_installs_torch_into_it(found):
    (finding,) = found("K30", torch=None, interpreter="/srv/env/bin/python")
    assert (finding.what, finding.next) == (
        "the Python of algo-1 has no torch",
        "/srv/env/bin/python -m pip install torch",
    )
    assert finding.saw.startswith("/srv/env/bin/python, Python 3.11.7")


def links(*told):
    """Links of hosts a, b, c ... in turn: (delay in ms, Gbit/s)."""
    return tuple(
        TriedLink(source=f"h{n}", target=f"h{n + 1}", delay_seconds=ms / 1e3, bytes_per_second=gbit * 1e9 / 8 or None)
        for n, (ms, gbit) in enumerate(told)
    )


def test_a_pair_that_cannot_connect_is_an_error_of_its_own(found):
    failed = TriedLink(source="a", target="b", error="Connection refused")
    (finding,) = found("K37", links=(*links((0.1, 10)), failed))
    assert (
        finding.severity is Severity.ERROR
        and finding.what == "a cannot connect to b"
        and finding.saw == "Connection refused"
    )


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([(0.1, 10), (0.1, 10), (0.1, 10), (0.1, 1)], "1.00 Gbit/s, where the median link has 10.00"),
        ([(0.1, 10), (0.1, 10), (0.1, 10), (2.5, 10)], "take 2.5 ms; median 0.1 ms"),
    ],
)
def test_a_link_that_stands_out_is_named(found, told, says):
    (finding,) = found("K38", links=links(*told))
    assert finding.what.startswith("the link from h3 to h4 is slow") and says in finding.what


@pytest.mark.parametrize(
    "told",
    [
        [(0.1, 10), (0.1, 10), (0.1, 4)],
        [(0.1, 10), (0.1, 10), (0.1, 10), (0.4, 10)],
        [(0.1, 10), (0.1, 8), (0.1, 12), (0.1, 5)],
        [(0.1, 0), (0.1, 0), (0.1, 0), (0.1, 0)],
        [],
    ],
)
def test_few_links_or_small_differences_are_no_finding(found, told):
    assert found("K38", links=links(*told)) == ()


@pytest.mark.parametrize(
    ("offset", "error", "fires"),
    [(3.0, 0.1, True), (-3.0, 0.1, True), (3.0, 2.5, False), (0.4, 0.0, False), (None, 0.0, False)],
)
def test_a_clock_is_off_only_for_certain(found, offset, error, fires):
    assert bool(found("K39", clock_offset_seconds=offset, clock_error_seconds=error)) == fires
