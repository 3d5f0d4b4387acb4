"""Whether a process takes SIGTERM as a notice of preemption and goes on, as TensorFlow and JAX do once they have joined a job.

Source:  tensorflow 2.21 xla/tsl/distributed_runtime/preemption/preemption_notifier.cc, `SigtermNotifier`;
         tensorflow/python/distribute/failure_handling/failure_handling.py, `PreemptionCheckpointHandler`
"""

import re
import signal
from pathlib import Path

from paceline.probes.process_status import read_caught_signals
from paceline.probes.stacks import StackDump

_LIBRARIES = {
    "TensorFlow": re.compile(r"/libtensorflow_(?:framework|cc)\.so|/_pywrap_tensorflow_internal\.so"),
    "JAX": re.compile(r"/jaxlib/[^\n]*\.so"),
}
# A rank of torch may have loaded one of them for its logs, and its handler for SIGTERM is the script's own.
_TORCH = re.compile(r"/libtorch(?:_cpu)?\.so")
# Its threads run for as long as the handler waits for a notice.
_HANDLER_FILE = "failure_handling.py"


def parse_framework(maps: str) -> str | None:
    """The framework among the mapped files of /proc/PID/maps; None: neither of the two, or torch as well."""
    if _TORCH.search(maps):
        return None
    return next((name for name, library in _LIBRARIES.items() if library.search(maps)), None)


def takes_as_notice(pid: int) -> str | None:
    """The framework in a process that has a handler for SIGTERM; None: it has no handler, or no such framework, or is gone.

    The handler may be the script's own: from outside, the two look the same.
    """
    if signal.SIGTERM not in read_caught_signals(pid):
        return None
    try:
        return parse_framework(Path(f"/proc/{pid}/maps").read_text(errors="replace"))
    except OSError:
        return None


def has_handler(dump: StackDump) -> bool | None:
    """Whether TensorFlow's handler, which saves at a notice, waits in a thread of the process; None: its stacks are not known."""
    if dump.threads is None:
        return None
    return any(Path(frame.file).name == _HANDLER_FILE for thread in dump.threads for frame in thread.frames)
