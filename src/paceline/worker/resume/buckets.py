"""The order in which DistributedDataParallel adds gradients up.

DDP begins with one division of the parameters into buckets and makes another one after its first step. With three and more ranks the order
of additions depends on the place in a bucket, so a model made again must begin with the second division: otherwise its first step has other
last bits.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

Division = list[list[int]]


class Buckets:
    """The divisions of all DDP models of this process, in the order in which they were made."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._known: dict[int, Division] = {}
        # Divisions of the saved state, for the models that are made next.
        self._ahead: list[Division | None] = []

    def patch(self, module: Any) -> None:
        """Note every model, and give a model that is made again its division."""
        ddp = module.DistributedDataParallel
        construct = ddp.__init__
        buckets = self

        @functools.wraps(construct)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            wanted = buckets._ahead.pop(0) if buckets._ahead else None
            if wanted is None:
                construct(self, *args, **kwargs)
            else:
                buckets._construct(module.dist, wanted, lambda: construct(self, *args, **kwargs))
            buckets._models.append(weakref.ref(self))

        ddp.__init__ = __init__

    def kept(self, steps: int) -> list[Division | None]:
        """The division of each live model; None: it has not been made yet. `steps`: made in this process."""
        self._models = [one for one in self._models if one() is not None]
        return [self._division(model, steps) for one in self._models if (model := one()) is not None]

    def expect(self, kept: list[Division | None]) -> None:
        """Give the models that are made next these divisions."""
        self._ahead = list(kept)

    def _division(self, model: Any, steps: int) -> Division | None:
        key = id(model.reducer)
        if key not in self._known and steps >= 2:
            numbers = {id(parameter): i for i, parameter in enumerate(model._build_params_for_reducer()[0])}
            self._known[key] = [
                [numbers[id(parameter)] for parameter in bucket.parameters()]
                for bucket in model.reducer._get_zeros_like_grad_buckets()
            ]
        return self._known.get(key)

    @staticmethod
    def _construct(dist: Any, wanted: Division, construct: Any) -> None:
        compute = dist._compute_bucket_assignment_by_size

        def assign(parameters: Any, limits: Any, *args: Any, **kwargs: Any) -> Any:
            indices, sizes = compute(parameters, limits, *args, **kwargs)
            if sorted(number for bucket in wanted for number in bucket) != sorted(
                number for bucket in indices for number in bucket
            ):
                return indices, sizes
            # DDP turns the order round.
            return wanted[::-1], ([limits[-1]] * (len(wanted) - 1) + [limits[0]])

        dist._compute_bucket_assignment_by_size = assign
        try:
            construct()
        finally:
            dist._compute_bucket_assignment_by_size = compute
