"""This process as a rank, without torch: what its instruments do to signals, threads and the first step."""

import functools
import gc
import json
import random
import signal
import sys
import threading
from _thread import start_new_thread

import pytest

from paceline.recording.ring import COMMUNICATION_MEASURED, Basis, Cell, RankPhase, RingReader, parse_records
from paceline.worker.rank_recorder import RankRecorder
from paceline.worker.signal_handlers import is_of_a_handler

WAITS = "waits"


@pytest.fixture
def rank(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_RING_DIR", str(tmp_path))
    monkeypatch.delenv("PACELINE_SOCKET_DIR", raising=False)
    rank = RankRecorder()
    rank.join(0, 1, 0)
    yield rank
    if rank.ring is not None:
        rank.forget()


class Optimizer:
    """One that has nothing to step."""


class Interrupted:
    """Cells of a ring during whose writing a signal comes."""

    def __init__(self, cells):
        self.cells = cells

    def __getitem__(self, index):
        return self.cells[index]

    def __setitem__(self, index, value):
        signal.raise_signal(signal.SIGUSR1)
        self.cells[index] = value

    def release(self):
        self.cells.release()


class Preempted(Exception):
    """What a script's own handler raises, to save a checkpoint and leave."""


def preempt(number, frame):
    raise Preempted


def preempt_once(number, frame):
    """As in many scripts: the next signal shall end the process."""
    signal.signal(number, signal.SIG_DFL)
    raise Preempted


def preempt_by_another(*given):
    signal.signal(given[0], signal.SIG_IGN)
    preempt(*given)


class Handler:
    def __call__(self, number, frame):
        raise Preempted

    def handle(self, number, frame):
        raise Preempted

    def handle_once(self, number, frame):
        signal.signal(number, signal.default_int_handler)
        raise Preempted


HANDLERS = [
    preempt, Handler(), Handler().handle, functools.partial(preempt),
    preempt_once, preempt_by_another, Handler().handle_once, functools.partial(preempt_once),
]  # fmt: skip


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_signal_handler_raises_inside_an_instrument_reaches_the_script(rank, handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        rank.ring.cells = Interrupted(rank.ring.cells)
        with pytest.raises(Preempted):
            rank.after_step(Optimizer(), (), {})
        signal.signal(signal.SIGUSR1, handler)
        with pytest.raises(Preempted):
            rank.begin(RankPhase.COMMUNICATION, WAITS)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert rank.silent == set()


def test_what_an_instrument_raises_itself_never_reaches_the_script(rank):
    rank.ring.drop()
    rank.after_step(Optimizer(), (), {})
    assert "steps" in rank.silent
    rank.ring = None


def test_a_wait_that_never_ended_does_not_hide_those_that_follow(rank):
    assert rank.begin(RankPhase.COMMUNICATION, WAITS)
    # Its handler's exception left before the end was noted.
    optimizer = Optimizer()
    for _ in range(16):
        rank.after_step(optimizer, (), {})
    assert rank.begin(RankPhase.COMMUNICATION, WAITS)


@pytest.mark.parametrize("logs", [False, True])
def test_a_wait_in_a_thread_of_autograd_counts_also_where_that_thread_writes_logs(rank, logs):
    waited, done = [], threading.Event()

    def in_a_thread_that_python_did_not_start():
        if logs:
            threading.current_thread()
        waited.append(rank.begin(RankPhase.COMMUNICATION, WAITS))
        done.set()

    start_new_thread(in_a_thread_that_python_did_not_start, ())
    assert done.wait(10)
    assert waited[0] > 0


def test_a_wait_in_a_thread_of_the_script_holds_up_nobody(rank):
    waited = []
    thread = threading.Thread(target=lambda: waited.append(rank.begin(RankPhase.COMMUNICATION, WAITS)))
    thread.start()
    thread.join()
    assert waited == [0]


def test_the_first_step_begins_after_the_rendezvous(rank):
    rank.boundary_ns -= 60 * 10**9
    rank.communication_ns = 59 * 10**9
    rank.joined_group("gloo", 60 * 10**9)
    rank.after_step(Optimizer(), (), {})
    header = RingReader(rank.ring.path).header()
    assert header.step_total_ns < 50 * 10**9
    assert header.communication_total_ns == 0
    assert rank.ring.cells[Cell.STEP_COUNT] == 1


def first_step_ns(rank):
    rank.after_step(Optimizer(), (), {})
    return RingReader(rank.ring.path).header().step_total_ns


def prepare(rank, seconds):
    """As if the script had spent so long on its model since the last mark."""
    rank.boundary_ns -= seconds * 10**9


@pytest.mark.parametrize("mark", ["forward_begins", "backward_begins"])
def test_what_a_script_does_before_its_first_pass_is_no_step(rank, mark):
    rank.joined_group("gloo", 0)
    prepare(rank, 60)
    getattr(rank, mark)()
    assert first_step_ns(rank) < 50 * 10**9


def test_the_first_step_begins_with_the_first_batch_of_the_loader_that_trains(rank):
    rank.joined_group("gloo", 0)
    for loader in (1, 2):
        # A batch for its shape, or for a trial of the validation, then the model, then the loader of the training.
        prepare(rank, 60)
        rank.batch_is_asked_for(loader)
        rank.loader = loader
    prepare(rank, 3)
    # Of the same loader's next batch, of the passes: all of the first step.
    rank.batch_is_asked_for(2)
    rank.forward_begins()
    rank.backward_begins()
    assert 3 * 10**9 <= first_step_ns(rank) < 50 * 10**9


def test_after_the_first_backward_pass_nothing_moves_the_beginning_of_the_first_step(rank):
    rank.joined_group("gloo", 0)
    rank.backward_begins()
    prepare(rank, 60)
    rank.forward_begins()
    rank.backward_begins()
    rank.joined_group("gloo", 0)
    assert first_step_ns(rank) >= 60 * 10**9 and not rank.preparing


def test_a_pass_before_the_first_rendezvous_is_none_of_the_training(rank):
    rank.backward_begins()
    prepare(rank, 60)
    rank.joined_group("gloo", 0)
    prepare(rank, 60)
    rank.forward_begins()
    assert first_step_ns(rank) < 50 * 10**9


OPTIMIZER = Optimizer()


def is_measured(rank):
    """Whether the newest step is marked as one whose communication was timed."""
    rank.after_step(OPTIMIZER, (), {})
    reader = RingReader(rank.ring.path)
    (*_, newest) = parse_records(reader.drain()[0])
    reader.close()
    return bool(newest.code & COMMUNICATION_MEASURED)


def test_a_step_whose_communication_was_timed_is_marked(rank):
    assert not is_measured(rank)
    rank.rests_on(Basis.WAITS_TIMED)
    assert is_measured(rank)


def test_a_step_is_not_marked_if_its_communication_was_sampled_or_not_seen(rank):
    rank.rests_on(Basis.WAITS_TIMED)
    rank.samples_ddp = True
    rank.publish_state()
    assert not is_measured(rank)
    rank.samples_ddp = False
    rank.rests_on(Basis.DEVICE_WAITS_UNSEEN)
    assert not is_measured(rank)


def test_a_step_is_not_marked_once_waits_are_no_longer_watched(rank):
    rank.rests_on(Basis.WAITS_TIMED)
    rank.drop(WAITS, RuntimeError("gone"))
    assert not is_measured(rank)


def test_a_notice_of_before_is_written_once_this_process_is_a_rank(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_RING_DIR", str(tmp_path))
    rank = RankRecorder()
    rank.notice("resume", "no state is kept")
    rank.join(0, 1, 0)
    rank.notice("gradients", "later")
    (texts,) = tmp_path.glob("*.texts")
    told = [json.loads(line) for line in texts.read_text().splitlines()]
    assert [line[2:] for line in told] == [["resume", "no state is kept"], ["gradients", "later"]]
    rank.forget()
    assert rank.unsaid == []


def test_what_a_function_of_the_users_raises_is_of_no_handler():
    """It was given a frame, as handlers are, but not that of its caller."""

    def given(number, frame):
        raise Preempted

    try:
        given(1, sys._getframe(1))
    except Preempted as error:
        assert not is_of_a_handler(error)


def test_no_exception_of_a_handler_is_lost_in_a_storm_of_signals(rank):
    raised = caught = 0

    def handler(number, frame):
        nonlocal raised
        signal.signal(number, signal.SIG_DFL)
        raised += 1
        raise Preempted

    optimizer, waits = Optimizer(), random.Random(7)
    # hypothesis looks at every collection of garbage, and Python drops what is raised there.
    gc.disable()
    while raised < 5000:
        before = raised
        try:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, waits.uniform(0.00001, 0.0005))
            # The exception comes where the signal did, so nobody gets to the next turn without it.
            while raised == before:
                rank.after_step(optimizer, (), {})
                rank.end(rank.begin(RankPhase.COMMUNICATION, WAITS), WAITS)
                rank.notice("topic", "text")
                rank.lacks("data")
        except Preempted:
            caught += 1
    gc.enable()
    assert caught == raised
    assert rank.silent == set() and rank.failures == []
