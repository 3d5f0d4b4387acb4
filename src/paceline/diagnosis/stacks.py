"""Reads the stacks of a snapshot for the rules: which line is the user's, and what the main thread does."""

import re
from collections.abc import Iterable, Sequence

from paceline.diagnosis.case import Site
from paceline.diagnosis.snapshots import Frame, RankSnapshot, ThreadStack

# Our own code inside a rank, without the exchange.
_OWN = re.compile(r"/paceline/(?:worker|parts/(?:\w+/(?:instruments|worker)|(?!comm/)\w+))/")
OUR_EXCHANGE = "/paceline/parts/comm/"
_DISTRIBUTED = (
    "torch/distributed/", "torch/nn/parallel/distributed.py", "torch/_C/_distributed_c10d", OUR_EXCHANGE,
)  # fmt: skip
# Files below torch/distributed that are no exchange: a rank in them does work of its own.
_WORK_OF_ITS_OWN = ("torch/distributed/checkpoint/", "torch/distributed/elastic/", "torch/distributed/optim/")
_BACKWARD = ("torch/autograd/graph.py", "torch/autograd/__init__.py")
# Calls into the runtimes of TensorFlow and JAX: they compute, or wait for other ranks or for data, all outside of Python.
_RUNTIMES = ("tensorflow/python/eager/execute.py", "jax/_src/", "jax/experimental/")
_MOST_CPU_OF_A_WAIT = 0.2
_COMPILER = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/", "torch/fx/", "/triton/", "torch/_export/")
_COMPILED_CODE_RUNS = ("torch/_dynamo/eval_frame.py", "torch/_dynamo/external_utils.py", "torch/fx/graph_module.py")
_FILE_LOCK = "/filelock/"
_LOADER = "torch/utils/data/dataloader.py"
_LOADER_WAITS = frozenset({"_try_get_data", "_get_data"})


def is_own(file: str) -> bool:
    """Whether a file is of what paceline does inside a rank, the exchange of gradients apart."""
    return _OWN.search(file) is not None


def main_stack(snapshot: RankSnapshot) -> ThreadStack | None:
    """The main thread of the rank's own process; None if no stack could be read."""
    return next((stack for stack in snapshot.stacks or () if stack.main and stack.pid == snapshot.pid), None) or next(
        (stack for stack in snapshot.stacks or () if stack.main), None
    )


def frames_of(snapshot: RankSnapshot) -> tuple[Frame, ...]:
    """The main thread's frames, innermost first, without those of paceline's own instruments."""
    stack = main_stack(snapshot)
    return () if stack is None else tuple(frame for frame in stack.frames if not is_own(frame.file))


def without_our_inside(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames with only the outermost frame of paceline's own exchange.

    Ranks that wait at different lines inside the exchange wait in the same place.
    """
    inside = [*(OUR_EXCHANGE in frame.file for frame in frames), False]
    return tuple(frame for at, frame in enumerate(frames) if not (inside[at] and inside[at + 1]))


def users_frame(snapshot: RankSnapshot) -> Frame | None:
    """The innermost frame of the user's own code on the main thread."""
    return first_users_frame(frames_of(snapshot))


def first_users_frame(frames: Iterable[Frame]) -> Frame | None:
    return next((frame for frame in frames if frame.users), None)


def site_of(frame: Frame) -> Site:
    """The place of a frame; as text it is FILE:LINE in FUNCTION."""
    return Site(file=frame.file, line=frame.line, function=frame.function)


def place_of(snapshot: RankSnapshot) -> str:
    """Where the main thread is, as text: the user's line, and the library function that it called there."""
    frames = frames_of(snapshot)
    users = first_users_frame(frames)
    if not frames:
        return "at an unknown place"
    if users is None:
        return f"at {site_of(frames[0])}"
    inner = without_our_inside(frames)[0]
    return f"at {site_of(users)}" + (f", in {_short(inner)}" if inner is not users else "")


def signature_of(snapshot: RankSnapshot) -> str:
    """The functions of the main thread's stack, to compare two snapshots. Lines within one function may change."""
    return " < ".join(f"{frame.file}:{frame.function}" for frame in frames_of(snapshot))


def is_waiting_in_collective(snapshot: RankSnapshot) -> bool | None:
    """Whether the main thread is inside torch's exchange: a collective, a wait for one, DDP's backward pass, the rendezvous.

    None if there is no stack. A backward pass that uses a CPU computes and waits for no rank. So does a call of another runtime.
    """
    frames = frames_of(snapshot)
    if not frames:
        return None
    file = frames[0].file
    if any(part in file for part in (*_BACKWARD, *_RUNTIMES)):
        return (snapshot.cpu_fraction or 0.0) < _MOST_CPU_OF_A_WAIT
    return any(part in file for part in _DISTRIBUTED) and not any(part in file for part in _WORK_OF_ITS_OWN)


def gil_is_held(snapshot: RankSnapshot) -> bool | None:
    """Whether a thread of this idle rank holds the interpreter's lock, or its main thread waits for the lock.

    None: not known. An unanswered request for a traceback proves nothing, because a busy machine may not answer either.
    """
    threads = [stack for stack in snapshot.stacks or () if stack.pid == snapshot.pid]
    if any(stack.owns_gil for stack in threads) or any("take_gil" in frame for frame in snapshot.native):
        return True
    call = snapshot.system_call
    # Python releases its lock for these calls. A thread without Python frames may own it, and the others then wait in a futex.
    gave_up = call is not None and not call.startswith(("futex", "running"))
    return False if gave_up and any(stack.owns_gil is False for stack in threads) else None


def is_compiling(snapshot: RankSnapshot) -> bool:
    """Whether the main thread is in torch's compiler, or a compiler runs as its child. Running compiled code does not count."""
    if any(child.role == "compiler" and (child.cpu_fraction or 0.0) > 0.05 for child in snapshot.children or ()):
        return True
    return any(
        part in frame.file and not frame.file.endswith(_COMPILED_CODE_RUNS)
        for frame in frames_of(snapshot)
        for part in _COMPILER
    )


def is_waiting_for_file_lock(snapshot: RankSnapshot) -> bool:
    """Whether it waits for a lock on a file, in the kernel or in a package that polls for the lock."""
    return "lock_inode_wait" in (snapshot.wait_channel or "") or any(
        _FILE_LOCK in frame.file for frame in frames_of(snapshot)
    )


def is_waiting_for_loader(snapshot: RankSnapshot) -> bool:
    """Whether the main thread waits for a DataLoader's worker processes."""
    return any(frame.file.endswith(_LOADER) and frame.function in _LOADER_WAITS for frame in frames_of(snapshot))


def has_any(frames: Sequence[Frame], parts: Iterable[str]) -> Frame | None:
    """The innermost frame whose "file:function" contains one of `parts`."""
    wanted = tuple(parts)
    return next((frame for frame in frames if any(part in f"{frame.file}:{frame.function}" for part in wanted)), None)


def _short(frame: Frame) -> str:
    parts = frame.file.rsplit("/", 2)
    return f"{frame.function} ({'/'.join(parts[-2:])}:{frame.line})"
