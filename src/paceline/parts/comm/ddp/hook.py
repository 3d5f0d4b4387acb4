"""DDP's communication hook in torch's form: `(state, bucket) -> future`.

    model = DistributedDataParallel(model)
    model.register_comm_hook(HookState("direct+bf16"), hook)

Source: torch, DistributedDataParallel.register_comm_hook
"""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from ....process_identity import machine_key
from ..strategies.flat_buffer import FlatBuffer
from ..strategies.on_device import is_on_device
from ..strategies.strategy import GradientStrategy, StrategyRunner, parse
from ..transports.communicator import Communicator
from ..transports.lanes import MOST_LANES, Promise, lanes_of
from .exchange_stats import ExchangeStats, StepExchange
from .pinned_staging import StagedBuffer

__all__ = ["HookState", "hook"]

Future = torch.futures.Future[torch.Tensor]
# Two cores, gloo over loopback and over emulated links: more lanes only took cores from backward.
LANES = 2


@dataclass
class _Waiting:
    """A bucket that DDP handed over, and whose exchange has not started."""

    index: int
    """Number of the bucket."""
    buffer: torch.Tensor
    """Its gradients."""
    promise: Promise
    """Resolved when the exchange is over."""
    shapes: tuple[torch.Size, ...]
    """Shapes of its tensors."""


class HookState:
    """The state of the hook of one DDP module. The hook runs in the thread of the backward pass, once for each bucket.

    It cannot be pickled: it holds threads and connections. To resume from a checkpoint none of it is needed except the state of error
    feedback, which `state_dict` gives; without that state one step's rounding is lost.
    """

    def __init__(
        self,
        strategy: GradientStrategy | str,
        process_group: dist.ProcessGroup | None = None,
        *,
        host_key: str | None = None,
        lanes: int = LANES,
        ddp: Any = None,
    ) -> None:
        """Every rank makes one for the same modules in the same order, before their first backward pass.

        `process_group`: that of the module; None: the default group. `host_key`: a text that is the same on ranks that share a host, and
        only there. `lanes`: buckets in flight; the first module of a group decides. `ddp`: the module, as `attach` passes it, so that
        its optimizer steps and torch's Join count as well.
        Raises:  ValueError: no such strategy, lanes beyond 1 to 4, or a strategy that works at optimizer steps, which no hook sees
        """
        if not 1 <= lanes <= MOST_LANES:
            raise ValueError(f"{lanes} lanes; 1 to {MOST_LANES} make sense")
        wanted = parse(strategy) if isinstance(strategy, str) else strategy
        if wanted.every is not None and ddp is None:
            raise ValueError(
                f"{wanted.name} works at optimizer steps, which a hook does not see: use(name, model) of paceline.comm does"
            )
        self.group = process_group if process_group is not None else dist.distributed_c10d._get_default_group()
        self.lanes = lanes_of(self.group, host_key=host_key or machine_key(), count=lanes)
        self.last: StepExchange | None = None
        # A hook that the script registered after ours: it has the gradients from then on.
        self.script_hook: tuple[Callable[..., Any], object] | None = None
        # This rank has run out of inputs and keeps the others company (torch's Join).
        self.has_joined = False
        self._ddp = weakref.ref(ddp) if ddp is not None else _nothing
        self._waiting: list[_Waiting] = []
        self._layouts: dict[int, tuple[list[int], tuple[torch.Size, ...]]] = {}
        self._tally = ExchangeStats(self._publish)
        self._sent_packs = 0
        self._side_streams: dict[torch.device, torch.cuda.Stream] = {}
        self.use(wanted)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a gradient exchange of paceline holds threads and connections and cannot be pickled; save the module's state_dict"
        )

    def use(self, strategy: GradientStrategy) -> None:
        """Change the strategy from the next step on. The state of a wrapper is dropped."""
        self.strategy = strategy
        self.averaging = StrategyRunner(strategy)
        self._layouts = {}
        self._fuse_bytes: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """The strategy's name, and what this rank keeps between two steps: the tensors themselves. Call it between steps."""
        return {"strategy": self.strategy.name, "tensors": self.averaging.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a state of `state_dict`. Every rank loads its own one, before its next backward pass.

        Raises:  ValueError: the state is that of another strategy
        """
        if state["strategy"] != self.strategy.name:
            raise ValueError(f"gradients were exchanged by {state['strategy']}, and are by {self.strategy.name} now")
        self.averaging.load_state_dict(state["tensors"])

    def take(self, bucket: Any) -> Future:
        """The hook: returns a future of the averaged bucket buffer."""
        if self.script_hook is not None:
            hook, state = self.script_hook
            return hook(state, bucket)  # type: ignore[no-any-return]
        index, buffer, is_last = bucket.index(), bucket.buffer(), bucket.is_last()
        if index == 0:
            self._begin()
        if self.strategy.every is not None or self.group.size() == 1:
            future = _done(buffer)
        elif buffer.is_sparse or (self.strategy.is_plain_ring and not self._divides_by_active):
            future = self._plain(buffer)
        elif is_on_device(self.group, buffer.device):
            future = self._on_device(index, buffer, bucket)
        else:
            future = self._in_lane(index, buffer, is_last, bucket)
        if is_last:
            self._tally.seal()
        return future

    @property
    def _divides_by_active(self) -> bool:
        """Whether torch's Join divides by the number of ranks that still have inputs."""
        ddp = self._ddp()
        return ddp is not None and ddp._join_config.enable and not ddp._divide_by_initial_world_size

    def _begin(self) -> None:
        # What an earlier backward pass left when it broke off is not exchanged any more.
        self._waiting = []
        self._sent_packs = 0
        self._tally = ExchangeStats(self._publish)

    def _publish(self, step: StepExchange) -> None:
        self.last = step

    # -- over the group itself

    def _plain(self, buffer: torch.Tensor) -> Future:
        stats, start, size = self._tally, perf_counter(), self.group.size()
        size_bytes = buffer._values().nbytes if buffer.is_sparse else buffer.nbytes
        stats.began()
        # As DDP's own, to the bit: it multiplies each gradient with 1 / n before the sum.
        buffer.mul_(1.0 / size)
        work = dist.all_reduce(buffer, group=self.group, async_op=True)
        assert work is not None

        def value(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            stats.ended(size_bytes, perf_counter() - start, 2 * size_bytes * (size - 1) // size)
            return future.value()[0]

        return work.get_future().then(value)  # type: ignore[no-any-return]

    def _on_device(self, index: int, buffer: torch.Tensor, bucket: Any) -> Future:
        device, start = buffer.device, perf_counter()
        side = self._side_streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        flat_buffer = FlatBuffer(_flat(buffer), self._shapes(index, bucket), index)
        side.wait_stream(torch.cuda.current_stream(device))
        promise = Promise([device])
        self._tally.began()
        with torch.cuda.stream(side):
            sent = self.averaging.average_on_device(flat_buffer, self.group)
            if self._divides_by_active:
                active = flat_buffer.flat.new_full((1,), float(not self.has_joined))
                dist.all_reduce(active, group=self.group)
                flat_buffer.flat.mul_(self.group.size()).div_(active)
            promise.keep(buffer)
        self._tally.ended(buffer.nbytes, perf_counter() - start, sent)
        return promise.future

    # -- in lanes

    def _in_lane(self, index: int, buffer: torch.Tensor, is_last: bool, bucket: Any) -> Future:
        if self._waiting and not _alike(self._waiting[0].buffer, buffer):
            self._send_off()
        promise = Promise([buffer.device] if buffer.device.type != "cpu" else None)
        self._waiting.append(_Waiting(index, buffer, promise, self._shapes(index, bucket)))
        if is_last or sum(waiting.buffer.nbytes for waiting in self._waiting) >= self._until_bytes():
            self._send_off()
        return promise.future

    def _until_bytes(self) -> int:
        if self._fuse_bytes is None:
            self._fuse_bytes = self.strategy.fuse_bytes(len(self.lanes.find_topology().hosts))
        return self._fuse_bytes

    def _shapes(self, index: int, bucket: Any) -> tuple[torch.Size, ...]:
        """Shapes of the bucket's gradients. DDP rebuilds its buckets after the first step; the state of the old buckets is then cleared."""
        if not (self.averaging.keeps_state or self.averaging.needs_shapes):
            return ()
        identities = [id(parameter) for parameter in bucket.parameters()]
        known = self._layouts.get(index)
        if known is None or known[0] != identities:
            if known is not None:
                self.averaging.clear()
                self._layouts.clear()
            known = self._layouts[index] = (identities, tuple(gradient.shape for gradient in bucket.gradients()))
        return known[1]

    def _send_off(self) -> None:
        waiting, self._waiting = self._waiting, []
        is_active = float(not self.has_joined) if self._divides_by_active else None
        exchanged = _BucketGroup(waiting, self.averaging, self._tally, is_active)
        self._tally.began()
        try:
            self.lanes.run(
                exchanged.job,
                exchanged.done,
                lane=self._sent_packs,
                dtype=str(waiting[0].buffer.dtype).removeprefix("torch."),
                numel=sum(one.buffer.numel() for one in waiting),
            )
        except RuntimeError as error:
            # Raised here it would end the backward pass before DDP finishes, which then complains of parameters without a gradient, and
            # before the error of the earlier bucket is seen.
            exchanged.done(error)
        self._sent_packs += 1


class _BucketGroup:
    """Buckets that go through a lane together. `is_active`: 1.0 or 0.0 if the sum is divided by the number of ranks that have inputs."""

    def __init__(
        self, waiting: list[_Waiting], averaging: StrategyRunner, stats: ExchangeStats, is_active: float | None
    ) -> None:
        self._waiting, self._averaging, self._tally, self._is_active = waiting, averaging, stats, is_active
        self._flats = [_flat(one.buffer) for one in waiting]
        # Copied together in the thread and on the stream of the backward pass, where their gradients are there.
        self._whole = self._flats[0] if len(waiting) == 1 else torch.cat(self._flats)
        self._staged = StagedBuffer(self._whole) if self._whole.device.type != "cpu" else None
        self._seconds, self._sent_bytes = 0.0, 0

    def job(self, communicator: Communicator) -> None:
        """Runs in a lane."""
        start, sent_before = perf_counter(), communicator.sent_bytes
        if self._staged is None:
            self._average(self._whole, communicator)
        else:
            self._staged.exchange(lambda copy: self._average(copy, communicator))
        self._seconds, self._sent_bytes = perf_counter() - start, communicator.sent_bytes - sent_before

    def done(self, error: BaseException | None) -> None:
        """Runs in the same lane, or in another thread if that one closes the lane."""
        self._tally.ended(sum(one.buffer.nbytes for one in self._waiting), self._seconds, self._sent_bytes)
        error = self._told(error) if error is not None else None
        if self._staged is None or error is not None:
            self._tell(error)
        else:
            self._staged.announce(lambda: self._tell(None))

    def _told(self, error: BaseException) -> RuntimeError:
        indices = ", ".join(str(one.index) for one in self._waiting)
        told = RuntimeError(f"gradients by {self._averaging.strategy.name}, bucket {indices}: {error}")
        told.__cause__ = error
        return told

    def _average(self, flat: torch.Tensor, communicator: Communicator) -> None:
        shapes = tuple(shape for one in self._waiting for shape in one.shapes)
        self._averaging.average(FlatBuffer(flat, shapes, self._waiting[0].index), communicator)
        if self._is_active is not None:
            active = torch.tensor([self._is_active])
            communicator.all_reduce(active)
            flat.mul_(communicator.size / float(active))

    def _tell(self, error: BaseException | None) -> None:
        if error is None and len(self._waiting) > 1:
            parts = torch.split(self._whole, [flat.numel() for flat in self._flats])
            for flat, part in zip(self._flats, parts, strict=True):
                flat.copy_(part)
        for one in self._waiting:
            one.promise.keep(one.buffer, error)


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP calls it for each bucket.

    Shapes:  bucket.buffer(): (numel,), the gradients' dtype; the future's value the same buffer, averaged over all ranks in place
    """
    return state.take(bucket)


def _nothing() -> None:
    """A weak reference to no module."""


def _flat(buffer: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(buffer).view(-1) if buffer.is_complex() else buffer


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.device == other.device


def _done(buffer: torch.Tensor) -> Future:
    future: Future = torch.futures.Future(devices=[buffer.device] if buffer.device.type != "cpu" else None)
    future.set_result(buffer)
    return future
