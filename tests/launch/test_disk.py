"""A disk that does not answer keeps nobody waiting, and what others send meanwhile does not pile up without end."""

import threading

from paceline.launch.disk import DiskThread


def test_what_others_sent_is_dropped_when_too_much_waits_and_what_is_ours_never():
    answers, written = threading.Event(), []
    disk = DiskThread(most_waiting_bytes=100)
    disk.write(answers.wait)
    assert disk.offer(60, written.append, "first") and disk.offer(40, written.append, "second")
    assert not disk.offer(1, written.append, "too much")
    disk.write(written.append, "our own")
    answers.set()
    disk.close()
    assert written == ["first", "second", "our own"]


def test_room_comes_back_with_each_write_also_with_one_that_failed():
    disk = DiskThread(most_waiting_bytes=10)
    done = threading.Event()
    assert disk.offer(10, {}.__getitem__, "not there")
    disk.write(done.set)
    assert done.wait(10) and disk.offer(10, done.wait)
    disk.close()
