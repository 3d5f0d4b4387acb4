"""Counts the steps of TensorFlow: calls of the outermost traced function that applies gradients, and of optimizers outside of functions.

`tf.function` runs Python only while it traces, so an optimizer is seen once. The function that is traced then makes a step at each of its
later calls. No operation is added to a graph, and no call waits for a device. On a device a call returns before its work is done, so the
pace of many steps is right, and the length of one is not. What happens inside a graph (waits for data, exchange) is not seen.
"""

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, ref

from ....recording.ring import Basis
from ....worker.counted_steps import CountedSteps
from ....worker.instrument import Patch
from ....worker.signal_handlers import let_through

# Module -> the class and the method with which an optimizer of this module applies gradients.
_OPTIMIZERS = {
    "keras.src.optimizers.base_optimizer": ("BaseOptimizer", "apply"),
    "tf_keras.src.optimizers.optimizer": ("_BaseOptimizer", "apply_gradients"),
    "tf_keras.src.optimizers.legacy.optimizer_v2": ("OptimizerV2", "apply_gradients"),
    "tensorflow.python.training.optimizer": ("Optimizer", "apply_gradients"),
}


class TensorFlowSteps(CountedSteps):
    """Replaces the call of a traced function, the application of gradients, and the start of TensorFlow's runtime."""

    basis = Basis.STEPS_BY_CALL

    def begin(self) -> None:
        # The function that runs, and since when. Functions that it calls, in whatever thread, are parts of it.
        self._running: Any = None
        self._running_since_ns = 0
        self._is_applying = False
        # Function -> the optimizer that it applies, and the steps in one of its calls.
        self._steps_of: WeakKeyDictionary[Any, tuple[ref[Any], int]] = WeakKeyDictionary()
        # The optimizer that was seen while the running function is traced, and how many steps it had made before; None: it cannot be read.
        self._traced: tuple[ref[Any], int | None] | None = None

    def patches(self) -> dict[str, Patch]:
        if "steps" in self.rank.off:
            return {}
        return {
            "tensorflow.python.eager.polymorphic_function.polymorphic_function": self._functions,
            "tensorflow.python.eager.context": self._context,
            "tensorflow.python.distribute.coordinator.cluster_coordinator": self._coordinator,
            **dict.fromkeys(_OPTIMIZERS, self._optimizers),
        }

    # -- what is replaced

    def _functions(self, module: Any) -> None:
        own = module.Function.__call__

        @functools.wraps(own)
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._running is not None or (self.rank.step_count and get_ident() != self.rank.thread):
                if self._running is not None and function in self._steps_of:
                    # Traced before, so no optimizer is seen again while the outer one is traced.
                    self._steps_of.setdefault(self._running, self._steps_of[function])
                return own(function, *args, **kwargs)
            return self._outermost(function, own, function, *args, **kwargs)

        module.Function.__call__ = call

    def _coordinator(self, module: Any) -> None:
        """A function that is scheduled on a worker is traced here, in this call, and runs later there."""
        own = module.ClusterCoordinator.schedule

        @functools.wraps(own)
        def schedule(coordinator: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
            return self._outermost(fn, own, coordinator, fn, *args, **kwargs)

        module.ClusterCoordinator.schedule = schedule

    def _outermost(self, function: Any, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._running, self._running_since_ns = function, monotonic_ns()
        try:
            result = own(*args, **kwargs)
        except BaseException:
            self._running = self._traced = None
            raise
        self._running = None
        self._called(function)
        return result

    def _optimizers(self, module: Any) -> None:
        keras = sys.modules.get("keras.src.backend.config")
        if module.__name__.startswith("keras.") and keras is not None and keras.backend() != "tensorflow":
            return
        owner_name, name = _OPTIMIZERS[module.__name__]
        owner = getattr(module, owner_name)
        own = getattr(owner, name)

        @functools.wraps(own)
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            # An optimizer may scale the loss and leave the rest to another one.
            is_outermost = not self._is_applying
            self._is_applying = True
            try:
                if is_outermost:
                    self.guard(lambda: self._applies(optimizer))
                result = own(optimizer, *args, **kwargs)
            finally:
                if is_outermost:
                    self._is_applying = False
            if is_outermost and self._running is None and sys.modules["tensorflow"].executing_eagerly():
                self.count(optimizer)
            return result

        setattr(owner, name, apply)

    def _context(self, module: Any) -> None:
        """The first operation starts the runtime. In a cluster, it waits there for the other processes."""
        own = module.Context.ensure_initialized

        @functools.wraps(own)
        def ensure_initialized(context: Any) -> None:
            # Only the first call starts the runtime, and there are very many calls.
            module.Context.ensure_initialized = own
            if getattr(context, "_collective_ops_server_def", None) is None:
                # The module of smdistributed names it where it should have been first.
                self.guard(lambda: setattr(context, "paceline_started_at", _users_place(sys._getframe(2))))
                own(context)
                return
            self.guard(self.rank.meets_cluster)
            start_ns = monotonic_ns()
            own(context)
            self.guard(lambda: self.rank.joined_cluster(monotonic_ns() - start_ns))

        module.Context.ensure_initialized = ensure_initialized

    # -- what is counted

    def _applies(self, optimizer: Any) -> None:
        if self._running is None or self._traced is not None or self._running in self._steps_of:
            return
        self._traced = ref(optimizer), _iterations(optimizer)

    def _called(self, function: Any) -> None:
        """A call that was no part of another one has ended."""
        if self._traced is not None:
            self.guard(lambda: self._note(function))
        found = self._steps_of.get(function)
        if found is not None:
            # A function may outlive the optimizer that was seen in it.
            self.count(found[0]() or function, found[1])

    def _note(self, function: Any) -> None:
        assert self._traced is not None
        (optimizer, before), self._traced = self._traced, None
        after = _iterations(optimizer())
        made = after - before if before is not None and after is not None else 1
        self._steps_of[function] = optimizer, max(1, made)
        if not self.rank.step_count:
            # What was before this call is no part of the first step; tracing is.
            self.rank.first_step_begins()
            self.rank.boundary_ns = self._running_since_ns


def _users_place(frame: FrameType | None) -> str:
    """FILE:LINE of the innermost frame of the user; "" if there is none."""
    from ....worker.error_file import users_frame
    from ....worker.frame_line import line_of

    found = users_frame(frame)
    return "" if found is None else f"{found.f_code.co_filename}:{line_of(found)}"


def _iterations(optimizer: Any) -> int | None:
    """How many steps an optimizer has made by its own count; None: it has no such count, or it cannot be read now."""
    tensorflow = sys.modules["tensorflow"]
    try:
        # Outside of the graph that is being traced.
        with tensorflow.init_scope():
            return int(optimizer.iterations.numpy())
    except Exception as error:
        let_through(error)
        return None
