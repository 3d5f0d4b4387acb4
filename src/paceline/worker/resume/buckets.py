"""The order in which DistributedDataParallel adds gradients up.

DDP begins with one division of the parameters into buckets and makes another one after its first step. With three and more ranks the order
of additions depends on the place in a bucket, so a model made again must begin with the second division: otherwise its first step has other
last bits.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from ..no_compile import passed_over_by_warnings
from .object_graph import CannotKeep

# Of torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
_HOOKS_WITHOUT_STATE = frozenset({"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"})

Division = list[list[int]]


class Buckets:
    """The divisions of all DDP models of this process, in the order in which they were made."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        # Id of a reducer -> its division.
        self._known: dict[int, Division] = {}
        # Id of a reducer -> forward passes when it was first seen after one.
        self._passes: dict[int, int] = {}
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
                buckets._construct(module.dist, wanted, construct, (self, *args), kwargs)
            buckets._models.append(weakref.ref(self))
            if wanted is not None:
                buckets._known[id(self.reducer)] = wanted

        ddp.__init__ = passed_over_by_warnings(__init__)

    def are_settled(self) -> bool:
        """Whether no model is between its first backward pass and its second division, which it makes in its next forward pass."""
        self._models = [one for one in self._models if one() is not None]
        return all(self._is_settled(model) for one in self._models if (model := one()) is not None)

    def kept(self) -> list[Division | None]:
        """The division of each live model; None: it has made only its first one.

        Raises:  CannotKeep: a model exchanges its gradients by a hook that may have a state
        """
        for one in self._models:
            for hook, _ in getattr(one(), "_comm_hooks", ()):
                if hook.__qualname__ not in _HOOKS_WITHOUT_STATE:
                    raise CannotKeep(f"the gradient hook {hook.__qualname__} may have a state")
        return [self._division(model) for one in self._models if (model := one()) is not None]

    def expect(self, kept: list[Division | None]) -> None:
        """Give the models that are made next these divisions."""
        self._ahead = list(kept)

    def _is_settled(self, model: Any) -> bool:
        key = id(model.reducer)
        if model._has_rebuilt_buckets or key in self._known or model.find_unused_parameters:
            return True
        passes = model._get_ddp_logging_data().get("iteration", 0)
        return bool(passes == 0 or passes > self._passes.setdefault(key, passes))

    def _division(self, model: Any) -> Division | None:
        key = id(model.reducer)
        if key not in self._known and model._has_rebuilt_buckets:
            numbers = {id(parameter): i for i, parameter in enumerate(model._build_params_for_reducer()[0])}
            self._known[key] = [
                [numbers[id(parameter)] for parameter in bucket.parameters()]
                for bucket in model.reducer._get_zeros_like_grad_buckets()
            ]
        return self._known.get(key)

    @staticmethod
    @passed_over_by_warnings
    def _construct(dist: Any, wanted: Division, construct: Any, args: Any, kwargs: Any) -> None:
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
            construct(*args, **kwargs)
        finally:
            dist._compute_bucket_assignment_by_size = compute
