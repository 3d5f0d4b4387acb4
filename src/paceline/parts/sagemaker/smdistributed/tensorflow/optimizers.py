"""DistributedOptimizer: an optimizer of the same class and settings, which averages gradients over all ranks before it applies them."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from .gradients import averaged

Average = Callable[[Sequence[Any]], list[Any]]


def distributed(optimizer: Any, name: str | None, compression: Any, bucket_bytes: int) -> Any:
    """The optimizer that averages.

    Raises:  TypeError: it is no optimizer of TensorFlow
    """

    def average(gradients: Sequence[Any]) -> list[Any]:
        return averaged(gradients, compression, bucket_bytes)

    own = type(optimizer)
    for make, base in _kinds():
        if isinstance(optimizer, base):
            # It keeps its name and its module: models are saved with them.
            made = type(own.__name__, (own,), {**make(own, average), "__module__": own.__module__})
            if not hasattr(optimizer, "get_config"):
                other: Any = object.__new__(made)
                vars(other).update(vars(optimizer))
                return other
            return made.from_config({**optimizer.get_config(), **({"name": name} if name else {})})
    raise TypeError(
        "DistributedOptimizer takes an optimizer of TensorFlow's Keras or of tf.compat.v1.train, and this is "
        f"{own.__module__}.{own.__name__}{_backend_of_keras()}"
    )


def _kinds() -> list[tuple[Callable[[type, Average], dict[str, Any]], type]]:
    """How each kind of optimizer is changed, and its base class, as far as its library is loaded."""
    found: list[tuple[Callable[[type, Average], dict[str, Any]], type]] = []
    for module, name, make in (
        ("keras.src.optimizers.base_optimizer", "BaseOptimizer", _of_keras_3),
        ("tf_keras.src.optimizers.optimizer", "_BaseOptimizer", _of_tf_keras),
        ("tf_keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2", _of_tf_keras),
        ("tensorflow.python.training.optimizer", "Optimizer", _of_version_1),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and not (module.startswith("keras.") and _backend_of_keras()):
            found.append((make, getattr(loaded, name)))
    return found


def _of_keras_3(own: Any, average: Average) -> dict[str, Any]:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        return own.apply(self, average(list(grads)), trainable_variables)

    return {"apply": apply}


def _of_tf_keras(own: Any, average: Average) -> dict[str, Any]:
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        means = average([gradient for gradient, _ in pairs])
        together = zip(means, (variable for _, variable in pairs), strict=True)
        return own.apply_gradients(self, list(together), *args, **kwargs)

    return {"apply_gradients": apply_gradients}


def _of_version_1(own: Any, average: Average) -> dict[str, Any]:
    def compute_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = own.compute_gradients(self, *args, **kwargs)
        means = average([gradient for gradient, _ in pairs])
        return list(zip(means, (variable for _, variable in pairs), strict=True))

    return {"compute_gradients": compute_gradients}


def _backend_of_keras() -> str:
    """What an error says of a Keras that does not train with TensorFlow; empty: it does, or is not loaded."""
    keras = sys.modules.get("keras")
    backend = keras.backend.backend() if keras is not None and hasattr(keras, "backend") else "tensorflow"
    return "" if backend == "tensorflow" else f"; Keras trains with {backend} here"
