"""Counts the steps of Keras on JAX: the batches of `fit`, and calls of `train_on_batch`. What is inside of compiled functions is not seen.

JAX runs ahead of Python: the pace of many steps is right, and the length of one is not.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

from ....recording.ring import Basis
from ....worker.counted_steps import CountedSteps
from ....worker.instrument import Patch


class KerasOnJaxSteps(CountedSteps):
    """Replaces what `fit` tells its callbacks of a batch, and `train_on_batch`."""

    basis = Basis.STEPS_BY_BATCH

    def begin(self) -> None:
        # The number of the first batch that `fit` has in hand.
        self._batch = 0

    def patches(self) -> dict[str, Patch]:
        if "steps" in self.rank.off:
            return {}
        return {"keras.src.callbacks.callback_list": self._batches, "keras.src.backend.jax.trainer": self._trainer}

    def _batches(self, module: Any) -> None:
        keras = sys.modules.get("keras.src.backend.config")
        if keras is None or keras.backend() != "jax":
            return
        own_begin, own_end = module.CallbackList.on_train_batch_begin, module.CallbackList.on_train_batch_end

        @functools.wraps(own_begin)
        def on_train_batch_begin(callbacks: Any, batch: int, logs: Any = None) -> None:
            self._batch = batch
            if not self.rank.step_count:
                self.guard(self.rank.first_step_begins)
            own_begin(callbacks, batch, logs)

        @functools.wraps(own_end)
        def on_train_batch_end(callbacks: Any, batch: int, logs: Any = None) -> None:
            self.count(callbacks, max(1, batch - self._batch + 1))
            own_end(callbacks, batch, logs)

        module.CallbackList.on_train_batch_begin = on_train_batch_begin
        module.CallbackList.on_train_batch_end = on_train_batch_end

    def _trainer(self, module: Any) -> None:
        own: Callable[..., Any] = module.JAXTrainer.train_on_batch

        @functools.wraps(own)
        def train_on_batch(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.rank.step_count:
                self.guard(self.rank.first_step_begins)
            result = own(trainer, *args, **kwargs)
            self.count(trainer)
            return result

        module.JAXTrainer.train_on_batch = train_on_batch
