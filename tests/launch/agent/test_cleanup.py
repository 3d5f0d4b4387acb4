"""What is done behind the ranks of an attempt, also where it fails: the other hosts wait for this one."""

import asyncio
from types import SimpleNamespace

from paceline.launch.agent.cleanup import Cleanup, unwatched_processes


class Stage:
    """Stands for everything that is cleared up, and notes what is done, in order. What is in `broken` fails."""

    def __init__(self, errors, broken=""):
        self.done, self.events, self.broken = [], [], broken
        watched = SimpleNamespace(step_count=lambda: 7)
        output = SimpleNamespace(drain=lambda seconds: self.note("late output"))
        self.cleanup = Cleanup(
            "h",
            SimpleNamespace(
                reap_orphans=lambda: None, here=lambda: {1: 1}, end=lambda grace: self.note("end"), kill=self.kill
            ),
            SimpleNamespace(drain=lambda seconds: self.note("output"), of_attempt=lambda: output),
            SimpleNamespace(
                detach=lambda: watched, end_attempt=self.records, end_detached=lambda watched: self.records()
            ),
            lambda name, **fields: self.events.append((name, fields)),
        )
        self.exits = SimpleNamespace(
            attempt=SimpleNamespace(message=SimpleNamespace(attempt=2), errors=errors),
            report_early=self.early,
            judged=self.judged,
        )

    def note(self, what):
        self.done.append(what)
        if what == self.broken:
            raise OSError(f"no {what}")

    async def kill(self, timeout_seconds):
        self.note("kill")

    async def early(self):
        self.note("early")

    async def judged(self):
        self.note("judged")

    async def records(self):
        self.note("records")


def test_what_the_ranks_left_is_ended_and_read(tmp_path):
    (tmp_path / "41.unwatched").write_text("no room")
    stage = Stage(tmp_path)
    asyncio.run(stage.cleanup.clear(stage.exits))
    assert stage.done == ["end", "output", "records"]
    assert stage.events == [("process_unwatched", {"attempt": 2, "pid": 41, "reason": "no room"})]


def test_a_failure_is_said_and_keeps_no_host_waiting(tmp_path):
    stage = Stage(tmp_path, broken="end")
    asyncio.run(stage.cleanup.clear(stage.exits))
    text = "h could not clear up after attempt 2: OSError: no end"
    assert stage.events == [("notice", {"text": text})]


def killed(stage):
    async def main():
        made_count = await stage.cleanup.kill(stage.exits)
        before = list(stage.done)
        await stage.cleanup.finish()
        return made_count, before

    return asyncio.run(main())


def test_where_ranks_go_on_at_once_their_output_is_read_meanwhile(tmp_path):
    stage = Stage(tmp_path)
    assert killed(stage) == (7, ["kill", "early"])
    assert stage.done == ["kill", "early", "judged", "late output", "records"] and stage.events == []


def test_ends_are_reported_although_what_is_left_cannot_be_killed(tmp_path):
    stage = Stage(tmp_path, broken="kill")
    assert killed(stage) == (7, ["kill", "early"]) and "no kill" in stage.events[0][1]["text"]


def test_a_process_that_was_not_watched_is_named_once(tmp_path):
    (tmp_path / "12.unwatched").write_text("why")
    (tmp_path / "twelve.unwatched").write_text("?")
    found = sorted(unwatched_processes(tmp_path), key=lambda process: process["pid"])
    assert found == [{"pid": 0, "reason": "?"}, {"pid": 12, "reason": "why"}] and not list(tmp_path.iterdir())
