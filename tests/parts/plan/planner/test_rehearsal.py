"""Sizes that were tried, and what they say of larger ones."""

import json

import pytest

from paceline.parts.plan.planner.rehearsal import (
    Probe,
    Rehearsal,
    RehearsedSize,
    Slots,
    crowding,
    from_plain,
    predict,
    sizes_to_predict,
    to_plain,
)
from paceline.parts.plan.planner.workload import Measurement

CPUS = Slots(cpus=8.0, devices=0)


def tried(devices, seconds, *, hosts=1, room=CPUS):
    measurement = Measurement(hosts=hosts, devices=devices, step_seconds=seconds, source="run r-1")
    return RehearsedSize(
        measurement=measurement,
        run_id="r-1",
        step_count=30,
        mean_step_seconds=seconds,
        compute_seconds=seconds,
        crowding=crowding(devices, room),
    )


def rehearsal(*sizes, room=CPUS, probe=None):
    return Rehearsal(id="rh-1", program=("train.py",), sizes=sizes, room=room, probe=probe, notes=("weak scaling",))


def test_ranks_are_crowded_where_they_share_a_cpu_or_a_device():
    assert crowding(8, CPUS) == 1.0
    assert crowding(16, CPUS) == 2.0
    assert crowding(4, Slots(cpus=8.0, devices=0, threads=4)) == 2.0
    assert crowding(4, Slots(cpus=2.0, devices=8)) == 1.0
    assert crowding(4, Slots(cpus=64.0, devices=2)) == 2.0
    assert crowding(400, Slots()) == 1.0


def test_a_rehearsal_survives_its_file():
    probe = Probe(points=((4096.0, 1e-4), (8192.0, 2e-4)), ranks=2, backend="gloo")
    made = rehearsal(tried(1, 0.1), tried(2, 0.11), probe=probe)
    assert from_plain(json.loads(json.dumps(to_plain(made)))) == made


@pytest.mark.parametrize(
    "plain",
    [
        [],
        {"schema": "paceline.run/1"},
        {"schema": "paceline.rehearsal/1", "id": "rh-1", "program": []},
        {"schema": "paceline.rehearsal/1", "id": "rh-1", "program": [], "sizes": [{"measurement": {"hosts": 1}}]},
        {"schema": "paceline.rehearsal/1", "id": "rh-1", "program": [], "sizes": [{"measurement": []}]},
        to_plain(rehearsal(tried(1, 0.0))),
        to_plain(rehearsal(tried(1, 0.1, hosts=2))),
    ],
)
def test_what_is_no_rehearsal_is_refused(plain):
    with pytest.raises(ValueError, match=r"."):
        from_plain(json.loads(json.dumps(plain)))


def test_two_sizes_predict_more_ranks_and_each_prediction_is_an_interval():
    four, eight = predict(rehearsal(tried(1, 0.100), tried(2, 0.105)), [(1, 4), (1, 8)])
    assert four.step.tier == eight.step.tier == 2
    assert 0.105 <= four.step.seconds <= eight.step.seconds
    assert four.step.low_seconds <= four.step.seconds <= four.step.high_seconds
    assert eight.efficiency_fraction == pytest.approx(0.1 / eight.step.seconds)
    assert four.here_seconds is None


def test_one_size_is_tier_1():
    (four,) = predict(rehearsal(tried(1, 0.100)), [(1, 4)])
    assert four.step.tier == 1


def test_a_crowded_size_is_left_out_where_a_roomy_one_is_there():
    small = Slots(cpus=2.0, devices=0)
    sizes = (tried(1, 0.1, room=small), tried(2, 0.11, room=small), tried(4, 0.3, room=small))
    assert [one.devices for one in rehearsal(*sizes, room=small).measurements] == [1, 2]
    assert [one.devices for one in rehearsal(sizes[2], room=small).measurements] == [4]
    (four,) = predict(rehearsal(*sizes, room=small), [(1, 4)])
    assert four.crowding == 2.0 and four.here_seconds == pytest.approx(2 * four.step.seconds)
    assert four.step.seconds < 0.2


def test_hosts_are_predicted_along_hosts():
    assert sizes_to_predict([(1, 1), (1, 2)]) == ((1, 4), (1, 8))
    assert sizes_to_predict([(1, 2), (2, 2)]) == ((4, 2), (8, 2))
    (found,) = predict(rehearsal(tried(2, 0.1), tried(4, 0.11, hosts=2)), [(4, 2)])
    assert found.step.tier == 2 and found.step.seconds >= 0.11
