"""`paceline report --format tensorboard --follow` beside a job that runs."""

import signal

import pytest

pytestmark = pytest.mark.process

WAITS = """
import time
print("here", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_event_files_grow_until_the_run_has_ended(paceline):
    job = paceline.start("run", "--nproc-per-node", "2", paceline.script("waits.py", WAITS))
    job.until_printed("here", 2)
    follower = paceline.start("report", "--format", "tensorboard", "-o", "logs", "--follow")

    def sizes():
        return {path.parent.name: path.stat().st_size for path in (paceline.directory / "logs").rglob("events.*")}

    follower.until(lambda: "localhost" in sizes())
    first = sizes()["localhost"]
    follower.until(lambda: sizes()["localhost"] > first)
    job.process.send_signal(signal.SIGINT)
    assert job.wait().code == 130
    ended = follower.wait()
    assert ended.code == 0 and ended.out.startswith("logs/r-"), ended.err
