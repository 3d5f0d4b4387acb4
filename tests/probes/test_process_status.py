"""/proc of one process."""

import os
import signal

import pytest

from paceline.probes.process_status import (
    MountPoint,
    mount_of,
    on_what,
    parse_caught_signals,
    parse_environment,
    parse_limits,
    parse_mount_points,
    parse_status,
    read_caught_signals,
    read_descriptors,
    read_threads,
    read_waiting,
)
from paceline.probes.processes import MovedBytes, parse_io, read_io
from paceline.probes.system_calls import PAGE_FAULT, RUNNING, SystemCall, parse_system_call

NO_SUCH_PID = 2**22 + 1


def test_status_of_a_sleeping_rank(recorded):
    status = parse_status(recorded("process_status"))
    assert (status.state, status.tracer_pid) == ("S", 0)
    assert status.voluntary_switches > 0


def test_a_traced_process_names_its_tracer():
    assert parse_status("State:\tt (tracing stop)\nTracerPid:\t77\n").tracer_pid == 77


def test_a_status_without_a_state_is_refused():
    with pytest.raises(ValueError):
        parse_status("Name:\tx\n")


def test_limits(recorded):
    limits = parse_limits(recorded("process_limits"))
    assert (limits.open_files, limits.processes) == (20000, 96365)


def test_no_limit_is_none():
    assert (
        parse_limits("Max open files            unlimited            unlimited            files\n").open_files is None
    )


def test_moved_bytes_count_what_was_read_from_the_page_cache(recorded):
    assert parse_io(recorded("process_io")) == MovedBytes(24390328, 94208)


def test_the_environment_with_an_empty_value_and_a_line_without_one():
    assert parse_environment(b"A=1\0B=\0C\0D=x=y\0") == {"A": "1", "B": "", "D": "x=y"}


def test_a_path_lies_on_its_longest_mount_and_of_two_on_the_last(recorded):
    mounts = parse_mount_points(recorded("mountinfo_mounts"))
    assert mount_of("/data/set/1.bin", mounts) == MountPoint("/data", "nfs4", "files.example:/export one", "0:40")
    assert mount_of("/data/scratch", mounts).kind == "fuse.rclone"
    assert mount_of("/database", mounts).point == "/"
    assert mount_of("/dev/shm/x", mounts).source == "shm"


@pytest.mark.parametrize(
    ("text", "machine", "call"),
    [
        ("running\n", "x86_64", SystemCall(RUNNING)),
        ("-1 0x7ffe 0x55\n", "x86_64", SystemCall(PAGE_FAULT)),
        ("0 0x5 0x7f 0x400 0x0 0x0 0x0 0x7ffd 0x7f12", "x86_64", SystemCall("read", descriptor=5)),
        ("63 0x5 0x7f 0x400 0x0 0x0 0x0 0x7ffd 0x7f12", "aarch64", SystemCall("read", descriptor=5)),
        ("257 0xffffff9c 0x7f00 0x80000 0x0 0x0 0x0 0x1 0x2", "x86_64", SystemCall("openat", path_address=0x7F00)),
        ("202 0x7f00 0x189 0x0 0x0 0x0 0xff 0x1 0x2", "x86_64", SystemCall("futex")),
        ("9999 0x1", "x86_64", SystemCall("call 9999")),
        ("0 0x5", "riscv64", SystemCall("call 0")),
        ("", "x86_64", None),
        ("no numbers", "x86_64", None),
    ],
)
def test_system_calls_in_words(text, machine, call):
    assert parse_system_call(text, machine) == call


def test_what_a_call_waits_for_is_named_with_its_mount(recorded):
    mounts = parse_mount_points(recorded("mountinfo_mounts"))
    read = SystemCall("read", descriptor=5)
    assert on_what(read, {5: "/data/set/1.bin"}, mounts, None) == ("/data/set/1.bin (nfs4 on /data)", "0:40")
    assert on_what(read, {5: "socket:[123]"}, mounts, None) == ("socket:[123]", None)
    assert on_what(read, {}, mounts, None) == (None, None)
    opens = SystemCall("openat", path_address=1)
    assert on_what(opens, {}, mounts, "/data/x") == ("/data/x (nfs4 on /data)", "0:40")
    assert on_what(opens, {}, mounts, None) == (None, None)


def test_this_process():
    threads = read_threads(os.getpid())
    assert threads.main.state == "R" and sum(threads.states.values()) >= 1 and threads.whole
    assert read_descriptors(os.getpid()).count > 2
    assert read_io(os.getpid()).read > 0


def test_a_process_that_is_gone_is_none():
    assert read_threads(NO_SUCH_PID) is None
    assert read_descriptors(NO_SUCH_PID) is None
    assert read_io(NO_SUCH_PID) is None
    assert read_waiting(NO_SUCH_PID, {}).call is None


def test_the_signals_that_a_process_has_a_handler_for():
    assert parse_caught_signals("Name:\tx\nSigCgt:\t0000000000000a02\n") == {2, 10, 12}
    assert parse_caught_signals("Name:\tx\n") == read_caught_signals(NO_SUCH_PID) == frozenset()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        assert signal.SIGUSR1 in read_caught_signals(os.getpid())
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.SIGUSR1 not in read_caught_signals(os.getpid())
    finally:
        signal.signal(signal.SIGUSR1, before)
