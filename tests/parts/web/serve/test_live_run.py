"""Whoever asks again and again has the page as it is."""

import os
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from web_recordings import record

from paceline.cli.report import recorded_live
from paceline.parts.web.serve.live_run import LiveRun, Parts

TEXTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"]), max_size=3)


@settings(deadline=None)
@given(versions=st.lists(st.tuples(TEXTS, st.booleans()), max_size=8))
def test_who_takes_what_changed_has_everything(versions):
    parts, cursor, held = Parts(), "", {}
    for texts, asks in versions:
        parts.put(texts)
        if asks:
            changes = parts.since(cursor)
            if changes is not None:
                cursor = changes.cursor
                held = {name: changes.texts.get(name, held.get(name)) for name in changes.names}
            assert held == texts


def test_a_cursor_of_another_server_gets_everything():
    parts = Parts()
    parts.put({"a": "1", "b": "2"})
    for cursor in ("", "other.1", "other", ".", f"{parts.since('').cursor}0", "x.99999999999999999999", "x.\u0661"):
        assert parts.since(cursor).texts == {"a": "1", "b": "2"}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def live(path, reads, clock):
    def counted(paths, read):
        reads.append(1)
        return recorded_live(paths, read)

    return LiveRun([path], counted, clock)


def test_a_recording_that_has_not_changed_is_not_read_again(root):
    reads, clock = [], Clock()
    one = live(root / "r-000001", reads, clock)
    cursor = one.since("")["cursor"]
    for _ in range(50):
        clock.now += 100.0
        assert one.since(cursor) == {"cursor": cursor}
    assert len(reads) == 1


def test_a_new_event_is_on_the_page(root):
    reads, clock = [], Clock()
    path = record(root, "r-000002", ended=False)
    one = live(path, reads, clock)
    cursor = one.since("")["cursor"]
    with (path / "events.jsonl").open("a") as file:
        file.write('{"t_ns": 1000000000005, "event": "notice", "text": "something new", "host": "a"}\n')
    clock.now += 100.0
    answer = one.since(cursor)
    assert "something new" in answer["html"]["events"] and "stacks" not in answer["html"]


def test_many_readers_cost_one_reading(root):
    reads, clock = [], Clock()
    path = record(root, "r-000002", ended=False)
    one = live(path, reads, clock)
    for _ in range(10):
        one.since("")
    assert len(reads) == 1


def test_a_page_that_is_made_seldom_says_how_old_it_is_and_how_far_the_job_is(recording):
    run, clock = recording("r-000003"), Clock()
    run.identity(agent_pid=os.getpid())
    run.event("attempt_started", attempt=0, world_size=2, hosts=[{"host": "algo-1", "first_rank": 0, "ranks": 2}])
    run.segment("algo-1", 0, steps=12)
    run.segment("algo-1", 1, steps=9)

    def costly(paths, read):
        until = time.thread_time() + 0.4
        while time.thread_time() < until:
            continue
        return recorded_live(paths, read)

    one = LiveRun([run.path], costly, clock)
    cursor = one.since("")["cursor"]
    assert one.since(cursor) == {"cursor": cursor}
    run.segment("algo-1", 1, steps=11)
    run.event("notice", text="new", host="algo-1")
    clock.now += 3.0
    answer = one.since(cursor)
    assert answer["cursor"] == cursor and answer["behind_seconds"] == 3.0 and answer["step"] == 11
    assert answer["last_step_seconds_ago"] >= 0.0
    clock.now += 11.0
    assert one.since(cursor)["behind_seconds"] == 14.0
    # At 50 times its cost, or where that would be long, after 15 s.
    clock.now += 2.0
    assert "new" in one.since(cursor)["html"]["events"]
