"""The monitor: one sample at a time, whoever asks for it, and one that fails is not the last."""

import asyncio
import threading

from paceline.launch.agent.scratch import Scratch
from paceline.launch.agent.telemetry import HostMonitor
from paceline.launch.agent.workers import Workers
from paceline.recording.layout import RunDirectory


class CountingSampler:
    """Stands for the sensors: notes how many samples are taken at once."""

    def __init__(self, failures=0):
        self.missing, self.failures = {}, failures
        self.taken, self.now, self.most = 0, 0, 0
        self._lock = threading.Lock()

    def sample(self, ranks):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        threading.Event().wait(0.02)
        with self._lock:
            self.now -= 1
            self.taken += 1
            if self.taken <= self.failures:
                raise RuntimeError("a sensor of its own kind")
        return {}


def monitored(tmp_path, sampler, talk):
    async def main():
        scratch = Scratch(tmp_path, tmp_path, tmp_path, tmp_path, ())
        events = []
        monitor = HostMonitor(
            "h", RunDirectory(tmp_path / "run"), scratch, lambda kind, lines: None,
            lambda name, **fields: events.append((name, fields)), sampler=sampler,
            interval_seconds=0.0,
        )  # fmt: skip
        monitor.start()
        monitor.begin_attempt(0, Workers(None, None, lambda end: None, lambda: None))
        await talk(monitor)
        return events

    return asyncio.run(main())


def test_the_last_sample_of_an_attempt_never_meets_a_running_one(tmp_path):
    sampler = CountingSampler()

    async def talk(monitor):
        for _ in range(10):
            await monitor.end_attempt()
        await monitor.close()

    monitored(tmp_path, sampler, talk)
    assert sampler.taken > 10 and sampler.most == 1


def test_a_sample_that_fails_is_said_once_and_is_not_the_last(tmp_path):
    sampler = CountingSampler(failures=2)

    async def talk(monitor):
        async with asyncio.timeout(10):
            while sampler.taken < 5:
                await asyncio.sleep(0.005)
        await monitor.close()

    events = monitored(tmp_path, sampler, talk)
    assert [fields["sensor"] for name, fields in events if name == "sensor_missing"] == ["monitor"]
