"""What holds for the tuner and for a renewed module: one function a case, run on both ranks of one gloo group.

python tuner_cases.py DIRECTORY      runs all cases as one rank, and writes what failed to DIRECTORY/<rank>.json
"""

import json
import marshal
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paceline.parts.comm.auto import tuner as tuners
from paceline.parts.comm.auto.prediction import PLAIN, PredictedChoice
from paceline.parts.comm.auto.rebuild_reducer import may_change_buckets, renew, why_fixed
from paceline.parts.comm.auto.tuner import tune
from paceline.parts.comm.auto.tuning_policy import Decision, TuningPhase
from paceline.parts.comm.ddp.attach import attach, detach

MIB = 1 << 20
CASES = {}
CAPS = {"bucket_cap_mb": 1}


def case(function):
    CASES[function.__name__] = function
    return function


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])


class Training:
    """A model under DDP, stepped with inputs that are the same for the same step of any training."""

    def __init__(self, **options):
        self.ddp = DistributedDataParallel(model(), **options)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05, momentum=0.9)
        self.count = 0

    def step(self, times=1, accumulate=False):
        for _ in range(times):
            draw = torch.Generator().manual_seed(2 * self.count + dist.get_rank())
            if accumulate:
                with self.ddp.no_sync():
                    self._backward(draw)
            self._backward(draw)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.count += 1

    def _backward(self, draw):
        self.ddp(torch.randn(4, 256, generator=draw)).pow(2).mean().backward()

    def weights(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.ddp.parameters()])


def hook_of(ddp):
    return ddp.logger._get_ddp_logging_data().strs_map.get("comm_hook", "")


class Scripted:
    """Stands for a TuningPolicy: says what it was given to say, one thing at each look."""

    warm_up_steps = 2

    def __init__(self, *choices):
        self.phase, self.left = TuningPhase.PLAIN, list(choices)

    def judge(self, measured):
        strategy, mib = self.left.pop(0)
        self.phase = TuningPhase.TRIAL if self.left else TuningPhase.OVER
        choice = (
            None
            if strategy is None
            else PredictedChoice(strategy=strategy, bucket_cap_bytes=int(mib * MIB), step_seconds=1.0)
        )
        return Decision(choice=choice, text=f"now {strategy}")


class SecondsPerStep:
    """A clock by which a step takes six seconds: two of them are enough for a look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 6.0
        return self.now


def scripted(training, *choices, said=None, **options):
    tuner = tune(
        training.ddp, host_key="here", say=(said if said is not None else []).append, clock=SecondsPerStep(), **options
    )
    tuner.policy = Scripted(*choices)
    return tuner


def until(tuner, training, over=True, most=60, **options):
    for _ in range(most):
        if tuner.is_over == over:
            return
        training.step(**options)
    raise AssertionError("never came to an end")


@case
def a_renewed_module_trains_bit_for_bit_as_before():
    for options in (
        {}, CAPS, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True},
        {"static_graph": True, "gradient_as_bucket_view": True},
    ):  # fmt: skip
        plain, renewed = Training(**options), Training(**options)
        plain.step(9)
        renewed.step(3)
        renew(renewed.ddp, bucket_cap_bytes=MIB // 2)
        renewed.step(3)
        attach(renewed.ddp, "direct", host_key="here")
        renewed.step(2)
        renew(renewed.ddp, bucket_cap_bytes=25 * MIB)
        detach(renewed.ddp)
        renewed.step(1)
        assert torch.equal(plain.weights(), renewed.weights()), options
        assert hook_of(renewed.ddp) == "" and renewed.ddp.bucket_bytes_cap == 25 * MIB


@case
def gradients_that_were_accumulated_before_outlive_a_renewal():
    plain, renewed = Training(), Training()
    for training in (plain, renewed):
        training.step(3)
        draw = torch.Generator().manual_seed(5)
        with training.ddp.no_sync():
            training._backward(draw)
        if training is renewed:
            renew(training.ddp, bucket_cap_bytes=MIB)
        training._backward(draw)
        training.optimizer.step()
    assert torch.equal(plain.weights(), renewed.weights())


@case
def a_module_with_a_hook_of_its_own_is_left_alone():
    own = Training()
    own.ddp.register_comm_hook(None, lambda state, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future())
    assert "as its communication hook" in why_fixed(own.ddp)
    said = []
    assert tune(own.ddp, host_key="here", say=said.append) is None
    assert len(said) == 1 and "plain DDP for one model" in said[0]


@case
def buckets_that_the_script_asked_for_are_its_own():
    assert may_change_buckets(Training().ddp)
    assert not may_change_buckets(Training(**CAPS).ddp)


@case
def on_one_host_that_computes_plain_ddp_stays_and_nothing_of_ours_with_it():
    training, plain, said = Training(), Training(), []
    reducer = training.ddp.reducer
    tuner = tune(training.ddp, host_key="here", say=said.append, clock=SecondsPerStep())
    until(tuner, training)
    plain.step(training.count)
    assert tuner.strategy == PLAIN and training.ddp.reducer is reducer and hook_of(training.ddp) == ""
    assert not training.ddp._forward_pre_hooks and not training.ddp._forward_hooks
    assert training.count <= 6
    assert "ranks on one host" in said[0] and said[-1].startswith("--gradients auto: plain DDP: ")
    assert tuners._meetings[training.ddp.process_group]._communicator is None
    assert torch.equal(training.weights(), plain.weights())


@case
def through_every_change_the_training_stays_the_same():
    plain, tuned, said, renewed = Training(), Training(), [], []
    script = (("hierarchical", 0.5), (PLAIN, 25), ("direct", 2), (None, 0))
    tuner = scripted(tuned, *script, said=said, renewed=renewed.append)
    until(tuner, tuned, accumulate=True)
    tuned.step(3, accumulate=True)
    plain.step(tuned.count, accumulate=True)
    assert tuner.strategy == "direct" and hook_of(tuned.ddp) == "paceline:direct" and len(renewed) == 3
    assert torch.equal(plain.weights(), tuned.weights())
    assert [text for text in said if "now" in text] == [f"--gradients auto: now {name}" for name, _ in script]


@case
def after_the_way_back_the_script_may_register_a_hook():
    training, seen = Training(), []
    until(scripted(training, ("direct", 25), (PLAIN, 25)), training)

    def own(state, bucket):
        seen.append(bucket.index())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    training.ddp.register_comm_hook(None, own)
    training.step(2)
    assert seen


@case
def a_hook_that_the_script_registers_meanwhile_ends_it():
    training, said = Training(), []
    tuner = scripted(training, ("direct", 25), (None, 0), said=said)
    training.step(2)
    training.ddp.register_comm_hook(
        None,
        lambda state, bucket: (
            dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])
        ),
    )
    until(tuner, training)
    assert tuner.strategy == PLAIN and "communication hook of its own" in said[-1]


@case
def what_one_rank_cannot_have_no_rank_has():
    plain, training, said = Training(), Training(), []
    nonsense = "direct" if dist.get_rank() == 0 else "nonsense"
    tuner = scripted(training, (nonsense, 25), (None, 0), said=said)
    until(tuner, training)
    training.step(2)
    plain.step(training.count)
    assert tuner.strategy == PLAIN and hook_of(training.ddp) == ""
    assert "a rank could not change" in said[-1]
    assert torch.equal(plain.weights(), training.weights())


@case
def uneven_inputs_end_it_without_a_look():
    training, said = Training(), []
    tuner = scripted(training, ("direct", 25), (None, 0), said=said)
    training.step(1)
    from torch.distributed.algorithms.join import Join

    with Join([training.ddp]):
        training.step(3 + 4 * dist.get_rank())
    assert tuner.is_over and tuner.strategy == PLAIN and "uneven inputs" in said[-1]


@case
def forwards_without_an_exchange_are_no_steps():
    training = Training()
    tuner = scripted(training, ("direct", 25), (None, 0))
    for _ in range(20):
        with torch.no_grad():
            training.ddp(torch.ones(1, 256))
        with training.ddp.no_sync():
            training.ddp(torch.ones(1, 256)).sum().backward()
    assert tuner.policy.phase is TuningPhase.PLAIN and len(tuner.policy.left) == 2
    training.optimizer.zero_grad()
    until(tuner, training)


@case
def a_module_that_is_copied_meanwhile_takes_no_tuner_along():
    import copy
    import pickle

    training = Training()
    tuner = scripted(training, ("direct", 25), (None, 0))
    assert callable(pickle.loads(pickle.dumps(tuner)))
    assert copy.deepcopy(tuner) is not tuner
    until(tuner, training)


@case
def a_compiled_module_is_tuned_like_another():
    training = Training()
    compiled = torch.compile(training.ddp, backend="eager")
    tuner = scripted(training, ("direct", 25), (None, 0))
    for _ in range(20):
        compiled(torch.ones(4, 256)).pow(2).mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
    assert tuner.is_over and tuner.strategy == "direct"


@case
def two_models_of_one_script_are_decided_each_by_itself():
    first, second = Training(), Training()
    tuner_of = {first: scripted(first, ("direct", 25), (None, 0)), second: scripted(second, (None, 0))}
    for _ in range(20):
        first.step()
        second.step()
    assert all(tuner.is_over for tuner in tuner_of.values())
    assert (tuner_of[first].strategy, tuner_of[second].strategy) == ("direct", PLAIN)
    first.step()


def kept_of(training, strategy, mib, phase):
    """What a tuner that has come so far keeps, as another process reads it."""
    tuner = tune(training.ddp, host_key="here")
    state = tuner.state_dict()
    now = {"strategy": strategy, "bucket_cap_bytes": mib * MIB, "step_seconds": 0.5}
    policy = {**state["policy"], "phase": phase.name, "tried": now, "seconds": (1.0, 0.5), "trials": 1}
    over = phase is TuningPhase.OVER
    return marshal.loads(marshal.dumps({"now": now, "is_over": over, "policy": policy}))


@case
def a_choice_of_an_earlier_process_is_taken_without_a_measurement():
    again, said, renewed = Training(), [], []
    kept = kept_of(Training(), "direct", 2, TuningPhase.OVER)
    kept["policy"]["network"]["hosts"] = 7
    groups = dist.new_group()
    again.ddp = DistributedDataParallel(model(), process_group=groups)
    again.optimizer = torch.optim.SGD(again.ddp.parameters(), lr=0.05, momentum=0.9)
    tuner = tune(again.ddp, host_key="here", say=said.append, renewed=renewed.append, kept=kept)
    assert said[0].startswith("--gradients auto: 7 hosts") and tuners._meetings[groups]._communicator is None
    assert said[-1] == "--gradients auto: as before the restart: direct"
    assert (
        tuner.is_over and tuner.strategy == "direct" and hook_of(again.ddp) == "paceline:direct" and len(renewed) == 1
    )
    assert not again.ddp._forward_pre_hooks and tuner.state_dict() == kept
    plain = Training()
    plain.step(4)
    again.step(4)
    assert torch.equal(plain.weights(), again.weights())


@case
def a_trial_of_an_earlier_process_is_measured_again_and_then_judged():
    again, said = Training(), []
    kept = kept_of(Training(), "direct", 25, TuningPhase.TRIAL)
    tuner = tune(again.ddp, host_key="here", say=said.append, clock=SecondsPerStep(), kept=kept)
    assert not tuner.is_over and hook_of(again.ddp) == "paceline:direct" and tuner.policy.phase is TuningPhase.TRIAL
    # A step takes longer than plain DDP took before the restart.
    until(tuner, again)
    assert tuner.strategy == PLAIN and hook_of(again.ddp) == "" and "plain DDP again" in said[-1]
    plain = Training()
    plain.step(again.count)
    assert torch.equal(plain.weights(), again.weights())


def main(directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for name, function in CASES.items():
        try:
            function()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
        # After a case that failed on one rank alone the others are somewhere else.
        dist.barrier()
        Path(directory, f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
