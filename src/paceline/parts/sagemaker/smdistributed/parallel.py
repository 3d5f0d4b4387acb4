"""The library's DistributedDataParallel: torch's class, with the library's arguments."""

import inspect
from typing import Any

import torch

__all__ = ["DistributedDataParallel"]

_BUCKET_MIB = 25
_HAS_FORWARD_SYNC = (
    "forward_sync_buffers" in inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
)


def _syncing(broadcast_buffers: bool) -> dict[str, bool]:
    # Buffers are synced once when a model is wrapped, then as now. torch 2.13 has a separate argument for the forward pass.
    if broadcast_buffers:
        return {}
    return {"forward_sync_buffers" if _HAS_FORWARD_SYNC else "broadcast_buffers": False}


# The methods of the class have no types.
_TorchsOwn: Any = torch.nn.parallel.DistributedDataParallel


class DistributedDataParallel(_TorchsOwn):  # type: ignore[misc]
    """Averages gradients over ranks while backward runs.

    `device_ids`, `output_device`: as in torch. They have no effect for a model on the CPU, for which torch would refuse them.
    `broadcast_buffers`: it works here; the library did not support it. `gradient_accumulation_steps`: of this many forward and backward
    passes, the last one exchanges the gradients, as with `no_sync()` around the others; nothing is divided by it.
    Further arguments are torch's.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: list[int] | int | None = None,
        output_device: Any = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = _BUCKET_MIB,
        gradient_accumulation_steps: int = 1,
        **more: Any,
    ) -> None:
        if not isinstance(gradient_accumulation_steps, int) or gradient_accumulation_steps < 1:
            raise ValueError(
                f"gradient_accumulation_steps counts passes, from 1 on; it is {gradient_accumulation_steps!r}"
            )
        on_one_device = len({parameter.device for parameter in module.parameters()}) == 1
        takes_devices = on_one_device and next(module.parameters()).device.type != "cpu"
        if isinstance(device_ids, int):
            device_ids = [device_ids]
        super().__init__(
            module,
            device_ids=device_ids if takes_devices else None,
            output_device=output_device if takes_devices else None,
            process_group=process_group,
            bucket_cap_mb=bucket_cap_mb or _BUCKET_MIB,
            **(_syncing(broadcast_buffers) | more),
        )
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._passes = 0
        self.require_backward_grad_sync: bool

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's forward pass. Within an accumulation, the gradients of all passes but the last stay on this rank."""
        if self.gradient_accumulation_steps == 1 or not torch.is_grad_enabled():
            return super().forward(*inputs, **kwargs)
        self._passes += 1
        asked: bool = self.require_backward_grad_sync
        self.require_backward_grad_sync = asked and self._passes % self.gradient_accumulation_steps == 0
        try:
            return super().forward(*inputs, **kwargs)
        finally:
            self.require_backward_grad_sync = asked
