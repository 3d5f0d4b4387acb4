"""Finds in which loops of the script the steps are made, and whether a call is outside of them. It reads the bytecode, once per place.

If a rank waits in a call that the other ranks do not make, this tells whether the rank has finished its training loop.
"""

import dis
import itertools
from _thread import get_ident
from types import CodeType, FrameType

_FRAMES = 64
# Execution never continues after these. A generator does continue after its RETURN_GENERATOR.
_RETURN = ("RETURN_VALUE", "RETURN_CONST")
_LEAVE = (*_RETURN, "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT")
# The backward jump of an `await` or a `yield from`.
_WAITS = "NO_INTERRUPT"

# The id of a loop's code object, and the offset of the loop's first instruction.
Loop = tuple[int, int]


class Loops:
    """The loops of the code objects seen so far. The code objects are kept alive, because their ids are keys."""

    __slots__ = ("_known", "_of_steps", "_thread")

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, dict[int, int], frozenset[int]]] = {}
        self._of_steps: set[Loop] = set()
        self._thread = 0

    def step_made_at(self, frame: FrameType | None) -> None:
        """An optimizer stepped below this frame: the loops around the frame are the training loops."""
        left, self._thread = _FRAMES, get_ident()
        while frame is not None and left:
            self._of_steps.update(self._around(frame) or ())
            frame, left = frame.f_back, left - 1

    def is_outside(self, frame: FrameType | None) -> bool | None:
        """Whether this frame of the calling thread runs outside of all training loops.

        None before the first step, in another thread than that of the steps, or if it cannot be known.
        """
        if not self._of_steps or get_ident() != self._thread:
            return None
        left = _FRAMES
        while frame is not None and left:
            around = self._around(frame)
            if around is None:
                return None
            if not self._of_steps.isdisjoint(around):
                return False
            frame, left = frame.f_back, left - 1
        return True

    def _around(self, frame: FrameType) -> tuple[Loop, ...] | None:
        """The loops around a frame's current instruction, the outermost first; None in an exception handler."""
        code, at = frame.f_code, frame.f_lasti
        known = self._known.get(id(code))
        if known is None:
            known = self._known[id(code)] = (code, *loops_of(code))
        _, ends, handlers = known
        if at in handlers:
            return None
        return tuple((id(code), start) for start in sorted(ends) if start <= at <= ends[start])


def loops_of(code: CodeType) -> tuple[dict[int, int], frozenset[int]]:
    """The first offset of each loop of a code object -> its last offset; and the instructions that only an exception reaches.

    A handler is placed after the rest of its function, wherever it is in the source. So its place does not tell its loop.
    """
    instructions, following = next_instructions(code)
    reached: set[int] = set()
    ends: dict[int, int] = {}
    waiting = [0]
    by_offset = {instruction.offset: instruction for instruction in instructions}
    while waiting:
        offset = waiting.pop()
        if offset in reached:
            continue
        reached.add(offset)
        waiting.extend(following[offset])
        instruction = by_offset[offset]
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            target = instruction.argval
            if instruction.opname.startswith("FOR_ITER"):
                # This instruction jumps behind its loop when the iterator is exhausted.
                ends[offset] = max(ends.get(offset, 0), target - 1)
            elif target <= offset and _WAITS not in instruction.opname:
                ends[target] = max(ends.get(target, 0), offset)
    # A frame may be at the cache entries behind an instruction.
    behind = itertools.pairwise([*by_offset, len(code.co_code)])
    return ends, frozenset(at for offset, end in behind if offset not in reached for at in range(offset, end, 2))


def next_instructions(code: CodeType) -> tuple[list[dis.Instruction], dict[int, list[int]]]:
    """The instructions of a code object, and the offset of each -> the offsets of those that may be executed next, exceptions aside."""
    instructions = list(dis.get_instructions(code))
    following: dict[int, list[int]] = {instruction.offset: [] for instruction in instructions}
    for one, other in itertools.pairwise(instructions):
        if not one.opname.startswith(_LEAVE):
            following[one.offset].append(other.offset)
    for one in instructions:
        if (one.opcode in dis.hasjrel or one.opcode in dis.hasjabs) and one.argval in following:
            following[one.offset].append(one.argval)
    return instructions, following
