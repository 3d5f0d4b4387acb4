"""What is set before the first process group."""

import os
from types import SimpleNamespace

import pytest

from paceline.worker.instruments.flight_recorder import give_room

OF_ALL, OF_NCCL = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
NEW, OLD = SimpleNamespace(_dump_fr_trace_json=None), SimpleNamespace()


@pytest.mark.parametrize(
    ("native", "given", "left"),
    [
        (NEW, {}, {OF_ALL: "2000"}),
        (OLD, {}, {OF_NCCL: "2000"}),
        (NEW, {OF_ALL: "0"}, {OF_ALL: "0"}),
        (NEW, {OF_NCCL: "10"}, {OF_NCCL: "10"}),
    ],
)
def test_the_flight_recorder_has_room_unless_the_user_said_how_much(native, given, left, monkeypatch):
    # Set first, so that what is found afterwards is undone as well.
    for name in (OF_ALL, OF_NCCL):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    give_room(native)
    assert {name: os.environ[name] for name in (OF_ALL, OF_NCCL) if name in os.environ} == left
