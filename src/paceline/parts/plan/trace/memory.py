"""The tensors that are alive, by their use: the peak of a step and its parts."""

import weakref
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor


class Use(StrEnum):
    """The use of a storage. FIXED: computed from parameters only, so it does not grow with the batch; GATHERED: a
    sharded model holds it only while it runs that group."""

    PARAMETER = "parameters"
    BUFFER = "buffers"
    GRADIENT = "gradients"
    OPTIMIZER = "optimizer"
    GATHERED = "gathered"
    FIXED = "fixed"
    ACTIVATION = "activations"


_OF_PARAMETERS = frozenset({Use.PARAMETER, Use.GATHERED, Use.FIXED})


class Live:
    """The storages that are alive, each counted once, and the moment of their peak.

    Holds:   the sum of `bytes_by_use` is the sum of the sizes of all storages seen that are alive
    """

    def __init__(self) -> None:
        self._uses: dict[int, tuple[weakref.ref[Any], Use, int]] = {}
        self.bytes_by_use: Counter[Use] = Counter()
        self.peak: Counter[Use] = Counter()
        self.most_activations: Counter[Use] = Counter()
        self.most_working_bytes = 0
        self.largest_activation_bytes = 0
        # Shapes of parameters while backward runs: a gradient on its way is as large as its parameter, whatever the batch.
        self.fixed_shapes: frozenset[tuple[int, ...]] = frozenset()

    @property
    def working_bytes(self) -> int:
        """Bytes that belong neither to parameters, buffers and gradients nor to the optimizer."""
        return self.bytes_by_use[Use.ACTIVATION] + self.bytes_by_use[Use.FIXED]

    def restart_peak(self) -> None:
        """Forget the peaks so far: the step, or a part of it, begins here."""
        self.peak = Counter(self.bytes_by_use)
        self.largest_activation_bytes = 0
        self.most_activations = Counter(self.bytes_by_use)
        self.most_working_bytes = self.working_bytes

    def use_of(self, tensor: Tensor) -> Use | None:
        """The use of this tensor's storage; None if it was never seen."""
        known = self._uses.get(id(tensor.untyped_storage())) if tensor.layout is torch.strided else None
        return known[1] if known else None

    def see(self, tensor: Tensor, use: Use) -> None:
        """Count a storage if it is new; a known storage keeps its use."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._uses:
            return
        size = storage.nbytes()
        self._uses[key] = (weakref.ref(storage, lambda _: self._gone(key)), use, size)
        self.bytes_by_use[use] += size
        if use is Use.ACTIVATION and size > self.largest_activation_bytes:
            self.largest_activation_bytes = size
        if size:
            self._note_peak()

    def mark(self, tensor: Tensor, use: Use) -> None:
        """Set the use of this storage to `use`."""
        if tensor.layout is not torch.strided:
            return
        known = self._uses.get(id(tensor.untyped_storage()))
        if known is None:
            self.see(tensor, use)
            return
        reference, before, size = known
        self.bytes_by_use[before] -= size
        self.bytes_by_use[use] += size
        self._uses[id(tensor.untyped_storage())] = (reference, use, size)

    def outputs(self, results: Iterable[Tensor], inputs: Iterable[Tensor]) -> None:
        """Count the results of an operation. Results computed from parameters only are FIXED; all others grow with the batch."""
        uses = {self.use_of(tensor) for tensor in inputs}
        use = Use.FIXED if uses and uses <= _OF_PARAMETERS else Use.ACTIVATION
        for tensor in results:
            fixed = self.fixed_shapes and tuple(sorted(tensor.shape)) in self.fixed_shapes
            self.see(tensor, Use.FIXED if fixed else use)

    def _note_peak(self) -> None:
        now = self.bytes_by_use
        if now.total() > self.peak.total():
            self.peak = Counter(now)
        if now[Use.ACTIVATION] > self.most_activations[Use.ACTIVATION]:
            self.most_activations = Counter(now)
        self.most_working_bytes = max(self.most_working_bytes, self.working_bytes)

    def _gone(self, key: int) -> None:
        _, use, size = self._uses.pop(key)
        self.bytes_by_use[use] -= size
