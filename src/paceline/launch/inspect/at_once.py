"""Several readings at the same time, none of which may keep the caller: a dead network mount holds whoever asks it."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Readings(Generic[K]):
    """`values`: what came in time. `missing`: why the others did not."""

    values: dict[K, Any]
    missing: dict[K, str]


def at_once(jobs: Mapping[K, Callable[[], Any]], timeout_seconds: float) -> Readings[K]:
    """Run every job in a thread of its own, and leave behind the one that does not come back in time.

    Holds:  every key is either in `values` or in `missing`
    """
    values: dict[K, Any] = {}
    missing: dict[K, str] = {}

    def one(key: K, job: Callable[[], Any]) -> None:
        try:
            values[key] = job()
        except Exception as error:
            # One reading that fails costs that reading alone, and its reason is told.
            missing[key] = f"{type(error).__name__}: {error}"

    ends_at = time.monotonic() + timeout_seconds
    # Daemons: a thread that hangs in the kernel must not keep the agent from ending.
    threads = [threading.Thread(target=one, args=item, daemon=True, name="paceline-look") for item in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(ends_at - time.monotonic(), 0))
    done, failed = dict(values), dict(missing)
    late = {key: f"no answer within {timeout_seconds:.1f} s" for key in jobs if key not in done and key not in failed}
    return Readings(done, failed | late)
