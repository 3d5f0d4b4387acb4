"""M12 to M19: ranks that train apart, and ranks that wait for each other."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import DataSampler, GroupCounters, Replica
from paceline.diagnosis.verdict import diagnose
from paceline.findings import Confidence
from paceline.rules import discover

SETTINGS = {"lr": 0.01, "momentum": 0, "betas": [0.9, 0.999], "nesterov": False}
CODES = ("M12", "M13", "M14", "M15")


def mark(rank, step, **fields):
    """A healthy rank after `step` steps: DDP, one exchange a step, one optimizer over six parameters."""
    known = {
        "optimizer": "SGD",
        "settings": (dict(SETTINGS),),
        "held": 6,
        "with_gradient": 6,
        "models": 1,
        "foreign": 0,
    }
    more = {"forwards": min(step, 10), "unexchanged": 0, "groups": 1, "exchanges": 4 + step, "calls": 0}
    return Replica(rank=rank, step=step, **{**known, **more, **fields})


@pytest.fixture
def trained(case):
    """A case whose ranks left these marks: each rank a dict of fields, the same at every step, or a function of the step."""

    def make(*ranks, steps=(1, 16, 64), world_size=None):
        marks = {
            rank: tuple(mark(rank, step, **(fields(step) if callable(fields) else fields)) for step in steps)
            for rank, fields in enumerate(ranks)
        }
        return replace(case(still=False, world_size=world_size or len(ranks)), replicas=marks)

    return make


def test_buffers_of_another_size_are_told_by_what_the_ranks_mark(found, trained):
    (finding,) = found("M09", trained({"buffers": 64}, {"buffers": 96}, {"buffers": 64}))
    assert (finding.ranks, finding.since_step) == ((1,), 1) and "96" in finding.saw[0]
    assert found("M09", trained({"buffers": 64}, {"buffers": 96}))[0].ranks == (0, 1)
    assert found("M09", trained({"buffers": 64}, {})) == found("M09", trained({"buffers": 64}, {"buffers": 64})) == []


def codes_of(found, case):
    return [code for code in CODES if found(code, case)]


@pytest.mark.parametrize(
    "healthy",
    [
        {},
        {"models": 0, "foreign": None, "forwards": None},
        {"exchanges": None},
        {"optimizers": 2, "foreign": 3, "with_gradient": 3},
        {"held": 0, "with_gradient": 0},
        # Inside no_sync DDP logs no forward pass, and the script exchanges the gradients itself.
        lambda step: {"forwards": 0, "calls": 2 * step},
    ],
)
def test_healthy_ranks_are_told_nothing(found, trained, healthy):
    assert codes_of(found, trained(healthy, healthy)) == []


def test_a_schedule_that_is_the_same_on_every_rank_is_no_difference(found, trained):
    def scheduled(step, noise=0.0):
        return {"settings": ({**SETTINGS, "lr": 0.1 / step * (1 + noise)},)}

    assert codes_of(found, trained(scheduled, scheduled)) == []
    assert codes_of(found, trained(scheduled, lambda step: scheduled(step, 1e-12))) == []


ALONE = {"models": 0, "foreign": None, "forwards": None, "unexchanged": None, "groups": 0, "exchanges": 0}


def test_ranks_without_a_process_group_train_alone(found, trained):
    (finding,) = found("M12", trained(ALONE, ALONE))
    assert (finding.ranks, finding.confidence) == ((0, 1), Confidence.LIKELY)
    assert "no process group" in finding.saw[0] and "meant" in finding.next[1]


def test_one_rank_and_ranks_that_exchange_by_other_means_are_not_alone(found, trained):
    assert codes_of(found, trained(ALONE)) == []
    horovod = {**ALONE, "libraries": ("horovod",)}
    assert codes_of(found, trained(horovod, horovod)) == []
    assert codes_of(found, trained(ALONE, ALONE, world_size=3)) == []
    assert codes_of(found, trained(ALONE, ALONE, steps=(1,))) == []


def test_with_a_process_group_nothing_exchanged_is_told_after_a_thousand_steps(found, trained):
    idle = {**ALONE, "groups": 1, "exchanges": 1}
    assert codes_of(found, trained(idle, idle, steps=(1, 16, 64, 256))) == []
    assert codes_of(found, trained(idle, idle, steps=(1, 16, 1024))) == ["M12"]
    assert codes_of(found, trained({**idle, "exchanges": None}, idle, steps=(1, 16, 1024))) == []


def test_a_ddp_model_that_was_never_called(found, trained):
    bypassed = {"forwards": 0, "exchanges": 4}
    (finding,) = found("M12", trained(bypassed, bypassed))
    assert finding.confidence is Confidence.HIGH and "never called" in finding.saw[0]
    # On one rank alone the others would wait for it, and other causes say so.
    assert codes_of(found, trained(bypassed, {})) == []


def slower(step):
    return {"settings": ({**SETTINGS, "lr": 0.01 if step < 16 else 0.001},)}


def test_of_two_ranks_the_one_whose_learning_rate_changed_is_named(found, trained):
    for ranks, odd in (((slower, {}), 0), (({}, slower), 1)):
        (finding,) = found("M13", trained(*ranks))
        assert (finding.ranks, finding.since_step, finding.confidence) == ((odd,), 1, Confidence.HIGH)
        assert "lr 0.001 against 0.01" in finding.saw[0]


def test_settings_that_differ_from_the_first_step_on(found, trained):
    other = {"settings": ({**SETTINGS, "betas": [0.9, 0.95]},)}
    (finding,) = found("M13", trained({}, other))
    assert finding.ranks == (0, 1) and "betas [0.9, 0.95] against [0.9, 0.999]" in finding.saw[0]
    assert found("M13", trained({}, {}, other))[0].ranks == (2,)


def test_ranks_that_train_different_things_may_have_different_settings(found, trained):
    other = {"settings": ({**SETTINGS, "lr": 0.5},), "held": 12, "with_gradient": 12}
    assert codes_of(found, trained({}, other)) == []
    assert codes_of(found, trained({}, {**other, "held": 6, "with_gradient": 6, "optimizer": "Adam"})) == []


def test_an_optimizer_of_a_model_that_was_replaced(found, trained):
    lost = {"with_gradient": 0, "foreign": 6}
    (finding,) = found("M14", trained(lost, lost))
    assert (finding.ranks, finding.confidence) == ((0, 1), Confidence.HIGH)
    without_ddp = {"with_gradient": 0, "foreign": None, "models": 0, "forwards": None}
    assert found("M14", trained(without_ddp, without_ddp))[0].confidence is Confidence.LIKELY
    # Gradients that come later, and parameters of a second optimizer.
    assert found("M14", trained(lost, lost, steps=(1,))) == []
    assert found("M14", trained({**lost, "foreign": 2}, {**lost, "foreign": 2})) == []


def test_parameters_that_were_unfrozen_after_ddp_was_made(found, trained):
    def unfrozen(step):
        return {"unexchanged": 0 if step < 16 else 4, "unexchanged_names": ("0.weight", "0.bias", "2.weight")}

    (finding,) = found("M15", trained(unfrozen, unfrozen))
    assert (finding.ranks, finding.since_step) == ((0, 1), 1)
    assert "0.weight, 0.bias, 2.weight, ..." in finding.saw[0]
    assert found("M15", trained(unfrozen)) == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"foreign": 1}, True),
        ({"foreign": 5, "calls": 3}, True),
        # The whole model is in no DDP model: another cause.
        ({"foreign": 6}, False),
        ({"foreign": 1, "with_gradient": 5}, False),
        ({"foreign": 1, "optimizers": 2}, False),
        ({"foreign": 1, "libraries": ("deepspeed",)}, False),
        ({"foreign": 1, "models": 0, "forwards": None}, False),
        ({"foreign": 1, "calls": None}, False),
    ],
)
def test_parameters_of_no_ddp_model_beside_some_that_are(fields, named, found, trained):
    findings = found("M15", trained(fields, fields))
    assert [(finding.ranks, finding.confidence) for finding in findings] == named * [((0, 1), Confidence.LIKELY)]
    assert found("M15", trained(fields, {})) == []


@pytest.mark.parametrize("own_calls", [lambda step: step, lambda step: step // 4, lambda step: max(0, step - 50)])
@pytest.mark.parametrize("forwards", [1, 4], ids=["", "accumulating"])
def test_parameters_whose_gradients_the_script_exchanges_itself(own_calls, forwards, found, trained):
    """At each step, at each fourth one, or with a sample of DDP's that was not counted yet."""
    marks = lambda step: {"foreign": 1, "calls": step + own_calls(step), "forwards": forwards * step}  # noqa: E731
    assert found("M15", trained(marks, marks)) == []


# ------------------------------------------------------------------------------------------------- waiting for each other


def counters(**entered):
    """Of group "1" and "2": calls entered, of which 12 are over."""
    return tuple(
        GroupCounters(name=name.removeprefix("g"), enqueued=count, completed=12) for name, count in entered.items()
    )


@pytest.fixture
def stands(case, heartbeat, stall):
    """A stall in which nobody is behind; each rank as the fields of its heartbeat."""

    def make(*ranks, late=(), **fields):
        groups = {"1": tuple(range(len(ranks))), "2": tuple(range(len(ranks)))}
        heartbeats = [
            heartbeat(rank, group_ranks=groups, **{"phase": "communication", "groups": (), **of_rank})
            for rank, of_rank in enumerate(ranks)
        ]
        waiting = tuple(rank for rank in range(len(ranks)) if rank not in late)
        still = stall(late=late, waiting=waiting)
        return case(world_size=len(ranks), still=still, heartbeats=heartbeats, **fields)

    return make


IN_1, IN_2 = {"groups": counters(g1=13, g2=12)}, {"groups": counters(g1=12, g2=13)}


def test_two_groups_that_two_ranks_enter_in_crossed_order(found, stands):
    (finding,) = found("M16", stands(IN_1, IN_2))
    assert (
        finding.ranks == (0, 1) and "group 1, for rank 1" in finding.saw[0] and "group 2, for rank 0" in finding.saw[1]
    )
    assert [kept.code for kept in diagnose(stands(IN_1, IN_2), discover("causes")).findings] == ["M16"]


def test_of_three_ranks_the_one_in_the_other_group_is_out_of_step(found, stands):
    assert [finding.ranks for finding in found("M16", stands(IN_1, IN_2, IN_1))] == [(1,)]


def test_ranks_that_wait_in_one_group_or_for_a_late_one_are_in_no_circle(found, stands):
    assert found("M16", stands(IN_1, IN_1)) == []
    outside = {"groups": counters(g1=12, g2=12), "phase": "training"}
    # Late for a third one, say, and each of them waits all the same.
    assert found("M16", stands(IN_1, IN_2, late=(0, 1)))[0].ranks == (0, 1)
    assert found("M16", stands(IN_1, outside)) == []
    # What a rank has entered that could not be asked is unknown.
    assert found("M16", stands(IN_1, {"groups": None})) == []


def test_without_a_flight_recorder_the_calls_from_python_tell_the_circle(found, stands, call):
    def last(**calls):
        return {"calls": {name[1:]: count for name, count in calls.items()}, "last_call": call(13, "all_reduce")}

    (finding,) = found("M16", stands(last(g1=13, g2=12), last(g1=12, g2=13)))
    assert finding.ranks == (0, 1) and "group 1, for rank 1" in finding.saw[0]
    assert found("M16", stands(last(g1=13, g2=12), last(g1=13, g2=12))) == []
    # Two groups have as many calls, and either may be the one.
    assert found("M16", stands(last(g1=13, g2=13), last(g1=12, g2=12), last(g1=13, g2=12))) == []
    at_work = {**last(g1=12, g2=13), "phase": "training"}
    assert found("M16", stands(last(g1=13, g2=12), at_work)) == []


def on_device(*, messages=(), **since_ns):
    """What a device's recorder has of the groups: number 13 of each is not over, and was issued then."""
    return {
        "phase": "training",
        "groups": tuple(
            GroupCounters(
                name=name.removeprefix("g"), enqueued=13, completed=12, recorder="nccl2", open_since_ns=issued_ns
            )
            for name, issued_ns in since_ns.items()
        )
        + ((GroupCounters(name="0", enqueued=4, completed=4, recorder="nccl2", messages=messages),) * bool(messages)),
    }


def test_on_a_device_both_ranks_have_issued_both_and_the_order_tells_the_circle(found, stands):
    first, other = on_device(g1=7, g2=8), on_device(g1=8, g2=7)
    (finding,) = found("M16", stands(first, other))
    assert finding.ranks == (0, 1) and "group 1, for rank 1" in finding.saw[0]
    assert [one.ranks for one in found("M16", stands(first, other, first))] == [(1,)]
    assert found("M16", stands(first, first)) == []
    assert found("M16", stands(first, on_device(g1=8))) == []


def test_messages_on_a_device_that_nobody_sends_are_a_circle(found, stands):
    both = on_device(messages=((1, 0),)), on_device(messages=((0, 1),))
    (finding,) = found("M17", stands(*both))
    assert finding.ranks == (0, 1)
    # The other end has come, or what it has issued is not known.
    assert found("M17", stands(both[0], both[0])) == []
    assert found("M17", stands(both[0], {"groups": None})) == []


@pytest.fixture
def to_peer(call):
    """The fields of a rank that waits in a send or receive."""

    def make(operation, peer):
        return {"last_call": call(0, operation, root=peer, reduce_op=None, shape=None)}

    return make


def test_a_rank_that_waits_for_one_whose_program_has_ended(found, case, heartbeat, exit_of, to_peer):
    lost = exit_of(1, error=("RuntimeError", "Connection closed by peer [127.0.0.1]:2"), after=21.0)

    def ended(**last):
        heartbeats = [heartbeat(0, **to_peer("send", 1)), heartbeat(1, **last)]
        return case(still=False, lasts=False, heartbeats=heartbeats, exits=(exit_of(0, 0), lost))

    (finding,) = found("M17", ended(**to_peer("recv", 0)))
    assert finding.ranks == (0, 1) and finding.confidence is Confidence.LIKELY
    assert finding.saw[0].startswith("rank 1 waits for rank 0 in recv(") and "as many sends" in finding.next[0]
    assert found("M17", ended(**to_peer("recv", 3))) == [] and found("M17", ended()) == []
    kept = diagnose(ended(**to_peer("recv", 0)), discover("causes"))
    assert "M17" in [one.code for one in kept.findings] and not {"M05", "M11", "C01"} & {
        one.code for one in kept.findings
    }


RECEIVES = "/lib/python3/site-packages/torch/distributed/distributed_c10d.py:2700"


def test_two_ranks_that_both_receive(found, stands, to_peer, snapshot):
    both = to_peer("recv", 1), to_peer("recv", 0)
    snapshots = [snapshot(rank, f"{RECEIVES} recv", "/home/me/train.py:60 step") for rank in (0, 1)]
    (finding,) = found("M17", stands(*both, snapshots=snapshots))
    assert (finding.ranks, finding.confidence) == ((0, 1), Confidence.HIGH)
    assert finding.saw[0].startswith("rank 0 waits for rank 1 in recv(float32, peer 1) at ")
    # The newest of several asynchronous ones need not be what it waits for.
    assert found("M17", stands(*both))[0].confidence is Confidence.LIKELY
    # Where others wait for these two it has to be seen.
    assert [each.ranks for each in found("M17", stands(*both, {}, late=(0, 1), snapshots=snapshots))] == [(0, 1)]
    assert found("M17", stands(*both, {}, late=(0, 1))) == []


def test_a_receive_from_a_rank_that_needs_the_receiver_in_a_collective(found, stands, to_peer):
    (finding,) = found("M17", stands({**to_peer("recv", 1), "groups": counters(g1=12)}, {"groups": counters(g1=13)}))
    assert finding.ranks == (0, 1)


def test_a_receive_from_a_rank_that_is_at_work_or_late_is_in_no_circle(found, stands, to_peer):
    assert found("M17", stands(to_peer("recv", 1), {"phase": "training"})) == []
    assert found("M17", stands(to_peer("recv", 1), to_peer("recv", 2), {"phase": "training"})) == []
    assert found("M17", stands(to_peer("recv", 1), to_peer("recv", 0), late=(1,))) == []


# ------------------------------------------------------------------------------------------------------------- samplers


def sampler(rank, turn=1, **fields):
    """The training loader of a rank as its epoch begins, one of two shards, as it should be."""
    known = {"loader": 1, "replicas": 2, "shard": rank, "seed": 0, "shuffle": True, "samples": 100, "epoch": turn - 1}
    before = {"epoch_before": turn - 2, "steps_before": 50} if turn > 1 else {}
    return DataSampler(rank=rank, turn=turn, **{**known, **before, **fields})


@pytest.fixture
def dealt(case):
    return lambda *samplers, world_size=2: replace(case(still=False, world_size=world_size), samplers=samplers)


def test_epochs_that_begin_as_they_should_are_told_nothing(found, dealt):
    healthy = dealt(*(sampler(rank, turn) for turn in (1, 2, 3) for rank in (0, 1)))
    assert found("M18", healthy) == found("M19", healthy) == []


def test_an_epoch_that_nobody_tells_the_sampler(found, dealt):
    again = {"epoch": 0, "epoch_before": 0}
    (finding,) = found("M18", dealt(sampler(0), sampler(1), sampler(0, 2, **again), sampler(1, 2, **again)))
    assert (finding.ranks, finding.level) == ((0, 1), "quality") and "50 steps" in finding.saw[1]


@pytest.mark.parametrize("harmless", [{"steps_before": 0}, {"shuffle": False}])
def test_an_evaluation_and_an_order_that_is_meant_may_be_the_same_again(found, dealt, harmless):
    assert found("M18", dealt(sampler(0, 2, **{"epoch": 0, "epoch_before": 0, **harmless}))) == []


def test_shards_that_come_twice_and_orders_that_differ(found, dealt):
    (twice,) = found("M19", dealt(sampler(0), sampler(1, shard=0)))
    assert twice.ranks == (0, 1) and "read shard 0 of 2" in twice.saw[0]
    of_three = [sampler(rank, replicas=3, seed=7 * (rank == 1)) for rank in range(3)]
    (seeds,) = found("M19", dealt(*of_three, world_size=3))
    assert seeds.ranks == (1,) and "seed: 0 on rank 0, 7 on rank 1" in seeds.saw[0]
    (epochs,) = found("M19", dealt(sampler(0, 2), sampler(1, 2, epoch=0)))
    assert epochs.ranks == (0, 1) and "another epoch" in epochs.saw[0]


def test_the_line_that_made_a_sampler_or_a_model_is_said_where_it_is_known(found, trained, dealt):
    again = {"epoch": 0, "epoch_before": 0, "made_at": "train.py:26"}
    here, bypassed = {"made_at": "train.py:26"}, {"forwards": 0, "exchanges": 4}
    cases = {
        "M12": lambda more: trained({**bypassed, **more}, {**bypassed, **more}),
        "M15": lambda more: trained({"unexchanged": 2, **more}, {"unexchanged": 2, **more}),
        "M18": lambda more: dealt(*(sampler(rank, 2, **{**again, "made_at": "", **more}) for rank in (0, 1))),
        "M19": lambda more: dealt(sampler(0, **more), sampler(1, shard=0, **more)),
    }
    for code, made in cases.items():
        (known,), (unknown,) = found(code, made(here)), found(code, made({}))
        assert any(text.endswith("is made at train.py:26") for text in known.saw), code
        assert "made at" not in "".join(unknown.saw), code


def test_ranks_that_rightly_read_the_same_are_no_overlap(found, dealt):
    # Two groups of two ranks, each with one shard: tensor parallel.
    groups = [sampler(rank, shard=rank // 2) for rank in range(4)]
    assert found("M19", dealt(*groups, world_size=4)) == []
    assert found("M19", dealt(sampler(0), sampler(1, samples=60, shard=0))) == []
    assert found("M19", dealt(sampler(0, shuffle=False), sampler(1, seed=7, shuffle=False))) == []
    # Of one rank nothing is known.
    assert found("M19", dealt(sampler(0, shard=1))) == []
