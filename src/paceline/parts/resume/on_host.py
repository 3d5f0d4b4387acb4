"""What resume does on a host: it holds the state buffers of the ranks over all attempts, and has a process save what is in them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.contract.entry import is_python
from paceline.facts import Placement, ProgramKind
from paceline.launch.agent.fork_server_client import NOT_PYTHON, forkable, memory_left_bytes
from paceline.part import Host, HostPart
from paceline.parts.resume.agent.saved_job import facts_of, is_container, is_copied, place_of
from paceline.parts.resume.agent.saver_client import StateSaver
from paceline.parts.resume.agent.saver_process import COPIED_PAUSE_SECONDS, PAUSE_SECONDS, SaverAnswer, SaverOrder
from paceline.parts.resume.agent.state_holder import StateHolder
from paceline.parts.resume.recording.saved_state import command_to_go_on
from paceline.parts.resume.resume_from import LoadedState
from paceline.recording.layout import RunDirectory

FIRST_KEPT_SECONDS = 0.2
REMOVED_SECONDS = 30.0
FAILING_SECONDS = 5.0
# The program that runs a script so that its loops go on where they were.
RUNNER = Path(__file__).resolve().with_name("worker") / "run_script.py"


def resumable_argv(argv: Sequence[str], python: str) -> Sequence[str]:
    """The argv of a new process that runs this program so that it can resume; `argv` unchanged if it is no script or module of Python.

    Holds:   resumable_argv(["sh", "train.sh"], "p") == ["sh", "train.sh"]
    """
    if forkable(argv, python) is None:
        return argv
    return [*argv[:2], str(RUNNER), *argv[2:]]


@dataclass(slots=True)
class ResumeOnHost(HostPart):
    """The state buffers of one host's ranks, and the process that saves them."""

    host: Host
    """The host."""
    _states: StateHolder | None = None
    # The buffers were made, or refused.
    _asked: bool = False
    _saver: StateSaver | None = None
    # Starts the saver; None: no attempt with state has started its ranks yet.
    _saving: asyncio.Task[None] | None = None
    _hash_seed: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.host.begins, LoadedState):
            self._states, self._asked = self.host.begins.states, True

    def kept_state(
        self, placements: Sequence[Placement], resume_step: int | None, hash_seed: int | None, *, keeps_state: bool
    ) -> StateHolder | None:
        """The buffers are made for the first attempt.

        Raises:  OSError: memory cannot be given back; LookupError: a rank has not kept `resume_step`
        """
        host, ranks = self.host, self.host.job.ranks_per_host
        if not keeps_state:
            self._give_up()
        if host.job.resume and not self._asked:
            self._asked = True
            refused = self._make_states()
            if refused and placements[0].host == host.name:
                host.say(f"--resume is off: {refused}")
        if self._states is None:
            return None
        self._hash_seed = hash_seed
        sharing = len(placements) if host.shares_machine else 1
        room_bytes = (memory_left_bytes() + self._states.held_bytes()) // (2 * ranks * sharing)
        self._states.begin_attempt(resume_step, room_bytes)
        return self._states

    def argv(self, argv: Sequence[str]) -> Sequence[str]:
        return argv if self._states is None else resumable_argv(argv, self.host.python)

    def ranks_started(self) -> None:
        if self._states is not None and self._saving is None and self.host.job.max_hosts == 1:
            self._saving = asyncio.get_running_loop().create_task(self._start_saver(self._states))

    def end_is_near(self) -> None:
        if self._saver is not None:
            self._saver.hasten()

    async def ended(self, exit_code: int) -> None:
        """Save the newest step once more; of a job that has ended well, remove what was saved."""
        if self._saving is not None:
            self._saving.cancel()
        await self._end_saver(well=exit_code == 0)
        if self._states is not None:
            self._states.close()

    # ------------------------------------------------------------------------------------------------------- buffers

    def _make_states(self) -> str:
        """Make the buffers. Returns why the ranks of this job cannot resume; "": they can."""
        job = self.host.job
        if job.max_hosts > 1 and not self.host.shares_machine:
            return "a job of several machines cannot resume yet"
        if not is_python(job.program) or job.program.kind is ProgramKind.RUN_PATH:
            return NOT_PYTHON
        # Python reads the file in it by itself, so nothing can be put into its loops.
        if is_container(job):
            return "the program is a directory or a zip file; give its __main__.py"
        try:
            self._states = StateHolder(job.ranks_per_host)
        except OSError as error:
            return f"{self.host.name} has no memory that outlives its ranks ({error.strerror})"
        return ""

    def _give_up(self) -> None:
        if self._states is None:
            return
        if self._saver is not None:
            self._close(self._saver)
            self._saver = None
        self._states.close()
        self._states = None

    # --------------------------------------------------------------------------------------------------------- saver

    async def _start_saver(self, states: StateHolder) -> None:
        """Start the process that saves the state, once there is one to be saved."""
        while states.kept_in_common() is None:
            await asyncio.sleep(FIRST_KEPT_SECONDS)
            if states is not self._states:
                return
        self._saver = self._new_saver(states)

    def _new_saver(self, states: StateHolder) -> StateSaver | None:
        job, directory = self.host.job, RunDirectory(self.host.directory)
        try:
            seed = self.host.environ.get("PYTHONHASHSEED", str(self._hash_seed))
            order = SaverOrder(
                tuple(states.descriptor(rank) for rank in range(job.ranks_per_host)),
                place_of(job, directory),
                facts_of(job, self.host.run_id, seed),
                COPIED_PAUSE_SECONDS if is_copied(job) else PAUSE_SECONDS,
            )
            saver = StateSaver(order, self.host.environ, self._tell_of_save)
        except OSError as error:
            self._tell_of_save(SaverAnswer(failed=f"the process that saves it cannot be started ({error.strerror})"))
            return None
        self.host.lasting.add(saver.pid)
        return saver

    def _tell_of_save(self, answer: SaverAnswer) -> None:
        """Tell the user if a save failed, is slower than the grace of a stop, or shares its place with another run."""
        say, grace_seconds = self.host.say, self.host.job.stop_grace_seconds
        if not answer.failed:
            if answer.seconds > grace_seconds:
                text = f"saving the state took {answer.seconds:.0f} s, and a stop gives {grace_seconds:.0f} s (--stop-grace): "
                say(f"{text}a stop may cost the steps since the save before (F06)")
            if answer.other_run:
                text = f"run {answer.other_run} saves its state to the same place as this one, and a resume may find the wrong one"
                say(f"{text}: give each job --checkpoints of its own (F06)")
            return
        left = "no step is saved" if answer.step is None else f"the last saved step is {answer.step}"
        say(f"the state cannot be saved: {answer.failed}; {left}, the training goes on (F06)")

    async def _end_saver(self, *, well: bool) -> None:
        saver, self._saver = self._saver, None
        states = self._states
        if saver is not None and saver.has_left and not well:
            self._close(saver)
            saver = None
        was_started = self._saving is not None
        if saver is None and not well and was_started and states is not None and states.kept_in_common() is not None:
            saver = self._new_saver(states)
        if saver is None:
            return
        # A store that has not answered before keeps no job from its end.
        usual_seconds = REMOVED_SECONDS if well else max(1.0, self.host.job.stop_grace_seconds)
        was_failing = saver.is_failing
        answer = await saver.ask("end" if well else "save", FAILING_SECONDS if was_failing else usual_seconds)
        if well:
            self._tell_of_removal(answer, is_told=was_failing)
        else:
            self._tell_of_last_save(answer)
        self._close(saver)

    def _tell_of_removal(self, answer: SaverAnswer, *, is_told: bool) -> None:
        """`is_told`: a line has said before that the place cannot be reached. If nothing was saved by then, nothing is left there."""
        if not answer.failed or (answer.step is None and is_told):
            return
        step = "what was being saved" if answer.step is None else f"its saved step {answer.step}"
        self.host.say(f"the job has ended well, and {step} could not be removed: {answer.failed} (F06)")

    def _tell_of_last_save(self, answer: SaverAnswer) -> None:
        host = self.host
        if answer.failed:
            host.say(f"the newest state could not be saved: {answer.failed} (F06)")
        if answer.step is not None:
            command = command_to_go_on(host.command, host.run_id)
            when = "before that" if answer.failed else f"in {answer.seconds:.1f} s"
            again = (
                "a further try of this job goes on from it; by hand" if host.job.submission_id else "to go on from it"
            )
            host.say(f"saved step {answer.step} {when}; {again}: {command}")

    def _close(self, saver: StateSaver) -> None:
        saver.close()
        self.host.lasting.discard(saver.pid)
