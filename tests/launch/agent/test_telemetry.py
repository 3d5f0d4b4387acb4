"""The monitor: one sample at a time, whoever asks for it, and one that fails is not the last."""

import asyncio
import threading
from pathlib import Path

import pytest

from paceline.launch.agent.scratch import Scratch
from paceline.launch.agent.telemetry import HostMonitor
from paceline.launch.agent.workers import Workers
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import RecordKind, RingWriter


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


@pytest.mark.parametrize(
    ("local_rank", "device"),
    [(0, {"gpu_uuid": "GPU-a", "gpu_index": 1}), (1, {"gpu_uuid": "MIG-b"}), (2, {}), (None, {})],
)
def test_a_rank_that_joins_is_told_with_the_device_of_its_local_number(tmp_path, local_rank, device):
    scratch = Scratch(tmp_path, tmp_path, tmp_path, tmp_path, ())
    monitor = HostMonitor(
        "h", RunDirectory(tmp_path), scratch, lambda kind, lines: None, lambda name, **fields: None,
        visible_devices="1,0", gpus=(("GPU-a", 1), ("MIG-b", None)),
    )  # fmt: skip
    assert monitor._device(local_rank) == {"visible_devices": "1,0", **device}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_keeps_no_attempt_from_its_end_and_is_told(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    attempt = directory.attempt("h", 0)
    attempt.mkdir(parents=True)
    for name in ("steps_10s.roll", "steps_160s.roll", "steps_2560s.roll", "rank_0.seg"):
        (attempt / name).symlink_to("/dev/full")
    directory.telemetry_file("h").symlink_to("/dev/full")
    directory.telemetry_roll_file("h").symlink_to("/dev/full")
    writer = RingWriter(tmp_path / "0-1.ring", capacity=256)
    writer.write(RecordKind.STEP, 0, 1, 5, 5)

    async def talk(monitor):
        await monitor.end_attempt()
        await monitor.close()
        told = monitor.not_written()
        assert told.startswith("1 times the steps of a rank, 3 sums of steps, ") and told.endswith(
            " lines of telemetry"
        )

    monitored(tmp_path, CountingSampler(), talk)
    writer.drop()
