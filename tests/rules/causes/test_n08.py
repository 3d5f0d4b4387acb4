"""N08: an uninterruptible system call that does not come back."""

import pytest

from paceline.diagnosis.snapshots import HostSnapshot
from paceline.findings import Confidence


def test_what_it_waits_on_is_named(found, case, snapshot):
    hangs = snapshot(
        1, state="D", wait_channel="nfs_wait_bit_killable", blocked_on="/data/x (nfs on /data)", stacks=None
    )
    (finding,) = found("N08", case(snapshots=[hangs]))
    assert (finding.ranks, finding.level, finding.confidence) == ((1,), "stall", Confidence.HIGH)
    assert finding.title == "rank hangs in a system call on /data/x"
    assert "a network file system (NFS)" in finding.saw[0]
    assert finding.next[0] == "on algo-1: ls -d /data/x"


def test_without_a_place_the_kernels_stack_is_offered(found, case, snapshot):
    (finding,) = found("N08", case(snapshots=[snapshot(1, state="D", wait_channel="0")]))
    assert finding.confidence is Confidence.LIKELY
    assert finding.next[0] == "on algo-1: cat /proc/1001/stack"


def test_what_the_kernel_said_of_it_is_shown(found, case, snapshot):
    lines = ("[100.0] segfault at 0", "[200.0] nfs: server store not responding, still trying")
    looked = HostSnapshot(host="algo-1", at_ns=1, kernel_lines=lines)
    (finding,) = found("N08", case(snapshots=[snapshot(1, state="D")], host_snapshots=[looked]))
    assert [line for line in finding.saw if "kernel of algo-1" in line] == [
        "the kernel of algo-1 said: [200.0] nfs: server store not responding, still trying"
    ]


@pytest.mark.parametrize(
    "seen",
    [
        {"state": "S"},
        {"state": "D", "frozen": True},
        {"state": "D", "read_bytes_per_second": 4e6},
        {"state": "D", "disk_bytes_per_second": 4e6},
        {"state": "T"},
    ],
)
def test_look_alikes_are_left_to_others(found, case, snapshot, seen):
    assert not found("N08", case(snapshots=[snapshot(1, **seen)]))


@pytest.mark.parametrize(("disk", "words"), [(None, ()), (0.0, ("not merely slow: the disk below moves nothing",))])
def test_that_it_is_not_merely_slow_is_said_where_the_disk_was_looked_at(found, case, snapshot, disk, words):
    stuck = snapshot(1, state="D", blocked_on="/data/x (ext4 on /data)", disk_bytes_per_second=disk)
    (finding,) = found("N08", case(snapshots=[stuck]))
    assert tuple(text for text in finding.ruled_out if "slow" in text) == words


def test_without_a_state_it_is_not_judged(missing, case, snapshot):
    assert missing("N08", case(snapshots=[snapshot(1, state=None)])) == "the process state of rank 1"
