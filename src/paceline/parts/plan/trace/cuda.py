"""A stand-in for a CUDA device: scripts and libraries get from `torch.cuda` the answers of a working device."""

import contextlib
from typing import Any

import torch

from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.session import TraceSession

# What a script hears of the device; a trace is of no particular one.
_CAPABILITY = (8, 0)
_MEMORY_BYTES = 80 << 30


class _Properties:
    name = "a CUDA device (stand-in)"
    major, minor = _CAPABILITY
    total_memory = _MEMORY_BYTES
    multi_processor_count = 108
    is_integrated = False
    gcnArchName = ""


class FakeStream:
    """A stream whose work is always complete."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index, self.cuda_stream, self.stream_id = 0, 0, 0

    def __enter__(self) -> "FakeStream":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def query(self) -> bool:
        """True: all work is complete."""
        return True

    def is_capturing(self) -> bool:
        """False: no graph is captured."""
        return False

    def record_event(self, event: Any = None) -> Any:
        """A complete event."""
        return event or Event()

    def synchronize(self) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = lambda self, *_: None


class Event:
    """An event that is complete; the time between any two is a millisecond."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def query(self) -> bool:
        """Complete."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """A stand-in, in milliseconds."""
        return 1.0

    record = wait = synchronize = lambda self, *_: None


def install(session: TraceSession) -> None:
    """Make `torch.cuda` and `torch.accelerator` answer as if there were the session's devices. A real device is never used."""
    answers = _answers(session.device_count)
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    memory = getattr(torch.cuda, "memory", None)
    for name, answer in answers.items():
        if memory is not None and hasattr(memory, name):
            setattr(memory, name, answer)
    for name, answer in _random().items():
        setattr(torch.cuda, name, answer)
        setattr(torch.cuda.random, name, answer)
    _accelerator(session.device_count)
    replace(torch.backends.cuda, is_built=lambda: True)
    replace(torch.backends.cudnn, is_available=lambda: True)
    several = f", one of {session.device_count}," if session.device_count > 1 else ""
    session.assume(
        f"if the script asks for its device, it is told of a CUDA device{several} of compute capability "
        f"{_CAPABILITY[0]}.{_CAPABILITY[1]} with {_MEMORY_BYTES >> 30} GiB",
        anywhere=True,
    )


def _answers(device_count: int) -> dict[str, Any]:
    nothing = lambda *_, **__: None  # noqa: E731
    zero = lambda *_, **__: 0  # noqa: E731
    names = """init _lazy_init _check_capability _sleep synchronize set_device empty_cache ipc_collect reset_peak_memory_stats
    reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached set_per_process_memory_fraction set_stream
    set_sync_debug_mode _lazy_call"""
    counters = """memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached max_memory_cached
    utilization temperature power_draw clock_rate current_device get_sync_debug_mode"""
    return {
        **dict.fromkeys(names.split(), nothing),
        **dict.fromkeys(counters.split(), zero),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: device_count,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda *_: _Properties.name,
        "get_device_capability": lambda *_: _CAPABILITY,
        "get_device_properties": lambda *_: _Properties(),
        "get_arch_list": lambda: ["sm_80"],
        "can_device_access_peer": lambda *_: True,
        "mem_get_info": lambda *_: (_MEMORY_BYTES, _MEMORY_BYTES),
        "memory_stats": lambda *_: {},
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
        "Stream": FakeStream,
        "Event": Event,
        "ExternalStream": FakeStream,
        "current_stream": lambda *_: FakeStream(),
        "default_stream": lambda *_: FakeStream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "StreamContext": lambda *_: contextlib.nullcontext(),
        "device": _Device,
        "device_of": _Device,
    }


class _Device:
    """`with torch.cuda.device(i)`: rank 0 stays on its own device."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _random() -> dict[str, Any]:
    nothing = lambda *_, **__: None  # noqa: E731
    names = "manual_seed manual_seed_all seed seed_all set_rng_state set_rng_state_all"
    state = torch.get_rng_state
    return {
        **dict.fromkeys(names.split(), nothing),
        "initial_seed": lambda: 0,
        "get_rng_state": lambda *_: state(),
        "get_rng_state_all": lambda: [state()],
    }


def _accelerator(device_count: int) -> None:
    """torch.accelerator, if this torch has it (2.6 and later)."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "device_count": lambda: device_count,
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": lambda *_: None,
        "set_device_idx": lambda *_: None,
        "current_stream": lambda *_: FakeStream(),
        "set_stream": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
    }
    for name, answer in answers.items():
        setattr(accelerator, name, answer)
