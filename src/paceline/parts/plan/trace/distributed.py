"""A process group of one process without communication, and collectives that leave their tensors unchanged."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.parts.plan.trace.session import TraceSession


class Work:
    """A collective that has ended."""

    def wait(self, *_: Any, **__: Any) -> bool:
        """Nothing to wait for."""
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def is_success(self) -> bool:
        """It was."""
        return True

    def get_future(self) -> Any:
        """A future that is complete and has no result."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(None)
        return future

    result = exception = synchronize = lambda self, *_: None


def install(session: TraceSession) -> None:
    """From now on `torch.distributed` is a group of `session.world_size` ranks of which this process is the first."""
    if not dist.is_available():
        return
    make = dist.init_process_group

    def init_process_group(*_: Any, **__: Any) -> None:
        if dist.is_initialized():
            return
        from torch.testing._internal.distributed.fake_pg import FakeStore

        make(backend="fake", rank=0, world_size=session.world_size, store=FakeStore())
        session.facts["distributed"] = True

    _replace("init_process_group", init_process_group)
    _replace("get_backend", lambda *_, **__: "nccl" if session.device_type == "cuda" else "gloo")
    for name in ("is_nccl_available", "is_gloo_available"):
        _replace(name, lambda: True)
    for name, answer in _collectives().items():
        _replace(name, answer)


def _replace(name: str, answer: Any) -> None:
    for module in (dist, dist.distributed_c10d):
        if hasattr(module, name):
            setattr(module, name, answer)


def _done(async_op: Any) -> Work | None:
    return Work() if async_op else None


def _in_place(*_: Any, async_op: bool = False, **__: Any) -> Work | None:
    return _done(async_op)


def _async_last(position: int) -> Any:
    """A collective whose `async_op` may be the argument at `position`."""

    def collective(*args: Any, async_op: bool = False, **_: Any) -> Work | None:
        return _done(async_op or (len(args) > position and args[position] is True))

    return collective


def _all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    for index in range(len(tensor_list)):
        tensor_list[index] = tensor.clone()
    return _done(async_op)


def _gather_object(object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
    for index in range(len(object_list or ())):
        object_list[index] = obj


def _gather_one(obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if object_gather_list:
        object_gather_list[0] = obj


def _scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, *_: Any, async_op: bool = False, **__: Any
) -> Work | None:
    if scatter_list:
        tensor.copy_(scatter_list[0])
    return _done(async_op)


def _scatter_objects(outputs: list[Any], inputs: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if inputs:
        outputs[0] = inputs[0]


def _collectives() -> dict[str, Any]:
    return {
        "all_reduce": _async_last(3),
        "broadcast": _async_last(3),
        "reduce": _async_last(4),
        "barrier": _async_last(1),
        "monitored_barrier": _in_place,
        "all_gather_into_tensor": _async_last(3),
        "reduce_scatter_tensor": _async_last(4),
        "reduce_scatter": _async_last(4),
        "all_to_all": _async_last(3),
        "all_to_all_single": _async_last(5),
        "gather": _async_last(4),
        "all_gather": _all_gather,
        "scatter": _scatter,
        "all_gather_object": _gather_object,
        "gather_object": _gather_one,
        "scatter_object_list": _scatter_objects,
        "broadcast_object_list": _in_place,
        "send": _in_place,
        "recv": _in_place,
        "isend": lambda *_, **__: Work(),
        "irecv": lambda *_, **__: Work(),
    }
