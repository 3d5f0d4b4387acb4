import torch

from paceline.parts.resume.worker import devices


def test_without_a_gpu_there_is_nothing_to_wait_for():
    assert not devices.wait()


def test_each_gpu_with_memory_of_this_process_is_waited_for_and_no_other(monkeypatch):
    # No machine of the tests has two.
    waited = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", {0: 0, 1: 4096, 2: 0}.get)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    assert devices.wait() and waited == [1]
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda number: 0)
    assert not devices.wait() and waited == [1]
