"""The instruments of a rank: who is called at which event, what becomes of one that raises, and when `at_step` comes."""

import signal

import pytest

from paceline.worker.instrument import EVENTS, RankInstrument
from paceline.worker.rank_recorder import RankRecorder


class Listener(RankInstrument):
    """Hears of two events, and is called after steps 2 and 5."""

    def begin(self):
        self.heard = []
        self.call_at(2)

    def loader_began(self, loader):
        self.heard.append(loader)

    def at_step(self, step, optimizer, frame):
        self.heard.append((step, frame.f_code.co_name))
        if step == 2:
            self.call_at(5)


class Raiser(RankInstrument):
    """Raises each time, and counts how often it was asked."""

    asked = 0

    def loader_began(self, loader):
        self.asked += 1
        raise ValueError("no such loader")


class Optimizer:
    """One that has nothing to step."""


@pytest.fixture
def rank(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_RING_DIR", str(tmp_path))
    rank = RankRecorder()
    rank.join(0, 1, 0)
    yield rank
    rank.forget()


def registered(rank, kind, name):
    instrument = kind(rank)
    rank.registry.add(name, instrument.methods())
    rank.registry.tell_one(name, "begin")
    return instrument


def test_the_name_of_the_file_is_the_name_of_the_instrument():
    assert Listener.name == "test_registry"


def test_an_instrument_hears_only_of_events_that_it_has_a_method_for(rank):
    assert set(Listener(rank).methods()) == {"begin", "loader_began", "at_step"}
    assert RankInstrument(rank).methods() == {}
    assert all(hasattr(RankInstrument, event) for event in EVENTS)


def test_at_step_comes_after_the_steps_that_were_asked_for_and_no_others(rank):
    instrument = registered(rank, Listener, Listener.name)
    optimizer = Optimizer()
    for _ in range(8):
        rank.after_step(optimizer, (), {})
    here = "test_at_step_comes_after_the_steps_that_were_asked_for_and_no_others"
    assert instrument.heard == [(2, here), (5, here)]
    assert rank.failures == []


def test_the_latest_wish_counts(rank):
    instrument = registered(rank, Listener, Listener.name)
    instrument.call_at(7)
    optimizer = Optimizer()
    for _ in range(8):
        rank.after_step(optimizer, (), {})
    assert [step for step, _ in instrument.heard] == [7]


def test_one_that_raises_is_dropped_and_reported_once_and_the_others_go_on(rank):
    raises = registered(rank, Raiser, "raises")
    goes_on = registered(rank, Listener, Listener.name)
    for loader in "ab":
        rank.registry.tell("loader_began", loader)
    assert (raises.asked, goes_on.heard) == (1, ["a", "b"])
    assert rank.failures == ["RAISES: ValueError: no such loader"] and rank.silent == {"raises"}


def test_one_that_its_replacements_dropped_hears_of_nothing_more(rank):
    instrument = registered(rank, Listener, Listener.name)
    rank.drop(Listener.name, ValueError("in a replaced function"))
    rank.registry.tell("loader_began", "a")
    for _ in range(3):
        rank.after_step(Optimizer(), (), {})
    assert instrument.heard == []


class Preempted(Exception):
    """What a script's own handler raises, to save a checkpoint and leave."""


class Interrupted(RankInstrument):
    """A signal comes while it is at work."""

    def loader_began(self, loader):
        signal.raise_signal(signal.SIGUSR1)


def test_what_a_signal_handler_raises_meanwhile_reaches_the_script_and_drops_nobody(rank):
    def preempt(number, frame):
        raise Preempted

    registered(rank, Interrupted, "interrupted")
    before = signal.signal(signal.SIGUSR1, preempt)
    try:
        with pytest.raises(Preempted):
            rank.registry.tell("loader_began", None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert rank.silent == set()


def test_a_child_that_was_forked_begins_anew(rank):
    instrument = registered(rank, Listener, Listener.name)
    rank.after_step(Optimizer(), (), {})
    instrument.heard.append("of the parent")
    rank.forget()
    assert (instrument.heard, rank.next_due) == ([], 2)
