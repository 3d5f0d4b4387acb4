"""The ranks of the job as one cluster of TensorFlow. Nothing here imports TensorFlow before `init` is called.

`init` only tells TensorFlow's runtime who the ranks are. The runtime starts, and meets the other ranks, with the first operation.

Source:  tensorflow 2.21 tensorflow/python/distribute/collective_all_reduce_strategy.py, which tells the runtime the same
"""

import atexit
import json
import os
import sys
import threading
from typing import Any

_TASK = "/job:worker/replica:0/task:{}"
_ADDRESSES = "PACELINE_RANK_ADDRESSES"
# If a rank leaves earlier, TensorFlow ends the others with an error.
_MOST_WAIT_AT_EXIT_SECONDS = 10.0


class _Joined:
    """What `init` has done in this process."""

    context: Any = None
    """The context of TensorFlow's runtime; None: `init` was not called, or the job has one rank."""
    is_initialized: bool = False
    """`init` was called."""
    has_left: bool = False
    """`shutdown` was called."""


_joined = _Joined()


def init() -> None:
    """Make the ranks of the job one cluster. The script may choose its devices before or after.

    Raises:  RuntimeError: a second call; TensorFlow has started already; or the process is no rank of a job of paceline
    """
    if _joined.is_initialized:
        # The library's own words.
        raise RuntimeError("init() called more than once. smdistributed.dataparallel is already initialized.")
    if size() > 1:
        _joined.context = _configure(_addresses())
        atexit.register(_wait_for_the_others)
    _joined.is_initialized = True


def size() -> int:
    """Number of ranks. It can be asked before `init`."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    """This rank's number among all."""
    return _number("RANK", 0)


def local_size() -> int:
    """Number of ranks on this host."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """This rank's number on its host."""
    return _number("LOCAL_RANK", 0)


def context() -> Any:
    """The context of TensorFlow's runtime, as a cluster; None: see `_Joined`."""
    return _joined.context


def shutdown() -> None:
    """Wait until all ranks have called it. No exchange is possible afterwards."""
    _wait_for_the_others()


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise


def _addresses() -> list[str]:
    text = os.environ.get(_ADDRESSES)
    if text is None:
        raise RuntimeError(
            f"smdistributed.dataparallel does not know the addresses of the {size()} ranks: {_ADDRESSES} is not set. "
            "Start the script with: paceline run --nproc-per-node N script.py"
        )
    found: list[str] = json.loads(text)
    return found


def _configure(addresses: list[str]) -> Any:
    from tensorflow.core.protobuf import tensorflow_server_pb2
    from tensorflow.python.eager import context as contexts
    from tensorflow.python.training.server_lib import ClusterSpec

    context = contexts.context()
    if context._context_handle is not None:
        place = getattr(context, "paceline_started_at", "")
        raise RuntimeError(
            "smdistributed.dataparallel cannot join the ranks: TensorFlow has started already, with a tensor, a variable or "
            f"an operation{f' at {place}' if place else ''}. Call init() before the first of them."
        )
    leader = _TASK.format(0)
    context.configure_collective_ops(collective_leader=leader, device_filters=(f"/job:worker/task:{rank()}",))
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        coordinated_jobs=[contexts.coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=len(addresses))],
    )
    context.enable_collective_ops(
        tensorflow_server_pb2.ServerDef(
            cluster=ClusterSpec({"worker": addresses}).as_cluster_def(),
            default_session_config=context.config,
            job_name="worker",
            task_index=rank(),
            protocol="grpc",
            port=int(addresses[rank()].rpartition(":")[2]),
        )
    )
    return context


def _wait_for_the_others() -> None:
    """Before a rank leaves, it waits until all come to their end: at most 10 s, and not if the script has failed."""
    context = _joined.context
    if context is None or _joined.has_left or getattr(sys, "last_value", None) is not None:
        return
    _joined.has_left = True
    if context._context_handle is None:
        return
    milliseconds = int(_MOST_WAIT_AT_EXIT_SECONDS * 1000)

    def wait() -> None:
        try:
            context.wait_at_barrier("paceline: the end of the script", milliseconds)
        except Exception:
            pass  # another rank has ended with an error, which it reports itself

    # TensorFlow may answer later than it was asked to.
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(_MOST_WAIT_AT_EXIT_SECONDS)
