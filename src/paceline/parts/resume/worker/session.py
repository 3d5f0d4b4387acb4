"""Keeping the training state of this rank, and going on from a kept one.

The state is taken at the head of the training loop: where the loop around the optimizer's step takes its next item, after a step. Only
there has everything that belongs to the step happened: the scheduler, the averages, the counters, the prints. In a new process the script
runs again; its loops pass over what was done (loops.py), iterators of loaders are made where they were (loaders.py), and at the head the
state is put back into the objects that the script has made.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import gc
import importlib
import io
import os
import random
import sys
import threading
import time
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from ....worker import earlier_choice
from ....worker.error_file import users_frame
from ....worker.no_compile import leave_module_alone, left_alone_by_compile, passed_over_by_warnings
from ....worker.rank_recorder import this_rank
from ....worker.signal_handlers import is_of_a_handler
from ..recording.state_buffer import DOCUMENT, STEPS_WITHOUT_HEAD, Keeping, StateCell, packed, unpacked
from . import devices, exchanges, frames, other_ranks, random_state
from .batches import checksum
from .buckets import Buckets
from .files import Files
from .frequency import Frequency
from .insert import compiled, portable
from .kinds import Context
from .loaders import Loaders
from .loops import Loop, RunningLoops
from .object_graph import CannotKeep, CannotPutBack, Capture, Restore
from .sharded_tensors import local
from .shared_memory import fill, put_in_place
from .slots import NoRoom, StateSlots
from .tensors import dtype_of
from .trainers import trainer_around

_TOPIC = "resume"
# What ends a job whose state cannot be put back; the agent knows the reason by StateCell.KEEPING.
EXIT_CODE = 205
# The frames and the bytecode of another Python may be other ones.
_TRIED_PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
# Private functions of torch are replaced here. They were checked on this torch and newer ones.
_OLDEST_TORCH = (2, 4)
_NOT_YET = object()
_MOST_OF_AN_ERROR = 160


class ResumeSession:
    """The state of this process."""

    def __init__(self, descriptor: int) -> None:
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self.slots = StateSlots(descriptor)
        self._cells = self.slots.header.cells
        self.loops = RunningLoops(self)
        self.loaders = Loaders(self)
        self.buckets = Buckets()
        self.files = Files(self)
        self.context = Context(self.loaders)
        self._modules = frames.UsersModules()
        self._every_before = self._cells[StateCell.EVERY]
        # The last step that the processes before may have made; 0: this is not a restart.
        self._again_until = 0
        self._frequency = Frequency(self._cells, self._notice)
        # An optimizer has stepped since the last head.
        self.stepped = False
        # The next batch is to be compared, or its checksum to be kept.
        self.batch_is_due = False
        self.head_is_loop = True
        self._is_on = True
        self._heads = 0
        self._steps_without_head = 0
        # Heads in a row that were inside a loop over a data loader.
        self._heads_in_batches = 0
        # The outermost loop around the last kept or restored state; None: no loop was around it.
        self._outermost: object = _NOT_YET
        self._slot = 0
        self._expected_batch: int | None = None
        self._plan: dict[str, Any] | None = None
        self._optimizers: list[weakref.ref[Any]] = []
        self._schedulers: list[weakref.ref[Any]] = []
        # Random numbers with which this process began, by the module that has them.
        self._began: dict[str, Any] = {}
        self._began_with = b""
        # Ids of optimizers and schedulers that something of a library holds.
        self._held_elsewhere: set[int] = set()
        self._gradients_matter: bool | None = None
        self._rank, self._ranks = other_ranks.own_rank()
        # Of a saved state: the number of ranks it is of, if that is another one.
        self._ranks_then: int | None = None
        # The saved state is that of another rank.
        self._is_new_rank = False
        # The variables as they were before the training changed them.
        self._first = b""

    # --------------------------------------------------------------------------------------------------- beginning

    def begin(self) -> None:
        """Watch torch, which has been imported, and prepare to go on from a kept state if there is one to go on from."""
        self._cells[StateCell.PID] = self._pid
        if sys.version_info[:2] not in _TRIED_PYTHONS:
            self.refuse("F13", "resume has never been tried with Python {}.{}".format(*sys.version_info))
            return
        if _version_of_torch() < _OLDEST_TORCH:
            self.refuse("F13", f"resume has never been tried with torch {sys.modules['torch'].__version__}")
            return
        step = self._cells[StateCell.RESUME_STEP]
        slot = self.slots.header.slot_of(step) if step else None
        if step:
            plain = self.slots.header.plain(slot) if slot is not None else None
            if plain is None:
                self._cannot_begin(CannotPutBack(f"the kept state of step {step} is damaged (F04)"))
            self._plan = dict(zip(DOCUMENT, unpacked(plain), strict=True))
            self._plan["slot"] = slot
            self._heads = step
            self._again_until = step + max(1, self._every_before)
            self.head_is_loop = self._plan["head_is_loop"]
            self.loops.ahead = list(self._plan["cursors"])
            rank_then, ranks_then = self._plan["rank"]
            self._ranks_then = None if ranks_then == self._ranks else ranks_then
            self._is_new_rank = rank_then != self._rank
            self._first = self._plan["first"]
            self.loaders.expect(self._plan["loaders"], self._ranks_then)
            self.buckets.expect(self._plan["buckets"], self._plan["exchanges"])
            if self._is_new_rank:
                # Its files would be those of the other rank.
                self.files.expect(([], [], []))
                random_state.begin_for_rank(self._plan["began"], self._rank)
            else:
                self.files.expect(self._plan["files"])
                self._began = unpacked(self._plan["began"])
            atexit.register(self._was_put_back)
            try:
                self._require_same_sources(self._plan)
            except CannotPutBack as error:
                # Before the script has written anything.
                self._cannot_begin(error)
        self._begin_with_random_numbers()
        self._patch()

    def _was_put_back(self) -> None:
        """The program is over. A state that was not put back has cost what the script wrote."""
        if self._plan is not None and os.getpid() == self._pid:
            self.cannot_put_back(CannotPutBack("the script has ended without reaching its training loop again"))

    def follows(self) -> bool:
        """Whether loops and loaders are followed in this process and thread."""
        return self._is_on and os.getpid() == self._pid and threading.get_ident() == self._thread

    def is_of_rank(self) -> bool:
        """Whether this is the rank's own process, in any of its threads, and its state is kept."""
        return self._is_on and os.getpid() == self._pid

    def makes_steps_again(self) -> bool:
        """Whether this step may have been made before the last restart, as far as the processes of that time came."""
        return self._again_until > 0 and self._plan is None and self._heads <= self._again_until

    def has_other_ranks(self) -> bool:
        """Whether a saved state is to be put back that is of another number of ranks."""
        return self._ranks_then is not None

    def is_training(self) -> bool:
        """Whether a step has been made."""
        return self._heads > 0 or self.stepped

    def is_worker(self) -> bool:
        """Whether this is a child of the rank that was forked while loops were followed."""
        return self._is_on and os.getpid() != self._pid

    def _begin_with_random_numbers(self) -> None:
        torch = sys.modules["torch"]
        if "torch" in self._began:
            torch.set_rng_state(random_state.to_tensor(self._began["torch"]))
            random.setstate(self._began["random"])
        else:
            self._began["torch"] = random_state.of_tensor(torch.get_rng_state())
            self._began["random"] = random.getstate()
        # Its generator is seeded by chance at its import, which torch leaves to the script.
        numpy_random = importlib.import_module("numpy.random") if "numpy" in sys.modules else None
        if numpy_random is not None and "numpy" in self._began:
            random_state.put_numpy(numpy_random, self._began["numpy"])
        elif numpy_random is not None:
            self._began["numpy"] = random_state.of_numpy(numpy_random)
        self._began_with = packed(self._began)

    def _patch(self) -> None:
        torch = sys.modules["torch"]
        from torch.optim.optimizer import register_optimizer_step_post_hook

        # A compiled optimizer calls what follows its step.
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{__package__}."):
                leave_module_alone(module)
        left_alone_by_compile(ResumeSession._after_step)
        register_optimizer_step_post_hook(self._after_step)
        _note_construction(torch.optim.Optimizer, self._optimizers)
        _note_construction(torch.optim.lr_scheduler.LRScheduler, self._schedulers)
        self.files.patch()
        self.loaders.patch(sys.modules["torch.utils.data.dataloader"], sys.modules["torch.utils.data._utils.fetch"])
        distributed = sys.modules.get("torch.nn.parallel.distributed")
        if distributed is not None:
            self.buckets.patch(distributed)
            earlier_choice.of_model = self.buckets.chosen

    # ----------------------------------------------------------------------------------------------- head of the loop

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.follows():
            if self.is_of_rank():
                self.refuse("F11", f"a thread of the script trains ({frames.users_place(sys._getframe(1))})")
            return
        if not self._heads:
            self._steps_without_head += 1
            if self._steps_without_head > STEPS_WITHOUT_HEAD:
                self.refuse("F11", _without_a_loop(sys._getframe(1)))
                return
        # A loop may have been left by a break after its last step.
        if not self.stepped or not self.loops.is_noted:
            self.stepped = True
            self.loops.step_made(sys._getframe(1))

    def before_item(self, loop: Loop, frame: FrameType) -> None:
        """A followed loop takes its next item after a step."""
        if self.follows() and self._plan is None and self.loops.is_head(loop, frame):
            self._head(frame, True)

    def before_batch(self, frame: FrameType | None) -> None:
        """The script takes a batch from a loader by itself, in no loop that is followed."""
        users = users_frame(frame)
        if users is None or not frames.is_in_call(users):
            return
        if self._plan is not None:
            if not self.loops.ahead and not self.head_is_loop and self._plan["head_line"] == frames.place_of(users):
                self.put_back(users)
        elif self.stepped and not any(loop.steps_here for loop in self.loops.around(users)):
            self._head(users, False)

    def _head(self, frame: FrameType, is_loop: bool) -> None:
        self.stepped = False
        self._heads += 1
        self._cells[StateCell.STEP_COUNT] = self._heads
        self._cells[StateCell.STEP_NS] = time.time_ns()
        began_ns = time.monotonic_ns()
        try:
            models = self.buckets.models()
            steps_between = exchanges.steps_between(models)
            self._frequency.keep_at_most_every(steps_between)
            if not exchanges.are_even(models):
                return
            if not self._frequency.is_due(self._heads // steps_between, began_ns) or not self.buckets.are_settled():
                return
            if devices.wait():
                # The wait for the device does not count as time spent on keeping state.
                began_ns = time.monotonic_ns()
            self._keep(frame, is_loop)
        except (CannotKeep, NoRoom) as error:
            self.refuse("F13", str(error))
        except Exception as error:
            if is_of_a_handler(error):
                raise
            self.refuse("F13", _short(error))
            this_rank.note_failure(error, "resume")
        self._frequency.kept(began_ns, time.monotonic_ns())

    def _keep(self, frame: FrameType, is_loop: bool) -> None:
        chain = self.loops.around(frame)
        _require_items_can_be_passed_over(chain)
        if self._is_in_a_batch(chain):
            return
        outermost = _outermost(chain)
        self.context.is_beginning = outermost is not self._outermost
        self._outermost = outermost
        capture = Capture(self.context)
        kept_frames, modules = self._captured(capture, frame)
        others = [[capture.value(one) for one in self._unnamed(kind, capture)] for kind in self._known_objects()]
        extra = [capture.value(one) for one in _extra()]
        gradients = self._gradients(capture)
        kept_exchanges = exchanges.kept(capture, self.buckets.models())
        self._first = self._first or packed((kept_frames, modules, capture.nodes))
        document = (
            [loop.cursor() for loop in chain],
            is_loop,
            frames.place_of(frame),
            kept_frames,
            modules,
            others,
            self.loaders.kept(),
            self.buckets.kept(),
            random_state.kept(),
            gradients,
            self._began_with,
            capture.nodes,
            capture.described,
            self.files.kept(),
            extra,
            (sys.version.split()[0], str(sys.modules["torch"].__version__)),
            _sources(),
            (self._rank, self._ranks),
            self._first,
            kept_exchanges,
        )
        _flush_output()
        self._slot = self.slots.write(self._heads, capture.tensors, capture.described, packed(document))
        self._cells[StateCell.KEEPING] = Keeping.KEPT
        if self._is_on:
            self.batch_is_due = True
        else:
            # Another thread has refused meanwhile.
            self.slots.forget()
            self._cells[StateCell.KEEPING] = Keeping.REFUSED

    def _captured(self, capture: Capture, frame: FrameType) -> tuple[list[Any], dict[str, Any]]:
        """The variables of the user's frames and modules."""
        stack = frames.users_frames(frame)
        kept_frames = [
            (frames.name_of(one), capture.variables(one.f_locals, frames.live_names_of(one)))
            for one in stack
            if one.f_code.co_name != "<module>"
        ]
        live_of_main = next((frames.live_names_of(one) for one in stack if one.f_code.co_name == "<module>"), None)
        modules = {
            name: capture.variables(frames.variables_of(module), live_of_main if name == "__main__" else None)
            for name, module in self._modules.items()
        }
        return kept_frames, modules

    def _is_in_a_batch(self, chain: list[Loop]) -> bool:
        """Whether a loop around the head goes over a data loader: its batch would be passed over, or be read with other random numbers.

        Raises:  CannotKeep: that does not change. A loop that makes steps of its own later is the head from then on.
        """
        around = next((loop for loop in chain[:-1] if loop.over_loader), None)
        self._heads_in_batches = self._heads_in_batches + 1 if around is not None else 0
        if around is not None and self._heads_in_batches > STEPS_WITHOUT_HEAD:
            place = f"{around.place[0]}:{around.place[2]}"
            raise CannotKeep(
                f"the training loop is inside a loop over a data loader ({place}), whose batch is not kept"
            )
        return around is not None

    def _unnamed(self, kind: list[Any], capture: Capture) -> list[Any]:
        """Optimizers or schedulers that no variable leads to."""
        found = [one for one in kind if not capture.has(one)]
        if all(id(one) in self._held_elsewhere for one in found):
            return found
        # One of an earlier model may only wait for the garbage collector.
        references = [weakref.ref(one) for one in found]
        found.clear()
        kind.clear()
        gc.collect()
        found = [one for reference in references if (one := reference()) is not None]
        self._held_elsewhere.update(id(one) for one in found)
        return found

    def _known_objects(self) -> list[list[Any]]:
        return [
            [one for found in kind if (one := found()) is not None] for kind in (self._optimizers, self._schedulers)
        ]

    def _gradients(self, capture: Capture) -> list[Any]:
        """For each parameter among the tensors: its number, and the number of its gradient or None. Without one it is not listed.

        One that is frozen may have a gradient of before: an optimizer goes on to step with it, by its momentum.
        """
        parameters = [
            (number, tensor.grad)
            for number, tensor in enumerate(capture.tensors)
            if tensor.is_leaf and tensor.grad is not None
        ]
        parameters += [
            (number, local(tensor.grad))
            for number, tensor in capture.sharded
            if number is not None and tensor.is_leaf and tensor.grad is not None
        ]
        if self._gradients_matter is False:
            return [(number, None) for number, _ in parameters]
        if self._gradients_matter is None:
            self._watch_next_backward([gradient for _, gradient in parameters])
        found = []
        for number, gradient in parameters:
            if gradient.layout != sys.modules["torch"].strided:
                raise CannotKeep("a gradient is sparse")
            found.append((number, capture.copied(gradient, dtype_of(gradient), tuple(gradient.shape))))
        return found

    def _watch_next_backward(self, gradients: list[Any]) -> None:
        """See whether the gradients that were there at a head are still there at the next backward pass: most scripts set them to zero."""
        torch = sys.modules["torch"]
        optimizers = self._known_objects()[0]
        autograd, name = torch.autograd, "_engine_run_backward"
        own = getattr(autograd, name, None)
        if own is None or not gradients:
            return

        def first_call(*args: Any, **kwargs: Any) -> Any:
            if vars(autograd).get(name) is first_call:
                setattr(autograd, name, own)
            parameters = (
                parameter for one in optimizers for group in one.param_groups for parameter in group["params"]
            )
            self._gradients_matter = any(
                parameter.grad is not None and bool(local(parameter.grad).count_nonzero()) for parameter in parameters
            )
            return own(*args, **kwargs)

        setattr(autograd, name, first_call)

    # ------------------------------------------------------------------------------------------------------ next batch

    def take_batch(self, batch: Any) -> None:
        """The first item after a head: keep its checksum, or compare it with the one that was next before the restart."""
        self.batch_is_due = False
        try:
            found = checksum(batch)
        except Exception as error:
            if is_of_a_handler(error):
                raise
            this_rank.note_failure(error, "resume")
            return
        if self._expected_batch is not None and found is not None and found != self._expected_batch:
            self._cells[StateCell.KEEPING] = Keeping.STOPPED
            self._leave(
                "F03",
                f"the first batch after resuming at step {self._heads} is not the one that was next before: nothing was trained on it",
            )
        self._expected_batch = None
        if found is not None and self._cells[StateCell.STEP_0 + self._slot]:
            self.slots.note_batch(self._slot, found)

    # -------------------------------------------------------------------------------------------------------- put back

    def put_back(self, frame: FrameType) -> None:
        """Put the kept state into the objects that the script has made. `frame`: of the head."""
        plan, self._plan = self._plan, None
        assert plan is not None
        try:
            self._put_back(plan, frame)
        except CannotPutBack as error:
            self.cannot_put_back(error)
        except Exception as error:
            self.cannot_put_back(CannotPutBack(_short(error)))
        self._cells[StateCell.STEP_COUNT] = self._heads
        self._cells[StateCell.RESUMED_NS] = time.time_ns()
        self._cells[StateCell.KEEPING] = Keeping.KEPT
        self.batch_is_due = True

    def _put_back(self, plan: dict[str, Any], frame: FrameType) -> None:
        self._require_same_sources(plan)
        torch = sys.modules["torch"]
        restore = Restore(plan["nodes"], self.context)
        restore.open_files = self.files.open_before
        stack = [one for one in frames.users_frames(frame) if one.f_code.co_name != "<module>"]
        if [frames.name_of(one) for one in stack] != [name for name, _ in plan["frames"]]:
            raise CannotPutBack("the loop is reached through other functions than before")
        if self._ranks_then is not None:
            first = self._variables_now(frame)
            other_ranks.leave_unchanged(plan)
            self._first = first
        found = [
            (one, restore.variables(kept, one.f_locals)) for one, (_, kept) in zip(stack, plan["frames"], strict=True)
        ]
        modules = dict(self._modules.items())
        spaces = [
            (vars(modules[name]), restore.variables(kept, vars(modules[name])))
            for name, kept in plan["modules"].items()
            if name in modules
        ]
        gc.collect()
        for kind, kept_others in zip(self._known_objects(), plan["others"], strict=True):
            self._put_others(restore, kind, kept_others)
        for value, one in zip(plan["extra"], _extra(), strict=True):
            restore.thing(value, one)
        slot = plan["slot"]
        copies = self.slots.read(slot, plan["described"])
        self.buckets.put_back(restore)
        put_in_place(restore.placed)
        with torch.no_grad():
            for tensor, number in restore.copies:
                fill(tensor, copies[number])
            owners = {number: tensor for tensor, number in restore.copies}
            owners |= {number: tensor for tensor, number in restore.sharded if number is not None}
            self._put_gradients(plan["gradients"], owners, copies)
        restore.load_states()
        for one, variables in found:
            frames.set_variables(one, variables)
        for space, variables in spaces:
            space.update(variables)
        self.loaders.put_back()
        self.files.put_back()
        # What it finds from now on was put back or is made in the loop.
        self._outermost = _outermost(self.loops.around(frame))
        self._slot = slot.number
        if self._ranks_then is None:
            self._expected_batch = slot.batch_crc
        if self._is_new_rank:
            random_state.begin_for_rank(plan["random"], self._rank)
        else:
            random_state.put_back(plan["random"])
        if self._ranks_then is not None:
            self._say_other_ranks(self._ranks_then)
            self._ranks_then = None

    def _variables_now(self, frame: FrameType) -> bytes:
        """The variables at the head as plain data: as the script has made them for this number of ranks."""
        capture = Capture(self.context)
        stack, main = self._captured(capture, frame)
        return packed((stack, main, capture.nodes))

    def _say_other_ranks(self, ranks_then: int) -> None:
        if self._rank:
            return
        then, now = self.loaders.dealt[0]
        self._say(
            "F01",
            f"{self._ranks} ranks instead of {ranks_then} from step {self._heads}: global batch {now.batch_size * self._ranks} instead of "
            f"{then.batch_size * ranks_then}, learning rate unchanged, order of the data continued, not bit-identical",
        )

    @staticmethod
    def _put_others(restore: Restore, live: list[Any], kept: list[Any]) -> None:
        """Objects that no variable leads to, in the order in which they were made."""
        there = [one for one in live if not any(one is made for made in restore.made())]
        if len(there) != len(kept):
            raise CannotPutBack(
                f"the script has made {len(there)} optimizers or schedulers that no variable names, and had {len(kept)}"
            )
        for value, one in zip(kept, there, strict=True):
            restore.thing(value, one)

    @staticmethod
    def _put_gradients(kept: list[Any], tensors: dict[int, Any], copies: list[Any]) -> None:
        torch = sys.modules["torch"]
        with_gradient = dict(kept)
        for number, tensor in tensors.items():
            if not tensor.is_leaf:
                continue
            if number not in with_gradient:
                tensor.grad = None
                continue
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
            if with_gradient[number] is not None:
                local(tensor.grad).copy_(copies[with_gradient[number]])

    # --------------------------------------------------------------------------------------------------------- giving up

    def _require_same_sources(self, plan: dict[str, Any]) -> None:
        """The files of the user that were compiled in this process are those with which the state was kept.

        Raises:  CannotPutBack: one was edited meanwhile
        """
        if self._cells[StateCell.OTHER_SOURCES]:
            return
        now = _sources()
        for path, source in plan["sources"].items():
            if now.get(path, source) != source:
                raise CannotPutBack(f"{path} was edited after the job had begun")

    def cannot_put_back(self, error: CannotPutBack) -> NoReturn:
        """End this process: the job starts again without resuming."""
        self._cells[StateCell.KEEPING] = Keeping.REFUSED
        self._leave("F05", f"the kept state cannot be put back: {error}")

    def _cannot_begin(self, error: CannotPutBack) -> NoReturn:
        """End this process before the script has done anything. The agent does not read its notices yet, so they are on stderr too."""
        sys.stderr.write(f"paceline  the kept state cannot be put back: {error} (F05)\n")
        self.cannot_put_back(error)

    def _leave(self, code: str, text: str) -> NoReturn:
        self._say(code, text)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    def refuse(self, code: str, text: str) -> None:
        """Keep nothing more; the training goes on. Before the state is put back it cannot: the script has only repeated its beginning."""
        if self._plan is not None:
            self.cannot_put_back(CannotPutBack(text))
        self._is_on = self.batch_is_due = self.stepped = False
        self.slots.forget()
        self._cells[StateCell.KEEPING] = Keeping.REFUSED
        self._say(code, f"no state is kept, a restart begins from the beginning: {text}")

    def _say(self, code: str, text: str) -> None:
        self._notice(f"{text} ({code})")

    @staticmethod
    def _notice(text: str) -> None:
        this_rank.notice(_TOPIC, text)


def _short(error: Exception) -> str:
    """An error of somebody else's code, so short that the code behind it is shown too."""
    return f"{type(error).__name__}: {error}"[:_MOST_OF_AN_ERROR]


def _outermost(chain: list[Loop]) -> Loop | None:
    return chain[0] if chain else None


def _sources() -> dict[str, int]:
    """Checksums of the user's files that this process has compiled."""
    return {portable(path): source for path, source in compiled.items()}


def _require_items_can_be_passed_over(chain: list[Loop]) -> None:
    """Raises:  CannotKeep: a loop waits for an item that the training makes, and reads it from something other than a generator"""
    for loop in chain[:-1]:
        if loop.is_taking and not loop.over_generator:
            raise CannotKeep(f"the training loop makes the items of another loop ({loop.place[0]}:{loop.place[2]})")


def _without_a_loop(frame: FrameType) -> str:
    """Why there is no head: a Trainer's loop, and how that Trainer resumes; or none that is known."""
    place = frames.users_place(frame)
    trainer = trainer_around(frame)
    if trainer is None:
        return f"no loop of your own files is around the optimizer's step ({place})"
    return f"the training loop is that of {trainer.name} ({place}), which resumes by {trainer.resumes} and --max-restarts 3"


def _version_of_torch() -> tuple[int, ...]:
    """Its first two numbers."""
    numbers = str(sys.modules["torch"].__version__).split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _flush_output() -> None:
    """Let what the script has printed leave this process: no later process prints the lines of a kept step."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # An object of the script's own may do anything at a flush.
        if type(stream) is io.TextIOWrapper:
            with suppress(OSError, ValueError):
                stream.flush()


def _extra() -> list[Any]:
    """What the script has named with paceline.resume.extra."""
    return list(getattr(builtins, "__paceline_extra__", ()))


def _note_construction(owner: Any, found: list[weakref.ref[Any]]) -> None:
    construct = owner.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        found[:] = [one for one in found if one() is not None]
        if all(one() is not self for one in found):
            found.append(weakref.ref(self))

    owner.__init__ = passed_over_by_warnings(__init__)
