"""The order in which DistributedDataParallel adds gradients up.

DDP begins with one division of the parameters into buckets and makes another one after its first step. With three and more ranks the order
of additions depends on the place in a bucket, so a model made again must begin with the second division: otherwise its first step has other
last bits.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from ....worker.no_compile import passed_over_by_warnings
from . import exchanges
from .exchanges import Exchange
from .object_graph import CannotKeep, CannotPutBack, Restore

# Of torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
_HOOKS_WITHOUT_STATE = frozenset({"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"})

Division = list[list[int]]


class Buckets:
    """The divisions of all DDP models of this process, in the order in which they were made."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        # Reducer -> its division. A model may get another reducer.
        self._known: weakref.WeakKeyDictionary[Any, Division] = weakref.WeakKeyDictionary()
        # Reducer -> forward passes when it was first seen after one.
        self._passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        # Of the saved state, for the models that are made next: division, and what its exchange keeps.
        self._ahead: list[tuple[Division | None, Exchange | None]] = []
        self._kept: list[tuple[weakref.ref[Any], Exchange | None]] = []
        # Of the model that is being made.
        self._in_the_making: Exchange | None = None

    def patch(self, module: Any) -> None:
        """Note every model, and give a model that is made again its division."""
        ddp = module.DistributedDataParallel
        construct = ddp.__init__
        buckets = self

        @functools.wraps(construct)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            is_kept = bool(buckets._ahead)
            wanted, buckets._in_the_making = buckets._ahead.pop(0) if is_kept else (None, None)
            if wanted is None:
                construct(self, *args, **kwargs)
            else:
                buckets._construct(module.dist, wanted, construct, (self, *args), kwargs)
            exchange, buckets._in_the_making = buckets._in_the_making, None
            buckets._models.append(weakref.ref(self))
            if wanted is not None:
                buckets._known[self.reducer] = wanted
            if is_kept:
                buckets._kept.append((weakref.ref(self), exchange))

        ddp.__init__ = passed_over_by_warnings(__init__)

    def are_settled(self) -> bool:
        """Whether no model is between its first backward pass and its second division, which it makes in its next forward pass."""
        return all(self._is_settled(model) for model in self.models())

    def models(self) -> list[Any]:
        """The live models, in the order in which they were made."""
        self._models = [one for one in self._models if one() is not None]
        return [model for one in self._models if (model := one()) is not None]

    def kept(self) -> list[Division | None]:
        """The division of each live model; None: it has made only its first one.

        Raises:  CannotKeep: a model exchanges its gradients by a hook that may have a state, or ends its exchange when the script says so
        """
        models = self.models()
        for model in models:
            # torch 2.15. A head of a loop may lie between the backward pass and finalize_backward, with gradients on the way.
            if getattr(model, "_require_manual_backward_finalization", False):
                raise CannotKeep(
                    "a DistributedDataParallel has require_manual_backward_finalization, which was not tried"
                )
            for hook, state in getattr(model, "_comm_hooks", ()):
                if hook.__qualname__ not in _HOOKS_WITHOUT_STATE and exchanges.exchange_of(model) is not state:
                    raise CannotKeep(f"the gradient hook {hook.__qualname__} may have a state")
        return [self._division(model) for model in models]

    def expect(self, kept: list[Division | None], kept_exchanges: list[Exchange | None]) -> None:
        """Give the models that are made next these divisions, and these ways to exchange."""
        self._ahead = list(zip(kept, kept_exchanges, strict=True))

    def chosen(self) -> dict[str, Any] | None:
        """What `--gradients auto` has chosen for the model that is being made; None: nothing yet."""
        return self._in_the_making[2] if self._in_the_making is not None else None

    def put_back(self, restore: Restore) -> None:
        """Give each model what its exchange had kept.

        Raises:  CannotPutBack
        """
        if any(exchange is not None for _, exchange in self._ahead):
            raise CannotPutBack("the script has made fewer models with DistributedDataParallel than before")
        for one, exchange in self._kept:
            if (model := one()) is not None:
                exchanges.put_back(restore, exchange, model)
        self._kept.clear()

    def _is_settled(self, model: Any) -> bool:
        reducer = model.reducer
        if model._has_rebuilt_buckets or reducer in self._known or model.find_unused_parameters:
            return True
        # It runs in the first forward pass. Until the second one, the number of passes is 0, as before the first.
        if not getattr(model, "_lazy_init_ran", True):
            return True
        passes = model._get_ddp_logging_data().get("iteration", 0)
        return bool(passes > self._passes.setdefault(reducer, passes))

    def _division(self, model: Any) -> Division | None:
        reducer = model.reducer
        if reducer not in self._known and model._has_rebuilt_buckets:
            numbers = {id(parameter): i for i, parameter in enumerate(model._build_params_for_reducer()[0])}
            self._known[reducer] = [
                [numbers[id(parameter)] for parameter in bucket.parameters()]
                for bucket in reducer._get_zeros_like_grad_buckets()
            ]
        return self._known.get(reducer)

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
