"""`auto`: measures plain DDP, tries strategies that are predicted to be clearly faster, and drops those that are not. See `TuningPolicy`.

Until a strategy is tried, the module is as torch made it. If plain DDP stays, nothing of paceline is left in it, not even a Python hook.
Links are measured once for each process group, when its first module is made. Steps are measured from then on, from one `forward` that is
followed by an exchange to the next. All ranks compare their times after the same steps, and decide alike.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from ..ddp.attach import attach, detach
from ..transports.communicator import Communicator, open_channel
from ..transports.lanes import close_lanes
from .network_probe import agree, measure_network
from .prediction import PLAIN, MeasuredNetwork, PredictedChoice, StepProfile, candidates
from .rebuild_reducer import may_change_buckets, renew, why_fixed
from .tuning_policy import LOOKS, PhaseTiming, TuningPhase, TuningPolicy, is_enough, typical_seconds

Say = Callable[[str], None]
_UNKNOWN = -1.0


def tune(
    ddp: Any,
    *,
    host_key: str,
    allow_lossy: bool = False,
    say: Say = str,  # type: ignore[assignment]
    renewed: Callable[[Any], None] = lambda ddp: None,
    clock: Callable[[], float] = time.monotonic,
    kept: Mapping[str, Any] | None = None,
) -> Tuner | None:
    """Choose, by measuring, how a module exchanges its gradients. Every rank calls it for the same modules in the same order.

    `say` receives the measured links, each attempt, its prediction and its result, in the same words on every rank. `renewed`
    is called whenever the module has a new reducer. `kept`: `state_dict` of the tuner of this module in an earlier process; the links
    are not measured again then. None: the module stays as it is, and `say` received the reason.
    """
    group = ddp.process_group
    if group.size() == 1:
        return None
    reason = why_fixed(ddp) or _why_torchs(ddp)
    if reason is not None:
        say(f"--gradients auto: plain DDP for one model: {reason}")
        return None
    if group not in _meetings:
        network = MeasuredNetwork(**kept["policy"]["network"]) if kept is not None else None
        _meetings[group] = _Meeting(group, host_key, network)
        say(f"--gradients auto: {described(_meetings[group].network)}")
    tuner = _tuners[ddp] = Tuner(
        ddp, _meetings[group], host_key=host_key, allow_lossy=allow_lossy, say=say, renewed=renewed, clock=clock
    )
    if kept is not None:
        tuner.load_state_dict(ddp, kept)
    return tuner


def tuner_of(ddp: Any) -> Tuner | None:
    """The tuner that chooses, or has chosen, how a module exchanges its gradients."""
    return _tuners.get(ddp)


class Tuner:
    """The measurements and the changes of one module, until the decision. It is called before each `forward` of the module."""

    def __init__(
        self,
        ddp: Any,
        meeting: _Meeting,
        *,
        host_key: str,
        allow_lossy: bool,
        say: Say,
        renewed: Callable[[Any], None],
        clock: Callable[[], float],
    ) -> None:
        self._meeting, self._host_key, self._say, self._renewed, self._clock = meeting, host_key, say, renewed, clock
        training = _training(ddp)
        self._now = PredictedChoice(strategy=PLAIN, bucket_cap_bytes=training.bucket_cap_bytes, step_seconds=0.0)
        strategies = candidates(meeting.network, allow_lossy=allow_lossy)
        self.policy = TuningPolicy(training, meeting.network, strategies)
        self._forwards, self._began = 0, 0.0
        self._restart()
        meeting.join()
        self._handle = ddp.register_forward_pre_hook(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that is copied or saved whole meanwhile takes no tuner along.
        return (_Nothing, ())

    def state_dict(self) -> dict[str, Any]:
        """How the module exchanges now, and what later decisions depend on, as plain values. Call it between two steps."""
        return {"now": asdict(self._now), "is_over": self.is_over, "policy": self.policy.state_dict()}

    def load_state_dict(self, ddp: Any, state: Mapping[str, Any]) -> None:
        """Exchange as the module of an earlier process did, before the first step; measure the steps of its phase again.

        Every rank calls it. What a strategy keeps between steps is not in here.
        """
        self.policy.load_state_dict(state["policy"])
        now = PredictedChoice(**state["now"])
        if (now.strategy, now.bucket_cap_bytes) != (self._now.strategy, self._now.bucket_cap_bytes):
            self._exchange_by(ddp, now)
        self._now = now
        self._restart()
        if state["is_over"]:
            self._end(f"as before the restart: {now.strategy}")

    @property
    def is_over(self) -> bool:
        """Whether the decision is made and the tuner is removed from the module."""
        return self._handle is None

    @property
    def strategy(self) -> str:
        """The strategy by which the module exchanges now."""
        return self._now.strategy

    # DDP has loaded what this needs; without it torch.compile would take every exchange in here apart.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, ddp: Any, _: Any) -> None:
        """Called before a forward: a step may be over."""
        now = self._clock()
        if not torch.is_grad_enabled() or not ddp.require_backward_grad_sync:
            return
        if ddp._join_config.enable:
            # Ranks may run out of batches now, so no further look finds all of them.
            self._end("uneven inputs: nothing further is measured")
            return
        self._forwards += 1
        if self._forwards > 1 + self.policy.warm_up_steps:
            self._steps.append(now - self._began)
            if len(self._steps) in LOOKS:
                try:
                    self._look(ddp)
                except RuntimeError as error:
                    # A rank is gone, most likely: DDP's own exchange says so next, in the words that a script may wait for.
                    self._end(f"no further look: {error}")
                    return
        self._began = self._clock()

    def _look(self, ddp: Any) -> None:
        """Decide with all ranks whether there are enough steps, and what follows from them."""
        self._note_exposure(ddp)
        backward, exposed = (sorted(values)[len(values) // 2] if values else _UNKNOWN for values in self._logged)
        mine = [typical_seconds(self._steps), sum(self._steps), backward, exposed, float(why_fixed(ddp) is not None)]
        every = agree(self._meeting.communicator, mine)
        steps, sums, backwards, exposures, fixed = (list(column) for column in zip(*every, strict=True))
        if any(fixed):
            self._end("the script has a communication hook of its own now")
        elif is_enough(len(self._steps), max(sums)):
            measured = PhaseTiming(
                step_seconds=max(steps),
                backward_seconds=max(0.0, *backwards),
                exposed_seconds=min(exposures) if min(exposures) >= 0 else None,
            )
            self._turn(ddp, measured)

    def _turn(self, ddp: Any, measured: PhaseTiming) -> None:
        turn = self.policy.judge(measured)
        if turn.choice is not None and not self._change(ddp, turn.choice):
            self._end("a rank could not change its exchange; all stay with what they have")
        elif self.policy.phase is TuningPhase.OVER:
            self._end(turn.text)
        else:
            if turn.text:
                self._say(f"--gradients auto: {turn.text}")
            self._restart()

    def _change(self, ddp: Any, choice: PredictedChoice) -> bool:
        """Exchange by another strategy, on every rank or on none."""
        before, failed = self._now, False
        try:
            self._exchange_by(ddp, choice)
        except Exception as error:
            failed = True
            self._say(f"--gradients auto: {choice.strategy} cannot be had: {type(error).__name__}: {error}")
        if self._all_well(failed):
            return True
        if not failed:
            self._exchange_by(ddp, before)
        return False

    def _all_well(self, failed: bool) -> bool:
        try:
            return not any(row[0] for row in agree(self._meeting.communicator, [float(failed)]))
        except RuntimeError:
            return False

    def _exchange_by(self, ddp: Any, choice: PredictedChoice) -> None:
        renew(ddp, bucket_cap_bytes=choice.bucket_cap_bytes)
        detach(ddp)
        if choice.strategy != PLAIN:
            attach(ddp, choice.strategy, host_key=self._host_key, say=self._say)
        self._now = choice
        self._renewed(ddp)

    def _note_exposure(self, ddp: Any) -> None:
        """Note DDP's own timers of the latest step that they cover. They cover the first ten steps and some later ones."""
        times = ddp.logger._get_ddp_logging_data().ints_map
        computed, exchanged = times.get("backward_compute_time_end", 0), times.get("backward_comm_time_end", 0)
        began = times.get("backward_compute_time_start", 0)
        if 0 < began < computed and exchanged > 0:
            self._logged[0].append((computed - began) / 1e9)
            self._logged[1].append(max(0, exchanged - computed) / 1e9)

    def _restart(self) -> None:
        self._forwards, self._began = 0, 0.0
        self._steps: list[float] = []
        self._logged: tuple[list[float], list[float]] = ([], [])

    def _end(self, text: str) -> None:
        self._handle.remove()
        self._handle = None
        self._meeting.leave(uses_lanes=self._now.strategy != PLAIN)
        self._say(f"--gradients auto: {text}")


class _Nothing:
    """A copy of a module calls it instead of a tuner."""

    def __call__(self, ddp: Any, _: Any) -> None:
        """Do nothing."""


class _Meeting:
    """State that the tuners of one process group share: the communicator on which ranks agree, and the measurements made on it."""

    def __init__(self, group: dist.ProcessGroup, host_key: str, network: MeasuredNetwork | None) -> None:
        self._group, self._host_key = weakref.ref(group), host_key
        self._users = 0
        self._uses_lanes = False
        self._communicator: Communicator | None = None
        self.network = network or measure_network(self.communicator, plain_is_hierarchical=_is_ours(group))
        atexit.register(self.close)

    @property
    def communicator(self) -> Communicator:
        """The communicator, opened if it is not open; all ranks call this after the same steps."""
        if self._communicator is None:
            group = self._group()
            assert group is not None
            # A store may outlive a group and its communicator: no name is used twice.
            number = _opened[group.group_name] = _opened.get(group.group_name, 0) + 1
            self._communicator = open_channel(group, f"auto/{number}", host_key=self._host_key)
        return self._communicator

    def join(self) -> None:
        """Count one more module."""
        self._users += 1

    def leave(self, *, uses_lanes: bool) -> None:
        """One module is decided. After the last one the communicator is closed, and the lanes too if no module uses them."""
        self._users -= 1
        self._uses_lanes = self._uses_lanes or uses_lanes
        group = self._group()
        if self._users == 0:
            self.close()
            if not self._uses_lanes and group is not None:
                close_lanes(group)

    def close(self) -> None:
        """Close the communicator; a second call does nothing."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None


_opened: dict[str, int] = {}
_meetings: weakref.WeakKeyDictionary[dist.ProcessGroup, _Meeting] = weakref.WeakKeyDictionary()
_tuners: weakref.WeakKeyDictionary[Any, Tuner] = weakref.WeakKeyDictionary()


def described(network: MeasuredNetwork) -> str:
    """The measurements, as text for the user."""
    if network.hosts == 1:
        return f"{network.ranks} ranks on one host"
    mbit = network.bytes_per_second * 8 / 1e6
    rate = f"{mbit:.0f} Mbit/s" if mbit < 2000 else f"{mbit / 1e3:.1f} Gbit/s"
    ends = (
        ""
        if network.slowest is None or network.hosts == 2
        else f", worst from rank {network.slowest[0]} to {network.slowest[1]}"
    )
    return f"{network.hosts} hosts, {network.hop_seconds * 1e3:.2g} ms and {rate} between them{ends}"


def _training(ddp: Any) -> StepProfile:
    parameters = [parameter for parameter in ddp._module_parameters if parameter.requires_grad]
    return StepProfile(
        # Gradients become ready about in the opposite order of use.
        gradient_bytes=tuple(parameter.numel() * parameter.element_size() for parameter in reversed(parameters)),
        step_seconds=0.0,
        backward_seconds=0.0,
        exposed_seconds=None,
        bucket_cap_bytes=ddp.bucket_bytes_cap,
        may_change_buckets=may_change_buckets(ddp),
    )


def _why_torchs(ddp: Any) -> str | None:
    """Why no strategy here can be faster than plain DDP."""
    if any(parameter.device.type != "cpu" for parameter in ddp._module_parameters):
        return "its gradients are on a device; NCCL knows that network better"
    if getattr(ddp, "mixed_precision", None) is not None:
        return "it uses DDP's own mixed precision"
    return None


def _is_ours(group: dist.ProcessGroup) -> bool:
    return dist.get_backend(group) in ("paceline", "smddp")
