"""Trains in loops of its own and says what it can see of its loops, functions, files and modules."""

# ruff: noqa: SIM115, T100 - files as scripts open them, a debugger that reads no terminal

import builtins
import dataclasses
import dis
import doctest
import gc
import importlib
import inspect
import io
import json
import os
import pdb
import pickle
import shutil
import sys
import tempfile
import traceback
import warnings
import weakref
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.utils.data import DataLoader

# A module of the user's own, whose loops are followed as well.
FOLDER = Path(tempfile.mkdtemp())
(FOLDER / "mine.py").write_text(
    '''
"""A module.

>>> total([1, 2])
3
"""
times = globals().get("times", 0) + 1


def total(numbers):
    found = 0
    for number in numbers:
        found += int(number)
    return found
'''
)
sys.path.insert(0, str(FOLDER))
import mine  # noqa: E402


@dataclasses.dataclass
class Settings:
    """Of a training."""

    rate: float = 0.1
    names: list[str] = dataclasses.field(default_factory=list)


class Item:
    """Something whose end can be seen."""


def items(said):
    try:
        for number in range(3):
            said.append(f"gives {number}")
            yield number
    finally:
        said.append("is closed")


def loops(said=None):
    """Each kind of loop and end."""
    said = [] if said is None else said
    for number in items(said):
        said.append(str(number))
    else:
        said.append("else")
    for number in items(said):
        said.append(str(number))
        break
    said.append("behind a break")
    left = 2
    while left:
        said.append(f"left {left}")
        left -= 1
    else:
        said.append("else of the while")
    return said


def raising():
    """The exception of an iterator, caught."""
    try:
        for _ in map(int, ["1", "x"]):
            abs(0)
    except ValueError as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return []


def raising_itself():
    """The exception of a body, caught."""
    try:
        for number in [1]:
            int(f"x{number}")
    except ValueError as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return []


def lifetimes():
    """Whether an item is gone once the loop is at the next one."""
    first = None
    for item in (Item() for _ in range(2)):
        if first is None:
            first = weakref.ref(item)
        str(item)
    return first() is None


def at_the_same_time():
    """A list that grows while a loop runs over it, and an exhausted iterator."""
    growing = [1]
    for number in growing:
        if len(growing) < 4:
            growing.append(number + 1)
    iterator = iter([1, 2, 3])
    for number in iterator:
        str(number)
        break
    return growing, list(iterator)


def traced():
    """The lines that a tracer of this file sees, in order."""
    seen = []

    def trace(frame, event, _):
        if frame.f_code.co_filename == __file__:
            seen.append(f"{event} {frame.f_code.co_name}:{frame.f_lineno - frame.f_code.co_firstlineno}")
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    loops()
    sys.settrace(before)
    return seen


def debugged():
    """What a debugger shows that goes through the loops line by line."""
    out = io.StringIO()
    commands = io.StringIO("n\n" * 60 + "c\n")
    debugger = pdb.Pdb(stdin=commands, stdout=out, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.runcall(loops)
    return out.getvalue().replace(__file__, "FILE").splitlines()


def functions():
    """How the functions that paceline may replace look."""
    named = {
        "open": open, "io.open": io.open, "mkdir": os.mkdir, "remove": os.remove, "unlink": os.unlink, "rmdir": os.rmdir,
        "rename": os.rename, "replace": os.replace, "rmtree": shutil.rmtree, "Optimizer": torch.optim.SGD.__init__,
        "DataLoader": DataLoader.__iter__, "scheduler": torch.optim.lr_scheduler.StepLR.__init__, "save": torch.save,
    }  # fmt: skip
    return {
        name: [function.__name__, function.__doc__ == inspect.unwrap(function).__doc__, str(inspect.signature(function)),
            pickle.loads(pickle.dumps(function)) is function if "." not in function.__qualname__ else None,
            function in os.supports_dir_fd, function in os.supports_follow_symlinks]
        for name, function in named.items()
    }  # fmt: skip


def mistakes():
    """What wrong calls of these functions say."""
    found = []
    for call in (
        lambda: open(FOLDER / "missing" / "x", "w"), lambda: open(FOLDER, "w"), lambda: open(FOLDER / "x", "wz"), lambda: open(),
        lambda: open(FOLDER / "x", None), lambda: open(3.5, "w"), lambda: os.mkdir(FOLDER), lambda: os.remove(FOLDER / "missing"),
        lambda: os.rename(FOLDER / "missing", FOLDER / "y"), lambda: os.mkdir(), lambda: os.rmdir(FOLDER), lambda: os.remove(b"\0"),
        lambda: os.rename("a", "b"), lambda: os.rename("a"), lambda: os.replace(), lambda: os.remove(), lambda: shutil.rmtree(),
        lambda: shutil.rmtree(FOLDER / "missing"), lambda: os.mkdir(None), lambda: os.rename(None, "x"), lambda: open("\0", "w"),
    ):  # fmt: skip
        try:
            call()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}".replace(str(FOLDER), "FOLDER"))
    return found


def files():
    """What was written, in ways that a script may choose."""
    fifo = FOLDER / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with open(fifo, "w") as writer:
        writer.write("through a pipe")
    found = [os.read(reader, 99).decode()]
    os.close(reader)
    with open(FOLDER / "bytes", "wb", 0) as raw:
        found.append([raw.write(b"abc"), type(raw).__name__, raw.name == FOLDER / "bytes", raw.mode])
    with open(file=FOLDER / "text", mode="w", encoding="ascii", errors="replace", newline="\r\n") as text:
        text.write("ä\n")
    with open(FOLDER / "text", "r+b") as both:
        found.append(both.read().decode())
    os.rename(FOLDER / "bytes", dst=FOLDER / "moved")
    os.replace(src=FOLDER / "moved", dst=FOLDER / "bytes")
    os.mkdir(path=FOLDER / "made", mode=0o700)
    shutil.rmtree(path=FOLDER / "made", ignore_errors=True)
    with open(os.open(FOLDER / "text", os.O_WRONLY), "wb") as own:
        own.write(b"own")
    with open(FOLDER / "opened", "x", opener=lambda path, flags: os.open(path, flags, 0o640)) as opened:
        found.append(oct(os.fstat(opened.fileno()).st_mode))
    return [*found, (FOLDER / "text").read_text()]


def in_children():
    """Functions and loops in processes that the script starts."""
    paths = [FOLDER / name for name in ("bytes", "text")]
    with get_context("spawn").Pool(1) as pool:
        found = [*pool.map(mine.total, [[1, 2], [3]]), *pool.map(os.remove, paths), pool.apply(loops) == loops()]
    return [*found, [path.exists() for path in paths]]


def main():
    torch.manual_seed(1)
    said = {"builtins": sorted(name for name in vars(builtins) if name not in vars(io))}
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=Settings().rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    waits = timedelta(seconds=1)
    log = open(FOLDER / "log", "w")
    depths, losses = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in range(2):
            for batch in DataLoader(torch.ones(4, 4), batch_size=2):
                loss = model(batch).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                log.write(f"{epoch} {loss.item()}\n")
                depths.append(len(inspect.stack()))
                losses.append(loss.item())
                warnings.warn("in a loop", stacklevel=1)
            scheduler.step()
    said["position in the log"] = log.tell()
    log.close()
    said |= {
        "waits": str(waits),
        "losses": losses,
        "rates": scheduler.get_last_lr(),
        "log": (FOLDER / "log").read_text(),
        "depths": depths,
        "warnings": [[str(one.message), os.path.basename(one.filename), one.lineno] for one in caught],
        "loops": loops(),
        "lifetimes": lifetimes(),
        "at the same time": at_the_same_time(),
        "raising itself": raising_itself(),
        "raising": raising(),
        "traced": traced(),
        "debugged": debugged(),
        "functions": functions(),
        "mistakes": mistakes(),
        "files": files(),
        "in children": in_children(),
        "source": inspect.getsource(loops),
        "lines": sorted({line - loops.__code__.co_firstlineno for *_, line in loops.__code__.co_lines() if line}),
        "file": [__file__, loops.__code__.co_filename, sys.argv[0], __name__, inspect.getmodule(loops).__name__],
        "names": [loops.__qualname__, loops.__module__, str(inspect.signature(loops)), loops.__doc__],
        "variables": [loops.__code__.co_varnames, loops.__code__.co_freevars, loops.__code__.co_stacksize > 0],
        "constants": [one for one in loops.__code__.co_consts if isinstance(one, str)],
        "code": [one.opname for one in dis.get_instructions(loops)],
        "code's names": loops.__code__.co_names,
        "pickled": pickle.loads(pickle.dumps(loops)) is loops,
        "dataclass": [repr(Settings()), dataclasses.asdict(Settings()), Settings() == Settings()],
        "doctest": list(doctest.testmod(mine)),
        "reloaded": [importlib.reload(mine).times, mine.total([4, 5]), mine.__spec__.origin == str(FOLDER / "mine.py")],
        "cached": sorted(path.name for path in FOLDER.glob("__pycache__/*")),
        "finders": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "loader": [type(mine.__loader__).__name__, mine.__loader__.get_source("mine") == inspect.getsource(mine)],
        "hooks": len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks),
        "seeds": [torch.initial_seed() > 0, sys.flags.hash_randomization],
        "collector": [gc.isenabled(), len(gc.garbage)],
    }
    print(json.dumps(said))
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
