"""What is noted of the script's loads, by calls of the observed functions in this process."""

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from paceline.recording.ring import TEXTS, Cell
from paceline.worker.instruments.checkpoint import CheckpointObserver
from paceline.worker.rank_recorder import RankRecorder


@pytest.fixture
def observer():
    return CheckpointObserver(RankRecorder())


def model_of(observer, base=nn.Linear):
    """A model whose class is observed, and no other one."""

    class Model(base):
        pass

    observer._module(SimpleNamespace(Module=Model))
    return Model(2, 2)


class Grouped(nn.Linear):
    def named_parameters(self, group, *given):
        raise RuntimeError(group)


@pytest.mark.parametrize("base", [nn.Linear, Grouped])
def test_a_state_may_be_given_by_name_to_a_model_with_functions_of_its_own(observer, base):
    model = model_of(observer, base)
    model.load_state_dict(strict=False, state_dict={"module.weight": torch.zeros(2, 2)})
    assert observer.rank.failures == [] and observer._counts[Cell.PARAMETERS_ASKED] == 2
    ((topic, text),) = observer.rank.unsaid
    assert topic == "checkpoint" and "the state has module.weight, the model weight" in text


def test_a_directory_with_a_link_to_nothing_is_as_old_as_its_files(observer, tmp_path):
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    observer._read([str(tmp_path)], None)
    assert (observer._loaded, observer._file) == (tmp_path.stat().st_mtime_ns, str(tmp_path))


def test_a_model_takes_its_state_while_another_thread_loads(observer):
    begun, may_end = threading.Event(), threading.Event()

    def load(path):
        begun.set()
        may_end.wait()

    slow = threading.Thread(target=observer._noted(load, observer._read), args=("data.pt",))
    slow.start()
    begun.wait()
    model = model_of(observer)
    model.load_state_dict(nn.Linear(2, 2).state_dict())
    may_end.set()
    slow.join()
    assert observer._counts[Cell.PARAMETERS_LOADED] == 2


def test_of_a_long_path_in_any_script_the_end_is_kept(observer):
    texts = {}
    observer.rank.ring = SimpleNamespace(cells={}, text=texts.__setitem__)
    observer._took(5, f"/home/{'实验' * 60}/last.pt")
    observer._publish()
    file = texts["loaded_file"]
    assert file.endswith("实验/last.pt") and len(file.encode()) < TEXTS["loaded_file"][1]
