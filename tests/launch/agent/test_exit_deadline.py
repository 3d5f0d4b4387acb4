"""A rank that leaves is given all the time in which it does something, and ten seconds in which it does not."""

from paceline.launch.agent.exit_deadline import FAILED_IDLE_SECONDS, ExitDeadline
from paceline.probes.processes import MovedBytes

SECOND = 1_000_000_000


def killed_at(cpu, moved, seconds=300, **idle):
    """The second at which a process is overdue that has used `cpu(s)` and written `moved(s)` bytes by second s of its exit."""
    deadline = ExitDeadline(1000 * SECOND, **idle)
    over = (s for s in range(1, seconds) if deadline.is_over((1000 + s) * SECOND, cpu(s), MovedBytes(0, moved(s))))
    return next(over, None)


def test_who_does_nothing_has_ten_seconds():
    assert killed_at(lambda s: 3.0, lambda s: 700) == 10


def test_who_has_raised_and_waits_for_the_others_has_less():
    assert killed_at(lambda s: 3.0, lambda s: 700, idle_seconds=FAILED_IDLE_SECONDS) == 4


def test_threads_that_only_wake_up_now_and_then_do_nothing():
    assert killed_at(lambda s: 0.01 * s, lambda s: 700) == 10


def test_a_finalizer_that_writes_is_never_cut_off():
    assert killed_at(lambda s: 0.0, lambda s: s // 8) is None


def test_one_that_computes_without_writing_has_two_minutes():
    assert killed_at(lambda s: 0.9 * s, lambda s: 700) == 120


def test_what_was_done_in_the_meantime_starts_the_ten_seconds_again():
    assert killed_at(lambda s: min(s, 20) * 0.5, lambda s: 700) == 30


def test_the_time_in_which_nobody_looked_counts_for_no_process():
    """The agent was stopped, and with it perhaps the process: a frozen cgroup, a suspended machine."""
    deadline = ExitDeadline(1000 * SECOND)
    looks = [1, 2, 3, 600, 601, 602, 1200, 1201, 1202, 1203, 1204, 1205]
    over = [s for s in looks if deadline.is_over((1000 + s) * SECOND, 3.0, MovedBytes(0, 700))]
    # Seconds that count: 3 before the first stop, 2 between the two, 5 after them.
    assert over == [1205]
