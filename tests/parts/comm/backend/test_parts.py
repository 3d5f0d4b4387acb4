"""What the process group decides before anything moves: layouts, ops, arguments, Futures, what the observer is told."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions, HashStore

from paceline.parts.comm import backends, observer
from paceline.parts.comm.arguments import as_list, as_lists, factor_of, filled
from paceline.parts.comm.backend.failures import Failures
from paceline.parts.comm.backend.observed_work import Watch
from paceline.parts.comm.backend.plain_calls import PlainCalls
from paceline.parts.comm.backend.process_group import PacelineGroup
from paceline.parts.comm.backend.reduce_ops import reduces
from paceline.parts.comm.backend.work import AsyncWork, PostprocessedWork
from paceline.parts.comm.backend.worker_thread import Background
from paceline.parts.comm.layout import alike, as_one, flat, is_dense, plain
from paceline.parts.comm.topology import LocalPeers, my_card


@pytest.mark.parametrize(
    ("tensor", "dense"),
    [
        (torch.zeros(3, 4), True),
        (torch.zeros(3, 4).t(), True),
        (torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), True),
        (torch.zeros(3, 4)[:, ::2], False),
        (torch.zeros(4).expand(3, 4), False),
        (torch.zeros(3, 4)[1:], True),
        (torch.zeros(3, 1, 4).transpose(0, 1), True),
        (torch.zeros(0, 4), True),
        (torch.tensor(1.0), True),
    ],
)
def test_a_dense_tensor_is_one_run_of_memory(tensor, dense):
    assert is_dense(tensor) == dense
    if dense:
        run = flat(tensor)
        assert run.numel() == tensor.numel() and run.data_ptr() == tensor.data_ptr()


def test_the_flat_view_of_a_transposed_tensor_is_its_memory():
    tensor = torch.arange(12.0).view(3, 4).t()
    flat(tensor).add_(100)
    assert torch.equal(tensor, torch.arange(100.0, 112.0).view(3, 4).t())


def test_chunks_of_one_tensor_are_one():
    whole = torch.arange(12.0)
    assert torch.equal(as_one(list(whole.view(3, 4))), whole)
    assert as_one([whole[:4], whole[8:]]) is None
    assert as_one([torch.zeros(4), torch.zeros(4)]) is None
    assert as_one(list(whole.view(4, 3).t())) is None


def test_what_a_transport_takes():
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (4,), check_invariants=True)
    assert plain([torch.zeros(3)]) and not plain([]) and not plain([torch.zeros(3), sparse])
    assert not plain([torch.zeros(3, device="meta")]) and not plain([torch.zeros(4)[::2]])
    assert alike([torch.zeros(3), torch.ones(3)]) and not alike([torch.zeros(3), torch.ones(4)])
    assert not alike([torch.zeros(3), torch.ones(3, dtype=torch.int32)])


@pytest.mark.parametrize(
    ("op", "dtype", "name"),
    [
        ("SUM", torch.float32, "sum"),
        ("AVG", torch.bfloat16, "avg"),
        ("AVG", torch.int32, None),
        ("BAND", torch.int64, "band"),
        ("BAND", torch.float32, None),
        ("MAX", torch.uint8, "max"),
        ("SUM", torch.int16, None),
        ("SUM", torch.bool, None),
    ],
)
def test_what_gloo_refuses_is_left_to_gloo_to_refuse(op, dtype, name):
    assert reduces(hash(getattr(dist.ReduceOp, op)), torch.zeros(1, dtype=dtype)) == name


def test_the_factor_of_a_premultiplied_sum():
    assert factor_of(torch._C._distributed_c10d._make_nccl_premul_sum(0.5)) == 0.5


def test_arguments_in_either_form():
    tensor = torch.zeros(1)
    assert as_list(tensor)[0] is tensor and as_list((tensor,)) == [tensor]
    assert as_lists([tensor]) == [[tensor]] and as_lists([[tensor]]) == [[tensor]] and as_lists([]) == []
    options = filled(BroadcastOptions(), rootRank=3, timeout=None)
    assert options.rootRank == 3


def test_a_process_that_ended_is_no_mate_any_more():
    card = my_card()
    assert LocalPeers({1: card, 2: "", 3: "1:0"}).ended() == []
    number, _, start = card.partition(":")
    gone = LocalPeers({1: card})
    gone._cards[1] = f"{number}:{int(start) + 1}"
    assert gone.ended() == [1]


def exchange(body, order=None):
    return AsyncWork(lambda: "allreduce number 1", [torch.ones(1)], body, lambda: None)


def background():
    return Background("of a test", lambda exchange, error: dist.DistBackendError(f"{exchange.words()} failed: {error}"))


def test_exchanges_run_in_the_order_asked_for():
    order, first, thread = [], threading.Event(), background()
    works = [exchange(lambda: (first.wait(10), order.append(0)))]
    works += [exchange(lambda index=index: order.append(index)) for index in range(1, 20)]
    for work in works:
        thread.submit(work)
    assert not works[0].is_completed() and not thread.is_idle
    first.set()
    last = exchange(lambda: order.append(20))
    thread.run(last)
    assert last.is_completed() and order == list(range(21))
    assert thread.stop(10)


def test_a_caller_that_waits_runs_it_itself():
    where, thread = [], background()
    thread.run(exchange(lambda: where.append(threading.current_thread())))
    assert where == [threading.current_thread()] and thread.is_idle


def test_an_error_is_raised_at_every_wait_and_in_the_future():
    def fail():
        raise ValueError("of a test")

    work, thread = exchange(fail), background()
    future = work.get_future()
    thread.submit(work)
    for _ in range(2):
        with pytest.raises(dist.DistBackendError, match="allreduce number 1 failed: of a test"):
            work.wait()
    with pytest.raises(RuntimeError, match="of a test"):
        future.wait()
    assert work.is_completed() and not work.is_success() and isinstance(work.exception(), dist.DistBackendError)
    assert thread.stop(10)


def test_a_wait_can_have_a_limit_of_its_own():
    go, thread = threading.Event(), background()
    work = exchange(lambda: go.wait(10))
    thread.submit(work)
    with pytest.raises(dist.DistBackendError, match=r"not over after the 0.01 s"):
        work.wait(timedelta(milliseconds=10))
    go.set()
    assert work.wait() and thread.stop(10)
    with pytest.raises(dist.DistBackendError, match="destroyed"):
        thread.submit(exchange(lambda: None))


def test_what_follows_an_exchange_is_done_once():
    done = []
    native, thread = exchange(lambda: None), background()
    work = PostprocessedWork(native, lambda: done.append(1), [torch.ones(1)])
    future = work.get_future()
    assert not work.is_completed()
    thread.submit(native)
    work.wait()
    future.wait()
    assert work.is_completed() and work.is_success() and done == [1]
    assert thread.stop(10)


class Nccl:
    """NCCL in the point in which it is not like gloo: a caller that waits at once gets no Work."""

    def __init__(self):
        self.calls = []

    def broadcast(self, tensors, options):
        self.calls.append(options.asyncOp)


class OnDevice(PlainCalls):
    def __init__(self, backend):
        self._failures, self._watch, self._backend = Failures(None), Watch("of a test"), backend

    def _backend_of(self, tensor, peer=None):
        return self._backend


def test_a_call_of_nccl_that_gives_no_work_is_waited_for_like_any_other(heard):
    backend, tensor, options = Nccl(), torch.zeros(3, device="meta"), BroadcastOptions()
    options.asyncOp = False
    work = OnDevice(backend)._plainly("broadcast", tensor, [tensor], options)
    assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    assert backend.calls == [False] and heard.all and not heard.out


class Heard:
    def __init__(self):
        self.out, self.all = {}, []

    def formed(self, group, ranks, backend=""):
        pass

    def enqueued(self, group, seq, op, dtype, numel):
        self.out[group, seq] = op
        self.all.append((group, seq, op, dtype, numel))

    def completed(self, group, seq):
        del self.out[group, seq]


@pytest.fixture
def heard():
    previous, heard = observer.observer(), Heard()
    observer.observe(heard)
    yield heard
    observer.observe(previous)


@pytest.fixture
def alone():
    group = PacelineGroup(HashStore(), 0, 1, timedelta(seconds=20), host_key="here", group_name="alone")
    yield group
    group.shutdown()


@pytest.mark.process
def test_the_observer_is_told_of_every_exchange_and_of_its_end(heard, alone):
    waited = AllreduceOptions()
    waited.asyncOp = False
    alone.allreduce([torch.ones(5)], waited).wait()
    assert heard.all == [("alone", 1, "allreduce", "float32", 5)] and not heard.out
    alone.broadcast([torch.ones(7, dtype=torch.int64)]).wait()
    alone._reduce_scatter_base(torch.empty(2), torch.ones(2)).wait()
    assert [word[2:] for word in heard.all[1:]] == [("broadcast", "int64", 7), ("_reduce_scatter_base", "float32", 2)]
    # gloo does not say when it is over; it is looked at soon.
    told = threading.Event()
    for _ in range(200):
        if not heard.out:
            break
        told.wait(0.05)
    assert not heard.out
    with pytest.raises(RuntimeError, match="invalid root rank"):
        alone.broadcast(torch.ones(1), root=4)
    assert not heard.out and heard.all[-1][1] == 4


@pytest.mark.process
def test_a_group_of_one_holds_no_memory_and_no_thread(alone):
    alone.allreduce([torch.ones(1_000_000)]).wait()
    assert alone.extra_bytes() == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "paceline alone"]


@pytest.mark.process
def test_the_options_tell_the_time_out_of_every_exchange(alone):
    assert alone.options._timeout == timedelta(seconds=20)
    alone._set_default_timeout(timedelta(seconds=23))
    assert alone.options._timeout == timedelta(seconds=23) == alone.gloo.options._timeout


@pytest.mark.process
def test_torch_sets_the_time_out_of_a_group_of_this_backend():
    backends.register(lambda: "here")
    dist.init_process_group("paceline", store=HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=20))
    try:
        # torch 2.14 made the call public, and warns of the older name.
        getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)(timedelta(seconds=7))
        assert dist.group.WORLD.options._timeout == timedelta(seconds=7)
        dist.group.WORLD.set_timeout(timedelta(seconds=9))
        assert dist.group.WORLD.options._timeout == timedelta(seconds=9)
    finally:
        dist.destroy_process_group()
