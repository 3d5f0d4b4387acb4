import json
import os
import subprocess
import sys

import pytest

from paceline.probes.telemetry import Sampler

SECTIONS = {"cpu", "memory", "network", "ranks"}


@pytest.fixture
def sampler():
    sampler = Sampler()
    yield sampler
    sampler.close()


def test_a_sample_is_one_json_object_with_every_section_that_can_be_read(sampler):
    first = json.loads(json.dumps(sampler.sample({0: os.getpid()})))
    assert set(first) >= SECTIONS
    assert first["t_ns"] > 1_600_000_000_000_000_000
    assert first["cpu"]["busy_fraction"] is None
    assert first["memory"]["used_bytes"] < first["memory"]["total_bytes"]
    assert first["ranks"]["0"]["pid"] == os.getpid()
    assert first["agent"]["cpu_seconds"] > 0


def test_shares_are_of_the_time_since_the_sample_before(sampler):
    sampler.sample({})
    found = None
    while found is None:
        found = sampler.sample({})["cpu"]["busy_fraction"]
    assert 0 <= found <= 1


def test_the_control_group_is_read_every_fifth_sample(sampler):
    samples = [sampler.sample({}) for _ in range(6)]
    if "cgroup" not in sampler.missing:
        assert ["cgroup" in sample for sample in samples] == [True, False, False, False, False, True]


def test_a_sensor_that_cannot_be_read_is_left_out_with_its_reason_once(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 8 0 0\n")
    (tmp_path / "loadavg").write_text("0.5 0.4 0.3 1/90 77\n")
    (tmp_path / "meminfo").write_text("garbage\n")
    sampler = Sampler(proc=str(tmp_path))
    sample = sampler.sample({})
    assert {"memory", "network", "disk", "pressure"}.isdisjoint(sample)
    assert sample["cpu"]["load_1m"] == 0.5
    assert sampler.missing["network"] == f"No such file or directory: {tmp_path}/net/dev"
    assert {"memory", "disk", "pressure cpu", "pressure memory", "pressure io"} <= set(sampler.missing)
    reasons = dict(sampler.missing)
    (tmp_path / "net/dev").write_text("\n\n lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n")
    assert "network" not in sampler.sample({})
    assert sampler.missing == reasons
    sampler.close()


def test_no_gpu_is_a_reason_and_never_a_zero(sampler):
    sample = sampler.sample({})
    assert ("gpus" in sample) != ("gpus" in sampler.missing)


@pytest.mark.process
def test_a_rank_counts_with_everything_below_it_and_leaves_when_it_ends(sampler):
    code = (
        "import subprocess; children = [subprocess.Popen(['sleep', '60']) for _ in range(3)]; "
        "print('ready', flush=True); input(); [child.kill() for child in children]"
    )
    rank = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rank.stdout.readline()
    found = sampler.sample({3: rank.pid})["ranks"]["3"]
    assert (found["pid"], found["process_count"], found["thread_count"]) == (rank.pid, 4, 4)
    assert found["resident_bytes"] > 3_000_000
    rank.communicate("\n")
    assert sampler.sample({3: rank.pid})["ranks"] == {}
