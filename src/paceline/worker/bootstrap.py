"""Registers the instruments, and decides which patch runs after which module was executed.

`import torch`, `tensorflow` or `keras`, whichever comes first, calls `prepare` at its start; so does a `paceline.step()` before them.
"""

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from types import CodeType, ModuleType
from typing import Any

from ..recording import ring
from . import (
    agent_store,
    call_log,
    host_aliases,
    instrument,
    instruments,
    loops,
    our_groups,
    rank_recorder,
    registry,
    sampling,
)
from .instrument import Patch, RankInstrument
from .no_compile import leave_module_alone
from .rank_recorder import RankRecorder, this_rank


def prepare(finder: Any) -> None:
    """Enter the patches into sitecustomize's finder. Each patch runs right after its module, before any code can copy a name out of it."""
    finder.report = this_rank.note_failure
    _compare_environment(finder)
    os.register_at_fork(after_in_child=this_rank.forget)
    watching = _watching(os.environ.get("PACELINE_OFF", ""), this_rank)
    patches: dict[str, list[Patch]] = {}
    _enter(patches, "", _first(watching))
    for part in _parts():
        _enter(patches, "", _asked(part, "before_instruments"))
    for one in watching:
        _enter(patches, one.name, _patches_of(one))
    for part in _parts():
        _enter(patches, "", _asked(part, "after_instruments"))
    # It may be in sys.modules already, and is not yet executed.
    of_torch = patches.pop("torch", ())
    finder.after.update({module: partial(_run, wanted) for module, wanted in patches.items()})
    _already_there(finder)
    finder.after["torch"] = partial(_run, of_torch)


def before_forks() -> None:
    """In a fork server whose ranks keep their state: the parts load what those need, so that no rank has to."""
    for part in _parts():
        if hasattr(part, "before_forks"):
            part.before_forks()


def before_program(argv: list[str]) -> CodeType | None:
    """What the parts do right before the program of a fork: script or "-m", and arguments. Returns the script's code, if a part has it.

    Raises:  OSError, SyntaxError, ValueError: the script cannot be read, or is not Python
    """
    hooks = (getattr(part, "before_program", None) for part in _parts())
    codes = [hook(argv) for hook in hooks if hook is not None]
    return next(filter(None, codes), None)


def _compare_environment(finder: Any) -> None:
    """Note at the start of `import torch` whether the script has changed its environment before. Another framework may have come first."""

    def compare() -> None:
        this_rank.environment_changed = finder.environment != dict(os.environ)
        if this_rank.ring is not None:
            this_rank.ring.cells[ring.Cell.ENVIRONMENT_CHANGED] = int(this_rank.environment_changed)

    # While a module is imported it is in sys.modules already.
    if "torch" in sys.modules:
        compare()
    else:
        finder.before["torch"] = compare


def _watching(off: str, rank: RankRecorder) -> list[RankInstrument]:
    """Register the instruments of this process and return them. `off`: the names that the user turned off, separated by commas.

    The word `all` never gets here: sitecustomize handles it.
    """
    rank.off = {word.strip().lower() for word in off.split(",") if word.strip()}
    known = instruments.modules(_parts())
    # Resume is no instrument, but what a rank does for it is turned off by its name too.
    for word in sorted(rank.off.difference(known, {"resume"})):
        rank.note_failure(ValueError(f"there is no instrument {word!r}"), "PACELINE_OFF")
    watching = (_registered(name, module, rank) for name, module in known.items() if name not in rank.off)
    return [one for one in watching if one is not None]


def _registered(name: str, module: str, rank: RankRecorder) -> RankInstrument | None:
    try:
        made = instruments.load(module)(rank)
        rank.registry.add(name, made.methods())
    except Exception as error:
        rank.drop(name, error)
        return None
    rank.registry.tell_one(name, "begin")
    return made


def _patches_of(one: RankInstrument) -> Mapping[str, Patch]:
    try:
        return one.patches()
    except Exception as error:
        one.rank.drop(one.name, error)
        return {}


def _enter(patches: dict[str, list[Patch]], name: str, wanted: Mapping[str, Patch]) -> None:
    """Add what runs after each module. `name`: the instrument that is dropped if the patch raises; empty for a patch of no instrument."""
    for module, patch in wanted.items():
        patches.setdefault(module, []).append(partial(_guarded, name, patch))


def _guarded(name: str, patch: Patch, module: ModuleType) -> None:
    if name in this_rank.silent:
        return
    try:
        patch(module)
    except Exception as error:
        if name:
            this_rank.drop(name, error)
        else:
            this_rank.note_failure(error)


def _run(patches: Iterable[Patch], module: ModuleType) -> None:
    for patch in patches:
        patch(module)


def _first(watching: Iterable[RankInstrument]) -> dict[str, Patch]:
    """Patches that belong to no instrument and run before those of the instruments."""
    return {
        "torch.distributed.distributed_c10d": partial(_distributed, watching),
        "torch.distributed.rendezvous": agent_store.let_ranks_serve_their_own,
    }


@cache
def _parts() -> list[ModuleType]:
    """The parts' modules inside a rank. PACELINE_PARTS has their names, as the agent has chosen them; ours begin with "parts."."""
    found = []
    for name in filter(None, os.environ.get("PACELINE_PARTS", "").split(",")):
        try:
            found.append(importlib.import_module(f"...{name}" if name.startswith("parts.") else name, __name__))
        except Exception as error:
            this_rank.note_failure(error)
    return found


def _asked(part: ModuleType, hook: str) -> Mapping[str, Patch]:
    """Patches of a part; none where its hook raises, or it has no such hook."""
    try:
        patches: Mapping[str, Patch] = getattr(part, hook, dict)()
        return patches
    except Exception as error:
        this_rank.note_failure(error)
        return {}


def _distributed(watching: Iterable[RankInstrument], module: ModuleType) -> None:
    for ours in (ring, rank_recorder, registry, instrument, our_groups, call_log, loops, sampling):
        leave_module_alone(ours)
    for one in watching:
        leave_module_alone(sys.modules[type(one).__module__])
    from torch._C import _distributed_c10d as native

    host_aliases.patch_store(native)


def _already_there(finder: Any) -> None:
    # Another sitecustomize may have imported modules of torch already. safetensors can be imported without torch.
    for name in [name for name in finder.after if name in sys.modules]:
        finder.after.pop(name)(sys.modules[name])
