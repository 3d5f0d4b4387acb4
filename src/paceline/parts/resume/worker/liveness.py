"""Tells which variables of a frame may still be read, so that a saved state need not hold the others: the last batch, the last loss.

It reads the bytecode backwards until nothing changes: what is live before an instruction is what the instruction reads, and what is live
after it without what it assigns. A name that is wrongly said to be live costs memory; a name that is wrongly said to be dead costs the
state. So a doubt makes a name, or all names, live.
"""

import bisect
import dis
import inspect
from collections.abc import Iterator
from types import CodeType

from ....worker.loops import next_instructions

# What an instruction does to the variables it names, in the order of its argument: reads, assigns. What deletes a variable needs it first.
_OF_A_FUNCTION = {
    "LOAD_FAST": "r",
    "LOAD_FAST_CHECK": "r",
    "LOAD_FAST_BORROW": "r",
    # What an inlined comprehension does to put the variable back behind it.
    "LOAD_FAST_AND_CLEAR": "r",
    "LOAD_FAST_LOAD_FAST": "rr",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "rr",
    "DELETE_FAST": "r",
    "STORE_FAST": "a",
    "STORE_FAST_MAYBE_NULL": "a",
    "STORE_FAST_STORE_FAST": "aa",
    "STORE_FAST_LOAD_FAST": "ar",
}
_OF_A_MODULE = {"LOAD_NAME": "r", "LOAD_GLOBAL": "r", "DELETE_NAME": "r", "DELETE_GLOBAL": "r", "STORE_NAME": "a"}
# Functions that read variables by names which the bytecode does not tell. The second ones do so only without an argument.
_READERS = {"eval", "exec", "locals"}
_READERS_OF_THE_CALLER = {"dir", "vars"}
_READERS_OF_A_MODULE = {"eval", "exec", "globals"}
# What torch's and its kin's functions of these names return passes on every exception. Behind a `with` that may swallow one, a variable
# that is assigned inside may still have its old value.
_PASSES_ON = {
    "accumulate", "autocast", "enable_grad", "inference_mode", "no_grad", "no_sync", "record_function", "set_grad_enabled",
}  # fmt: skip


class _Live:
    """The live variables of one code object, at each of its instructions."""

    __slots__ = ("_after", "_always", "_code", "_names", "_offsets")

    def __init__(self, code: CodeType) -> None:
        # Kept alive, because its id is a key.
        self._code = code
        instructions, following = next_instructions(code)
        self._offsets = [instruction.offset for instruction in instructions]
        numbers: dict[str, int] = {}
        reads, keeps = [0] * len(instructions), [-1] * len(instructions)
        table = _OF_A_FUNCTION if code.co_flags & inspect.CO_OPTIMIZED else _OF_A_MODULE
        for index, instruction in enumerate(instructions):
            does = table.get(instruction.opname)
            if does is None:
                continue
            named = instruction.argval if len(does) > 1 else (instruction.argval,)
            for name, one in zip(named, does, strict=True):
                bit = 1 << numbers.setdefault(name, len(numbers))
                if one == "a":
                    keeps[index] &= ~bit
                elif keeps[index] & bit:
                    reads[index] |= bit
        at = {offset: index for index, offset in enumerate(self._offsets)}
        after = [[at[offset] for offset in following[offset_here]] for offset_here in self._offsets]
        for index in _never_swallowed(code, instructions, at):
            after[index] = [index + 1]
        handlers = self._handlers(code)
        before, behind = [0] * len(instructions), [0] * len(instructions)
        changed = True
        while changed:
            changed = False
            for index in range(len(instructions) - 1, -1, -1):
                live = 0
                for other in after[index]:
                    live |= before[other]
                # An exception may come before the variable is assigned, so the handler's reads are live before the instruction too.
                caught = before[handlers[index]] if index in handlers else 0
                behind[index] = live | caught | reads[index]
                live = live & keeps[index] | reads[index] | caught
                if live != before[index]:
                    before[index], changed = live, True
        self._after, self._names = behind, list(numbers)
        self._always = frozenset(code.co_cellvars) | frozenset(code.co_freevars)
        if table is _OF_A_MODULE:
            self._always |= {name for name in code.co_names if name.startswith("__")}
            self._always |= {name for inner in _inner(code) for name in _global_reads(inner)}

    def _handlers(self, code: CodeType) -> dict[int, int]:
        """The index of each instruction whose exceptions are handled -> the index of the handler's first instruction."""
        found: dict[int, int] = {}
        for start, end, target, *_ in dis._parse_exception_table(code):
            handler = bisect.bisect_left(self._offsets, target)
            for index in range(bisect.bisect_left(self._offsets, start), bisect.bisect_left(self._offsets, end)):
                found[index] = handler
        return found

    def names(self, offset: int) -> frozenset[str]:
        """A frame may be at the cache entries behind an instruction."""
        live = self._after[bisect.bisect_right(self._offsets, offset) - 1]
        return self._always | {name for number, name in enumerate(self._names) if live >> number & 1}


def _never_swallowed(code: CodeType, instructions: list[dis.Instruction], at: dict[int, int]) -> Iterator[int]:
    """The index of each jump past an exception of a `with` that passes on every exception: the jump is never made."""
    handlers = {start: target for start, _, target, *_ in dis._parse_exception_table(code)}
    for index, instruction in enumerate(instructions):
        if instruction.opname == "BEFORE_WITH":
            inside = index + 1
        elif instruction.opname == "LOAD_SPECIAL" and instruction.argrepr == "__enter__":
            # From 3.14 on: COPY, __exit__, SWAP, SWAP, __enter__, and the call of it.
            index, inside = index - 4, index + 2
        else:
            continue
        if not _passes_on(instructions[:index]):
            continue
        # The first instruction behind it stores or drops what `as` names, and is covered by the handler.
        target = handlers.get(instructions[inside].offset)
        if target is None:
            continue
        names = [one.opname for one in instructions[at[target] : at[target] + 5]]
        jump = next(
            (i for i, name in enumerate(names) if name.startswith("POP_JUMP") and name.endswith("IF_TRUE")), None
        )
        if jump is not None and "WITH_EXCEPT_START" in names[:jump]:
            yield at[target] + jump


def _passes_on(before: list[dis.Instruction]) -> bool:
    """Whether the call whose result a `with` enters is of a function that is known for it. `before`: the instructions in front of it."""
    call = next((one for one in reversed(before) if one.opname != "CACHE"), None)
    if call is None or not call.opname.startswith("CALL") or call.positions is None:
        return False
    begins = (call.positions.lineno, call.positions.col_offset)
    named = None
    for one in before:
        if one.positions is not None and (one.positions.lineno, one.positions.col_offset) == begins:
            named = one.argval if one.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME") else named
    return named in _PASSES_ON


_known: dict[int, _Live | None] = {}
_answers: dict[tuple[int, int], frozenset[str]] = {}
# Code objects of which nothing can be known are kept alive as well.
_kept: list[CodeType] = []


def live_names(code: CodeType, offset: int) -> frozenset[str] | None:
    """The variables that may be read after the instruction at `offset` (a frame's f_lasti) before they are assigned again.

    None: all of them must be taken as live. Cells and free variables are always live. In the code of a module the variables are its
    names, and a name that a function of the module reads is live; what other modules read from this one is not looked at.

    Units:   offset in bytes, from the beginning of the code
    Holds:   setting the other variables to anything changes nothing that the code does from there on
    """
    if offset < 0:
        return None
    key = (id(code), offset)
    if key not in _answers:
        if id(code) not in _known:
            _known[id(code)] = _Live(code) if _can_be_known(code) else None
            _kept.append(code)
        live = _known[id(code)]
        if live is None:
            return None
        _answers[key] = live.names(offset)
    return _answers[key]


def _can_be_known(code: CodeType) -> bool:
    function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    # All names of a class's body are read when the body has been executed.
    if not function and code.co_name != "<module>":
        return False
    instructions = list(dis.get_instructions(code))
    for index, instruction in enumerate(instructions):
        name = instruction.opname
        if name.startswith("<") or (function and "_FAST" in name and name not in _OF_A_FUNCTION):
            return False
        if instruction.argval == "f_locals" and instruction.arg is not None:
            return False
        if name not in ("LOAD_GLOBAL", "LOAD_NAME"):
            continue
        if instruction.argval in _READERS or (not function and instruction.argval in _READERS_OF_A_MODULE):
            return False
        if instruction.argval in _READERS_OF_THE_CALLER:
            used = next(one for one in instructions[index + 1 :] if one.opname not in ("PUSH_NULL", "EXTENDED_ARG"))
            if used.opname.startswith("STORE") or (used.opname in ("CALL", "PRECALL") and not used.arg):
                return False
    return function or not any(_READERS_OF_A_MODULE & _global_reads(inner) for inner in _inner(code))


def _inner(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner(constant)


def _global_reads(code: CodeType) -> set[str]:
    return {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    }
