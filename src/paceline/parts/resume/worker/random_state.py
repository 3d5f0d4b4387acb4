"""The states of random number generators as plain values: torch's, Python's, numpy's where the script has imported it."""

import ctypes
import hashlib
import importlib
import random
import sys
from typing import Any

from ..recording.state_buffer import packed, unpacked


def kept() -> bytes:
    """The states of the global generators."""
    torch = sys.modules["torch"]
    cuda = None
    if torch.cuda.is_initialized():
        cuda = tuple(of_tensor(state) for state in torch.cuda.get_rng_state_all())
    numpy = sys.modules.get("numpy.random")
    states = of_tensor(torch.get_rng_state()), random.getstate(), None if numpy is None else of_numpy(numpy), cuda
    # They are written with each saved state, many of them unchanged.
    return packed(states)


def put_back(states: bytes) -> None:
    """Set the global generators to states from `kept`."""
    torch = sys.modules["torch"]
    own, python, of_numpy_then, cuda = unpacked(states)
    torch.set_rng_state(to_tensor(own))
    random.setstate(python)
    if of_numpy_then is not None:
        put_numpy(importlib.import_module("numpy.random"), of_numpy_then)
    if cuda is not None:
        torch.cuda.set_rng_state_all([to_tensor(state) for state in cuda])


def begin_for_rank(states: bytes, rank: int) -> None:
    """Seed the global generators from the states of another rank and the number of this one.

    Holds:   the same arguments give the same random numbers, another rank gives others
    """
    digest = hashlib.sha256(states + rank.to_bytes(8, "little")).digest()
    sys.modules["torch"].manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    random.seed(digest)
    if "numpy.random" in sys.modules:
        importlib.import_module("numpy.random").seed(int.from_bytes(digest[8:12], "little"))


def of_tensor(state: Any) -> bytes:
    """The bytes of a generator's state, a tensor of bytes."""
    return ctypes.string_at(state.data_ptr(), state.numel())


def to_tensor(state: bytes) -> Any:
    """The tensor of bytes of a generator's state."""
    torch = sys.modules["torch"]
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def of_numpy(generator: Any) -> tuple[Any, ...]:
    """The state of numpy's global generator or of a RandomState."""
    name, key, position, has_gauss, gauss = generator.get_state()
    return name, key.tobytes(), position, has_gauss, gauss


def put_numpy(generator: Any, state: tuple[Any, ...]) -> None:
    """Set numpy's global generator or a RandomState."""
    numpy = sys.modules["numpy"]
    name, key, *rest = state
    generator.set_state((name, numpy.frombuffer(key, dtype=numpy.uint32), *rest))
