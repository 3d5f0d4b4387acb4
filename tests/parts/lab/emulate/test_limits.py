"""Limits of CPU, memory and processes: what is written for either version of control groups, and what the kernel makes of it here."""

import os
import subprocess
import sys
import time

import pytest
from patience import patient

from paceline.errors import UsageError
from paceline.parts.lab.emulate.limits import (
    apply_settings,
    cpu_limit,
    cpu_settings,
    memory_limit,
    memory_settings,
    process_limit,
)
from paceline.probes.cgroup import ControlGroup, cpu_counters, memory_counters


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_is_what_the_probe_reads(tmp_path, version):
    group = tmp_path / "group"
    group.mkdir()
    for settings in (cpu_settings(0.25), memory_settings(250 << 20)):
        first = next(iter(settings[version]))
        (group / first).touch()
        apply_settings(group, {name: value for name, value in settings[version].items() if "swap" not in name})
    (group / "cpu.cfs_quota_us").write_text("25000") if version == 1 else None
    found = ControlGroup(directory=group, top=tmp_path, version=version)
    assert cpu_counters(found).quota_cpus == 0.25
    assert memory_counters(found).limit_bytes == 250 << 20


def test_a_file_that_only_some_kernels_have_is_left_out(tmp_path):
    apply_settings(tmp_path, memory_settings(1 << 20)[1])
    assert [path.name for path in tmp_path.iterdir()] == ["memory.limit_in_bytes"]


@pytest.fixture
def limited():
    """Skips where control groups cannot be written to."""
    try:
        with cpu_limit(1.0):
            pass
    except UsageError as refused:
        pytest.skip(f"{refused}: {refused.saw}")


def run_below(group, code):
    join = f"open({str(group.directory / 'cgroup.procs')!r}, 'w').write('0')\n"
    return subprocess.run(
        [sys.executable, "-c", join + code], capture_output=True, text=True, timeout=patient(30), check=False
    )


@pytest.mark.process
def test_a_quarter_of_a_cpu_is_a_quarter(limited):
    code = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    with cpu_limit(0.25) as group:
        used = float(run_below(group, code).stdout)
    assert 0.3 < used < 0.8, "2 s at a quarter of a CPU, with the start of Python and the last period's rest"


@pytest.mark.process
@pytest.mark.fault
def test_memory_beyond_the_limit_is_killed(limited):
    with memory_limit(64 << 20) as group:
        assert run_below(group, "bytearray(16 << 20)").returncode == 0
        assert run_below(group, "bytearray(256 << 20)").returncode == -9


@pytest.mark.process
def test_one_process_too_many_is_refused(limited):
    with process_limit(1) as group:
        assert "Resource temporarily unavailable" in run_below(group, "import os; os.fork()").stderr


@pytest.mark.slow
@pytest.mark.process
def test_who_is_still_in_the_group_at_its_end_goes_on_without_the_limit(limited):
    with cpu_limit(0.5) as group:
        sleeper = subprocess.Popen(["sleep", "300"])
        group.add(sleeper.pid)
        group.add()
    try:
        assert not group.directory.exists() and sleeper.poll() is None
        started = time.process_time()
        assert time.process_time() >= started and os.getpid()
    finally:
        sleeper.kill()
        sleeper.wait()
