"""Exposed communication of DDP models: when their timers are read, and what is held between two readings."""

import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.recording.ring import COMMUNICATION_MEASURED, Basis
from paceline.worker.instruments.ddp import ExposedCommunication
from paceline.worker.instruments.waits import time_waits
from paceline.worker.rank_recorder import RankRecorder


@pytest.fixture
def instrument(tmp_path, monkeypatch):
    """Registered in a rank of its own, beside a process group of one."""
    monkeypatch.setenv("PACELINE_RING_DIR", str(tmp_path))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank = RankRecorder()
    instrument = ExposedCommunication(rank)
    rank.registry.add(instrument.name, instrument.methods())
    instrument.begin()
    rank.join(0, 1, 0)
    yield instrument
    rank.forget()
    dist.destroy_process_group()


def train(rank, model, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        rank.after_step(optimizer, (), {})


def wrapped(instrument):
    model = DistributedDataParallel(nn.Linear(4, 3))
    instrument.rank.registry.tell("model_wrapped", model)
    return model


def test_timers_are_read_after_the_third_step_and_seldom_from_then_on(instrument):
    rank, model = instrument.rank, wrapped(instrument)
    assert rank.next_due == 3
    train(rank, model, 3)
    (reducer,) = instrument.reducers
    assert Basis.DDP_SAMPLED in rank.basis and rank.next_due == 3 + reducer.every == 53
    assert rank.failures == []


def test_a_model_that_is_gone_is_asked_nothing_more(instrument):
    rank, model = instrument.rank, wrapped(instrument)
    # torch itself may keep the model for a while.
    instrument.reducers[0]._module = weakref.ref(nn.Linear(1, 1))
    train(rank, model, 3)
    assert instrument.reducers == [] and rank.next_due > 10**9


def test_timers_that_cannot_be_read_drop_the_instrument_and_leave_nothing_held(instrument):
    rank, model = instrument.rank, wrapped(instrument)
    rank.held_ns = 1000
    instrument.reducers[0].exposed_ns = None
    train(rank, model, 4)
    assert (rank.held_ns, rank.silent, rank.step_count) == (0, {"ddp"}, 4)
    assert len(rank.failures) == 1


def test_a_new_reducer_counts_from_the_beginning(instrument):
    rank, model = instrument.rank, wrapped(instrument)
    train(rank, model, 3)
    (reducer,) = instrument.reducers
    assert reducer._iteration > 0
    rank.registry.tell("reducer_renewed", model)
    assert reducer._iteration == 0


def test_steps_of_a_wrapped_model_are_not_marked_as_timed(instrument):
    rank = instrument.rank
    rank.rests_on(Basis.WAITS_TIMED)
    assert rank.step_word >> 32 == COMMUNICATION_MEASURED
    model = wrapped(instrument)
    assert rank.step_word >> 32 == 0
    train(rank, model, 3)
    instrument.reducers[0]._module = weakref.ref(nn.Linear(1, 1))
    train(rank, model, 53)
    assert rank.step_word >> 32 == COMMUNICATION_MEASURED


def test_a_backward_pass_that_is_finalized_by_hand_is_timed_where_the_script_waits(instrument):
    class Wrapper:
        def finalize_backward(self):
            assert rank.busy
            self.finalized = True

    rank, wrapper = instrument.rank, Wrapper()
    time_waits(Wrapper, rank, "finalize_backward")
    wrapper.finalize_backward()
    assert wrapper.finalized and rank.communication_ns > 0 and rank.failures == []


def test_the_exposed_time_of_such_a_model_is_not_counted_twice(instrument):
    rank, model = instrument.rank, wrapped(instrument)
    train(rank, model, 2)
    (reducer,) = instrument.reducers
    times = {"backward_comm_time_end": 9_000, "backward_compute_time_end": 1_000}
    for by_hand, held_ns in ((False, 8_000), (True, 0)):
        reducer._take(rank, times, reducer._iteration + 1, in_python=False, finalized_by_hand=by_hand)
        assert reducer._held_ns == pytest.approx(held_ns)
