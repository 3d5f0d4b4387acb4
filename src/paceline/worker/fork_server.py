"""Starts ranks as forks of a process that has imported torch already: `python -u fork_server.py DESCRIPTOR [keeps-state]`.

The agent starts this program while a job trains, and asks it for ranks when the job starts again: of the time that a rank takes before
its script runs, most is `import torch`. What a rank finds is what a new process would find: its own session, output, environment,
directory, `sys.argv`, `sys.path` and `__main__`, with the agent as its parent. Nothing is loaded here but torch, what torch imports and,
for ranks that keep their state, what parts have for it, because other packages read at their import which rank they are.

The descriptor is a socket that keeps the bounds of messages. This program first sends {"ready": true} or {"unusable": reason}. A request
comes with four descriptors: a file with JSON (argv, environment, directory), the rank's stdout and stderr, and a pipe on which the agent
lets the rank go; where the rank keeps its state, its state buffer is the fifth. The answer is {"pid": N} or {"refused": reason}. The end
of the connection ends this program, and no rank.
"""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# What an ordinary training script has imported before its first step. A torch that lacks one of them does without.
_PRELOADED = ("torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data", "torch._dynamo")
_MOST_BYTES = 4096
_THREAD_SECONDS = 2.0


@dataclass
class Order:
    """A rank to start."""

    argv: list[str]
    """Script and arguments, or "-m", module and arguments."""
    environment: dict[str, str]
    """All environment variables."""
    directory: str | None
    """The working directory; None: the one of this program."""
    state: int | None = None
    """Descriptor of the rank's state buffer; None: it keeps no state."""


def main() -> None:
    """Import torch, then answer the agent. In a rank, run the program: it ends as the main program of this process would."""
    # Python puts the directory of this file first, and its names are those of paceline's modules.
    if not sys.flags.safe_path:
        del sys.path[0]
    connection = socket.socket(fileno=int(sys.argv[1]))
    # Set by sitecustomize, which knows under which name paceline is loaded in this process.
    ours = next(finder.paceline_module for finder in sys.meta_path if hasattr(finder, "paceline_module"))
    program = ours("worker.program")
    before = dict(os.environ)
    also = ours("worker.bootstrap").before_forks if sys.argv[2:] == ["keeps-state"] else None
    reason = preload(also) or several_threads()
    connection.send(json.dumps({"unusable": reason} if reason else {"ready": True}).encode())
    if reason:
        return
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    # Pages of objects that no collection visits are shared with the ranks.
    gc.collect()
    gc.freeze()
    order = serve(connection, program)
    if order is not None:
        become(order, changed, program, ours("worker.bootstrap").before_program)


def preload(also: Callable[[], None] | None) -> str | None:
    """Import torch, then call `also`. Returns why ranks cannot be forked here; None: they can.

    It has the priority of the ranks. At a lower one it waits for as long as something keeps every CPU busy, and the next restart with it.
    """
    # What an import makes stays: a collection would look through all of it again and again, a tenth of the time.
    gc.disable()
    try:
        importlib.import_module("torch")
        for name in _PRELOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if also is not None:
            also()
    except Exception as error:
        return f"what a rank needs cannot be imported ahead of it: {type(error).__name__}: {error}"
    finally:
        gc.enable()
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return "a tracer or a profiler is at work in every Python process here"
    if sys.modules["torch"].cuda.is_initialized():
        return "importing torch initializes CUDA here"
    return None


def several_threads() -> str | None:
    """Why a fork would lack threads that torch's own modules have started; None: there are none."""
    deadline = time.monotonic() + _THREAD_SECONDS
    # Python joins a thread a moment before the kernel ends it.
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > deadline:
            return "a package that torch imports has started a thread"
        time.sleep(0.01)
    return None


def serve(connection: socket.socket, program: Any) -> Order | None:
    """Answer requests. Returns an order in a new rank, and None in this program when the agent has closed the connection.

    `program`: the module of that name.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 5)
        if not message:
            return None
        order_file, out, err, may_go, *state = descriptors
        with open(order_file, "rb") as file:
            order = Order(**json.load(file), state=state[0] if state else None)
        if path := program.hidden_by(program.first_path(order.argv, order.directory or ""), sys.modules):
            reason = f"{path} stands in front of a module that torch imports"
            connection.send(json.dumps({"refused": reason}).encode())
        elif (pid := fork_orphan()) == 0:
            connection.close()
            os.setsid()
            os.dup2(out, 1)
            os.dup2(err, 2)
            # An agent that has given this rank up starts another one in its place.
            if not os.read(may_go, 1):
                os._exit(1)
            for descriptor in (out, err, may_go):
                os.close(descriptor)
            return order
        else:
            connection.send(json.dumps({"pid": pid}).encode())
        for descriptor in (out, err, may_go, *state):
            os.close(descriptor)


def fork_orphan() -> int:
    """Fork a process whose parent is the agent, which adopts orphans, when this returns. Returns its pid, and 0 in it."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(read)
        pid = os.fork()
        if pid == 0:
            os.close(write)
            return 0
        os.write(write, str(pid).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        pid = int(file.read())
    os.waitpid(between, 0)
    return pid


def become(order: Order, changed: dict[str, str], program: Any, before: Callable[[list[str]], Any]) -> None:
    """Be the rank: set what a new process would find, and run the program.

    `changed`: variables that imports have set. `program`: the module of that name. `before`: what its `run` calls first.
    """
    os.environ.clear()
    os.environ.update({**order.environment, **changed, "PACELINE_PREFIX": sys.prefix})
    if order.state is not None:
        os.environ["PACELINE_STATE_FD"] = str(order.state)
    if not sys.flags.safe_path:
        sys.path.insert(0, program.first_path(order.argv, order.directory or ""))
    if order.directory is not None:
        os.chdir(order.directory)
    _reseed()
    program.run(order.argv, ["-u"], before)


def _reseed() -> None:
    """Seed by chance the generators that are seeded by chance at their import: otherwise all ranks would draw the same."""
    sys.modules["torch"].default_generator.seed()
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
