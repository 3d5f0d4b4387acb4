"""`smdistributed.dataparallel.tensorflow.keras.callbacks`."""

from typing import Any

import tensorflow as tf

from . import calls

__all__ = ["BroadcastGlobalVariablesCallback", "MetricAverageCallback"]

_Callback: Any = tf.keras.callbacks.Callback


class BroadcastGlobalVariablesCallback(_Callback):  # type: ignore[misc]
    """After the first batch, gives every rank the variables of one rank: the model's and the optimizer's, which exist by then."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        calls.require_gradient_arguments("BroadcastGlobalVariablesCallback", device, "", calls.ReduceOp.AVERAGE)
        self._root_rank = root_rank
        self._is_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast once."""
        if self._is_done:
            return
        self._is_done = True
        calls.broadcast_variables(self.model.variables, self._root_rank)
        calls.broadcast_variables(self.model.optimizer.variables, self._root_rank)


class MetricAverageCallback(_Callback):  # type: ignore[misc]
    """At the end of each epoch, the mean of every metric over all ranks. It must come before callbacks that read the metrics."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        calls.require_gradient_arguments("MetricAverageCallback", device, "", calls.ReduceOp.AVERAGE)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average in place."""
        for name in sorted(logs or {}):
            logs[name] = float(calls.oob_allreduce(tf.constant(logs[name], dtype=tf.float64)))
