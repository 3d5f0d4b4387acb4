"""One traced step as plain data: the JSON that the planner reads."""

import statistics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parts.plan.trace.loading import Loading
from paceline.parts.plan.trace.modules import Modules
from paceline.parts.plan.trace.replicas import Replicas
from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.steps import Steps, state_tensors


class TraceOutcome:
    """Combines the results of the parts of the trace."""

    def __init__(
        self, session: TraceSession, modules: Modules, steps: Steps, loading: Loading, replicas: Replicas
    ) -> None:
        self.session, self.modules, self.steps, self.loading, self.replicas = session, modules, steps, loading, replicas

    def facts(self) -> dict[str, Any]:
        """All facts: bytes, counts, seconds."""
        if not self.steps.stepped:
            self.session.fail("P05", "the script ended without an optimizer step")
        return self._state() | self._peak() | self._arithmetic() | self._batch()

    def _state(self) -> dict[str, Any]:
        trained = self.steps.trained()
        everything = self._parameters()
        state = [tensor for optimizer in self.steps.stepped.values() for tensor in state_tensors(optimizer)]
        unused = len([p for p in trained if p.requires_grad and id(p) not in self.steps.gradients])
        if unused:
            self.session.assume(f"{unused} parameters got no gradient in the first step", anywhere=True)
        return {
            "name": next((_name(root) for root in self.modules.roots.values()), ""),
            "parameter_count": sum(p.numel() for p in everything),
            "parameter_bytes": _bytes(everything),
            "trainable_count": sum(p.numel() for p in everything if p.requires_grad),
            "unused_tensors": unused,
            "buffer_bytes": self.modules.buffer_bytes(),
            "gradient_bytes": sum(gradient.size_bytes for gradient in self.steps.gradients.values()),
            "sparse_gradients": sum(gradient.is_sparse for gradient in self.steps.gradients.values()),
            "gradient_tensors": len(self.steps.ready),
            "bucket_bytes": self.replicas.bucket_bytes(self.steps.ready, self.steps.gradients),
            "replicas": self.replicas.options(),
            "strategy": "ddp",
            "optimizer": "+".join(sorted({type(o).__name__ for o in self.steps.stepped.values()})),
            "optimizer_bytes": _bytes(state),
        }

    def _peak(self) -> dict[str, Any]:
        return {
            "activation_bytes": self.steps.activation_bytes,
            "peak_fixed_bytes": self.steps.fixed_bytes + self.modules.buffer_bytes() + self._beside_bytes(),
            "largest_tensor_bytes": self.steps.largest_activation_bytes,
            "transient_bytes": max(self.steps.update_bytes, 0),
            "peak_bytes": sum(self.steps.peak.values()),
            "peak_parts": self.steps.peak,
        }

    def _beside_bytes(self) -> int:
        """Bytes of networks that the step does not train: a teacher, an average of the weights. They are in memory too."""
        return max(0, self.steps.held_parameter_bytes - _bytes(self._parameters()))

    def _parameters(self) -> list[Tensor]:
        return list({id(p): p for p in (*self.steps.trained(), *self.modules.parameters())}.values())

    def _arithmetic(self) -> dict[str, Any]:
        operations = self.steps.mode.operations
        precision = operations.precision()
        if precision == "fp32" and torch.backends.cuda.matmul.allow_tf32:
            precision = "tf32"
        return {
            "flops": operations.flops(),
            "operations": operations.rows(),
            "precision": precision,
            "autocast": "autocast" in self.session.facts,
            "autocast_dtype": self.session.facts.get("autocast"),
            "checkpointed_activations": bool(self.session.facts.get("checkpointed_activations")),
            "device_type": self.session.device_type,
            "torch": torch.__version__,
        }

    def _batch(self) -> dict[str, Any]:
        loaded = self.loading.current
        batch = loaded.get("batch") or self.modules.leading_size
        batches, backwards = loaded.get("batches", 0), max(self.steps.backwards, 1)
        microbatches = min(batches, backwards) if batches else backwards
        return {
            "batch": batch,
            "microbatches": max(microbatches, 1) if len(self.steps.stepped) == 1 or batches else 1,
            "samples_per_epoch": loaded.get("samples"),
            "loading_seconds": statistics.median(loaded["seconds"]) if loaded.get("seconds") else None,
            "loader_workers": loaded.get("workers"),
            "batch_bytes": loaded.get("bytes"),
        }


def _name(root: nn.Module) -> str:
    while isinstance(root, DistributedDataParallel):
        root = root.module
    return type(root).__name__


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
