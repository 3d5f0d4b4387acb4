"""The time in which an agent itself did not run counts for nobody."""

import os
import signal
import subprocess
import sys
import time

import pytest

WAITS = """
import asyncio, sys, time
from paceline.launch.pausable_loop import OwnTimeLoop

async def main():
    began, own = time.monotonic(), asyncio.get_running_loop().time()
    print("waits", flush=True)
    try:
        match sys.argv[1]:
            case "timeout":
                async with asyncio.timeout(2.0):
                    await asyncio.Event().wait()
            case "wait_for":
                await asyncio.wait_for(asyncio.Event().wait(), 2.0)
            case "sleep":
                await asyncio.sleep(2.0)
            case "call_later":
                called = asyncio.Event()
                asyncio.get_running_loop().call_later(2.0, called.set)
                await called.wait()
    except TimeoutError:
        pass
    print(time.monotonic() - began, asyncio.get_running_loop().time() - own)

with asyncio.Runner(loop_factory=OwnTimeLoop) as runner:
    runner.run(main())
"""
STOPPED_SECONDS = 3.0


@pytest.mark.slow_but_first
@pytest.mark.parametrize("wait", ["timeout", "wait_for", "sleep", "call_later"])
def test_a_deadline_of_a_stopped_process_is_later_by_the_time_of_the_stop(wait):
    with subprocess.Popen([sys.executable, "-c", WAITS, wait], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        time.sleep(STOPPED_SECONDS)
        stopped_seconds = time.monotonic() - stopped
        os.kill(process.pid, signal.SIGCONT)
        took, own = map(float, process.stdout.read().split())
    # Between two looks at the clock the time of the wait itself passes too, on a busy machine a part of it twice.
    assert took >= stopped_seconds + 1.0
    assert own < took - 1.0
