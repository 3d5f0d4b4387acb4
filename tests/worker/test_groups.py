"""What is set before the first process group."""

import os
from types import SimpleNamespace

import pytest

from paceline.worker.instruments.flight_recorder import give_room, offer_finished_entries

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


def test_finished_entries_are_offered_where_torch_has_a_recorder_for_each_backend():
    registered, shown = {}, []
    native = SimpleNamespace(
        _register_handler=registered.__setitem__,
        _dump_fr_trace_json=lambda collectives, only_active, backend: f"{collectives} {only_active} {backend}".encode(),
    )
    offer_finished_entries(native)
    assert registered == {}, "before 2.15 torch's own question has them"
    native._dump_fr_trace_file = print
    offer_finished_entries(native)
    (answer,) = registered.values()
    request = SimpleNamespace(get_param={"backend": "nccl2"}.__getitem__)
    answer(request, SimpleNamespace(set_content=lambda *content: shown.append(content)))
    assert shown == [(b"True False nccl2", "application/json")]
