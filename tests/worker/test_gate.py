"""The gate of a process: open while its script runs; closed, after the answers under way, before anything else of its exit."""

import fcntl
import os
import sys
import time
from pathlib import Path

import pytest

from paceline.probes.worker_server import GateClosed, Questions

pytestmark = pytest.mark.process

TRAINED = (
    "import sys, time, torch\n"
    "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); torch.optim.SGD(m.parameters(), 0.1).step()\n"
    "print('trained', flush=True); sys.stdin.readline()\n"
)


def asked(path: Path, handler: str = "ping") -> str:
    try:
        return "answered" if Questions().ask(path, handler, 20) is not None else "nothing"
    except GateClosed:
        return "refused"


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "last",
    [
        "import threading; threading.Thread(target=leave).start()",
        pytest.param("import threading; threading._register_atexit(leave)", marks=pytest.mark.wide),
        "import atexit; atexit.register(leave)",
        pytest.param("import weakref; weakref.finalize(m, leave)", marks=pytest.mark.wide),
        "class Kept:\n    def __del__(self, leave=leave): leave()\nsys.modules['kept'] = Kept()",
    ],
    ids=["non-daemon thread", "threading's handler", "exit handler", "finalize", "destructor"],
)
def test_nothing_is_asked_from_the_end_of_the_main_thread_on(workplace, written, last):
    leave = "def leave(say=print, read=sys.stdin.readline):\n    say('leaves', flush=True); read()\n"
    process = workplace.start(sys.executable, written(TRAINED + leave + last), stdin=True)
    path = workplace.directory / "sockets" / f"{process.pid}.sock"
    assert process.stdout.readline() == "trained\n"
    assert (asked(path), asked(path, "dump_traceback")) == ("answered", "answered")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "leaves\n"
    assert path.exists()
    # A thread that has just begun may speak before the main thread has closed the gate.
    ends_at = time.monotonic() + 60
    while path.with_suffix(".gate").exists():
        assert time.monotonic() < ends_at
    assert (asked(path), asked(path, "dump_traceback"), asked(path, "fr_trace_json")) == ("refused",) * 3
    ((header, _),) = workplace.rings
    assert header.leaving_ns and header.exiting == ("class Kept" in last)
    # A thread may still train; an exit handler comes after all threads.
    assert (header.finalizing_ns is not None) == ("import threading" not in last)
    _, err = process.communicate("\n", timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.slow
def test_the_exit_waits_for_the_question_under_way(workplace, written):
    process = workplace.start(sys.executable, written(TRAINED), stdin=True)
    gate = workplace.directory / "sockets" / f"{process.pid}.gate"
    assert process.stdout.readline() == "trained\n"
    held = os.open(gate, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    process.stdin.write("\n")
    process.stdin.flush()
    ends_at = time.monotonic() + 60
    while not workplace.rings[0][0].leaving_ns:
        assert time.monotonic() < ends_at
    while gate.exists():
        assert time.monotonic() < ends_at
    # Processes that ask in turns would else never let it go.
    assert asked(gate.with_suffix(".sock")) == "refused"
    assert process.poll() is None and not workplace.rings[0][0].exiting
    os.close(held)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.slow
def test_a_process_that_joins_while_it_leaves_has_no_server(workplace, written):
    script = written(
        "import atexit, torch\n"
        "m = torch.nn.Linear(1, 1); m(torch.ones(1)).sum().backward(); o = torch.optim.SGD(m.parameters(), 0.1)\n"
        "atexit.register(o.step)\n"
    )
    (left,) = workplace.run(sys.executable, script)
    ((header, _),) = workplace.rings
    assert (left.code, left.err, header.step_count, header.worker_server) == (0, "", 1, False)
