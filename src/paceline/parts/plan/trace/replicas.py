"""DistributedDataParallel and the sharded forms without communication: the model stays as it is, and the exchanges are computed."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from paceline.parts.plan.trace.buckets import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES, Gradient, buckets
from paceline.parts.plan.trace.session import TraceSession


class Replicas:
    """The models that the script distributes over ranks, and their options."""

    def __init__(self, session: TraceSession) -> None:
        self.session = session
        self.spread: list[tuple[nn.Module, dict[str, Any]]] = []

    def install(self) -> None:
        """From now on DDP keeps its class and its options and exchanges nothing, and DataParallel computes on one device."""
        replicas = self

        def whole_batch(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            replicas.session.assume("nn.DataParallel: one device takes the whole batch")
            return wrapper.module(*args, **kwargs)

        def __init__(wrapper: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            nn.Module.__init__(wrapper)
            options = (
                dict(zip(("device_ids", "output_device", "dim", "broadcast_buffers"), args, strict=False)) | kwargs
            )
            _dress(wrapper, module, options)
            replicas.spread.append((module, options))

        methods: dict[str, Any] = {
            "__init__": __init__,
            "forward": lambda wrapper, *args, **kwargs: wrapper.module(*args, **kwargs),
            "no_sync": _no_sync,
            "join": lambda *_, **__: contextlib.nullcontext(),
            "train": nn.Module.train,
            "register_comm_hook": self._hook,
            "_register_builtin_comm_hook": self._hook,
            "_register_fused_optim": lambda *_, **__: None,
            "_set_static_graph": lambda *_: None,
            "_get_ddp_logging_data": lambda *_: {},
            "__getstate__": lambda wrapper: dict(wrapper.__dict__),
            "__setstate__": lambda wrapper, state: wrapper.__dict__.update(state),
        }
        for name, method in methods.items():
            setattr(DistributedDataParallel, name, method)
        # Its own way is to copy the model to every device that the script finds.
        setattr(DataParallel, "forward", whole_batch)  # noqa: B010 - mypy takes no assignment to a method

    def bucket_bytes(self, ready: list[Tensor], of: Mapping[int, Gradient]) -> tuple[int, ...]:
        """Buckets of the gradients in the order in which backward made them, by DDP's options; by torch's defaults without DDP.

        Source:  torch 2.13, BucketCapacityConfig.compute_bucket_size_limits (distributed.py) and Reducer::should_rebuild_buckets
        """
        options = self.spread[0][1] if self.spread else {}
        cap = options.get("bucket_cap_mb")
        cap_bytes = BUCKET_CAP_BYTES if cap is None else int(cap * (1 << 20))
        first = FIRST_BUCKET_BYTES if cap is None else cap_bytes
        if options.get("find_unused_parameters") and not options.get("static_graph"):
            # Never rebuilt: the buckets of the constructor stay, and a parameter without gradient is exchanged with the others.
            wanted = [_dense(p) for p in self.spread[0][0].parameters() if p.requires_grad]
            return tuple(reversed(buckets(wanted, cap_bytes=cap_bytes, first_bytes=first)))
        inside = {id(p) for module, _ in self.spread for p in module.parameters()}
        gradients = [of[id(p)] for p in ready if id(p) in of and (not inside or id(p) in inside)]
        return tuple(buckets(gradients, cap_bytes=cap_bytes, first_bytes=first))

    def options(self) -> dict[str, Any]:
        """The options of the first DDP, as plain data."""
        options = self.spread[0][1] if self.spread else {}
        names = (
            "bucket_cap_mb",
            "find_unused_parameters",
            "gradient_as_bucket_view",
            "static_graph",
            "lazy_bucket_allocation",
        )
        return {name: options.get(name) for name in names}

    def _hook(self, _: Any, state: Any = None, hook: Any = None, *__: Any) -> None:
        self.session.assume(
            f"the comm hook {getattr(hook, '__qualname__', hook)} is not applied: gradients are taken as exchanged whole"
        )


def _dense(parameter: Tensor) -> Gradient:
    return Gradient(parameter.numel() * parameter.element_size(), parameter.dtype)


def _dress(wrapper: Any, module: nn.Module, options: dict[str, Any]) -> None:
    """The attributes that scripts and libraries read from a DDP."""
    wrapper.module = module
    wrapper.device_ids = options.get("device_ids")
    wrapper.output_device = options.get("output_device")
    wrapper.dim = 0
    wrapper.device = next((p.device for p in module.parameters()), torch.device("cpu"))
    wrapper.device_type = wrapper.device.type
    wrapper.is_multi_device_module = False
    wrapper.broadcast_buffers = options.get("broadcast_buffers", True)
    wrapper.find_unused_parameters = options.get("find_unused_parameters", False)
    wrapper.gradient_as_bucket_view = options.get("gradient_as_bucket_view", False)
    wrapper.static_graph = options.get("static_graph", False)
    wrapper.require_backward_grad_sync = True
    wrapper.require_forward_param_sync = True
    wrapper.process_group = options.get("process_group")
    wrapper.parameters_to_ignore = set()
    wrapper.logger = None


@contextlib.contextmanager
def _no_sync(wrapper: Any) -> Iterator[None]:
    before, wrapper.require_backward_grad_sync = wrapper.require_backward_grad_sync, False
    try:
        yield
    finally:
        wrapper.require_backward_grad_sync = before
