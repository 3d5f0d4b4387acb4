import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.probes.cgroup import OomCounters, control_group, oom_counters
from paceline.probes.kernel_log import KernelLine, oom_kills, parse_dmesg, parse_kmsg, read_kernel_lines
from paceline.probes.sigkill_source import NOT_FOR_MEMORY, NOT_JUDGED, who_killed

BEFORE = OomCounters(group_kills=1, host_kills=4)
# The kernel's own format (mm/oom_kill.c, __oom_kill_process); not recorded, since nobody fills a whole host for a test.
HOST_LINE = KernelLine(
    seconds=1,
    text="Out of memory: Killed process 77 (python (x)) total-vm:900kB, anon-rss:2048kB, file-rss:0kB, "
    "shmem-rss:1024kB, UID:0 pgtables:196kB oom_score_adj:0",
)


def after(group: int | None, host: int | None) -> OomCounters:
    return OomCounters(group_kills=group, host_kills=host, limit_bytes=60 << 20, peak_bytes=59 << 20)


def test_both_forms_of_the_log_name_the_process_and_its_memory(recorded):
    for lines in (parse_kmsg(recorded("kmsg_oom_group").splitlines()), parse_dmesg(recorded("dmesg_oom_group"))):
        assert len(lines) == 4
        assert lines[-1].seconds == pytest.approx(1299.532001)
        (kill,) = oom_kills(lines)
        assert (kill.pid, kill.name, kill.in_group) == (7514, "python3", True)
        assert kill.resident_bytes == (68096 + 6612) * 1024


def test_a_full_host_is_told_from_a_full_group():
    (kill,) = oom_kills([HOST_LINE])
    assert (kill.pid, kill.name, kill.in_group, kill.resident_bytes) == (77, "python (x)", False, 3 << 20)
    assert (
        who_killed(77, BEFORE, after(2, 5), [HOST_LINE])
        == "killed by the kernel's OOM killer: the host ran out of memory; the process held 3 MiB"
    )


def test_continuation_lines_and_other_text_are_left_out():
    assert parse_kmsg(["6,1,100,-;hello\n SUBSYSTEM=net", "garbage", ""]) == (KernelLine(seconds=0.0001, text="hello"),)
    assert parse_dmesg("no stamp\n[    1.5] text\n") == (KernelLine(seconds=1.5, text="text"),)


def test_a_line_that_names_the_pid_settles_it(recorded):
    lines = parse_kmsg(recorded("kmsg_oom_group").splitlines())
    said = who_killed(7514, BEFORE, after(2, 5), lines)
    assert (
        said
        == "killed by the kernel's OOM killer: its memory control group was full at its limit of 60 MiB (peak 59 MiB)"
        "; the process held 73 MiB"
    )


def test_no_counter_moved_means_that_the_sender_is_unknown():
    assert who_killed(1, BEFORE, after(1, 4)) == NOT_JUDGED
    assert who_killed(1, OomCounters(host_kills=4), OomCounters(host_kills=4)) == NOT_JUDGED


def test_counters_that_cannot_be_read_are_said_and_not_taken_as_zero():
    assert (
        who_killed(1, OomCounters(), OomCounters())
        == "not judged: no oom counter can be read here; the sender is unknown"
    )
    assert who_killed(1, OomCounters(host_kills=4), OomCounters(host_kills=5)).startswith("likely")


def test_without_the_log_the_counter_makes_it_likely(recorded):
    assert who_killed(1, BEFORE, after(2, 5)).startswith(
        "likely killed by the kernel's OOM killer: its memory control group was full"
    )
    said = who_killed(1, BEFORE, after(2, 5), parse_kmsg(recorded("kmsg_oom_group").splitlines()))
    assert said.startswith("unclear")
    assert "7514 (python3)" in said


def test_a_kill_elsewhere_on_the_host_is_not_taken_for_this_one():
    assert who_killed(1, BEFORE, after(1, 5)).startswith("unclear")


def test_a_log_that_names_every_victim_clears_the_others(recorded):
    lines = parse_kmsg(recorded("kmsg_oom_group").splitlines())
    assert who_killed(1, BEFORE, after(1, 5), lines).startswith(NOT_FOR_MEMORY)
    assert who_killed(1, BEFORE, after(1, 9), lines).startswith("unclear")


def test_the_log_of_this_machine_is_read_without_waiting_or_says_why_not():
    found = read_kernel_lines()
    assert found.lines or found.reason
    assert read_kernel_lines(since_seconds=time.monotonic() + 3600).lines == ()


@pytest.fixture
def small_group():
    """A memory control group of 40 MiB below this process's own; only root may make one."""
    group = control_group("memory")
    if group is None or not os.access(group.directory, os.W_OK) or os.geteuid() != 0:
        pytest.skip("no memory control group can be made here")
    directory = group.directory / f"paceline-test-{os.getpid()}"
    limit = directory / ("memory.limit_in_bytes" if group.version == 1 else "memory.max")
    try:
        directory.mkdir()
        limit.write_text(str(40 << 20))
    except OSError as refused:
        pytest.skip(f"no memory control group can be made here: {refused}")
    yield directory
    directory.rmdir()


def _in_group(directory: Path, code: str) -> subprocess.Popen[str]:
    join = f"import os, sys; open({str(directory / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    start = f"{join}; print('in', flush=True); sys.stdin.readline(); {code}"
    process = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


@pytest.mark.process
@pytest.mark.fault
def test_a_real_oom_kill_is_recognised_and_a_kill_by_hand_is_not(small_group):
    process = _in_group(small_group, "kept = [bytearray(1 << 20) for _ in range(100)]")
    group = control_group("memory", process.pid)
    before, started = oom_counters(group), time.monotonic()
    process.communicate("\n")
    assert process.returncode == -signal.SIGKILL
    said = who_killed(process.pid, before, oom_counters(group), read_kernel_lines(started - 1).lines)
    assert "killed by the kernel's OOM killer: its memory control group was full at its limit of 40 MiB" in said

    process = _in_group(small_group, "sys.stdin.readline()")
    before = oom_counters(group)
    process.kill()
    process.communicate()
    assert who_killed(process.pid, before, oom_counters(group), read_kernel_lines(time.monotonic()).lines) == NOT_JUDGED
