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
