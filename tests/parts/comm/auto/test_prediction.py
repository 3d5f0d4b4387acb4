"""What `auto` chooses: a table of networks and models, decoys among them. Pure: nothing is exchanged."""

from dataclasses import replace

import pytest

from paceline.parts.comm.auto.prediction import (
    LEAST_GAIN,
    PLAIN,
    MeasuredNetwork,
    StepProfile,
    as_observed,
    buckets_of,
    candidates,
    choose,
    predict,
)
from paceline.parts.plan.planner.collective import MIB, bucket_sizes

EXACT, LOSSY = False, True
ALL = ("direct", "hierarchical", "direct+bf16", "direct+int8", "hierarchical+bf16", "hierarchical+int8")
MBIT = 1e6 / 8


def network(**changes):
    """Four hosts of one rank, 10 ms apart, at 10 Gbit/s; gloo's ring takes two latencies a hop."""
    fields = {"ranks": 4, "hosts": 4, "hop_seconds": 11e-3, "bytes_per_second": 1.2e9, "ring_hop_seconds": 21e-3}
    return MeasuredNetwork(**fields | changes)


def training(gradients_mib, compute_seconds, exposed_seconds, **changes):
    """A model of 32 equal tensors; backward is two thirds of the computation."""
    each = int(gradients_mib * MIB / 32)
    fields = {
        "gradient_bytes": (each,) * 32,
        "step_seconds": compute_seconds + exposed_seconds,
        "backward_seconds": compute_seconds * 2 / 3,
        "exposed_seconds": exposed_seconds,
    }
    return StepProfile(**fields | changes)


NEAR = {"hop_seconds": 60e-6, "ring_hop_seconds": 120e-6}
ONE_HOST = {"ranks": 2, "hosts": 1, "hop_seconds": 0.0, "ring_hop_seconds": 50e-6, "ring_bytes_per_second": 0.8e9}
SLOW = {"bytes_per_second": 100 * MBIT}


@pytest.mark.parametrize(
    ("why", "network", "training", "allow_lossy", "expected"),
    [
        ("latency rules", network(), training(4, 0.03, 0.25), EXACT, "direct"),
        ("latency rules, 16 ranks on 4 hosts", network(ranks=16), training(1, 0.03, 0.6), EXACT, "direct"),
        ("16 ranks on 4 hosts, wide buckets", network(ranks=16, bytes_per_second=2e8), training(64, 0.1, 2.5), EXACT,
         "hierarchical"),
        ("computation hides the exchange", network(), training(4, 5.0, 0.15), EXACT, PLAIN),
        ("a near and wide network", network(**NEAR), training(100, 0.5, 0.01), EXACT, PLAIN),
        ("bandwidth rules, and exact strategies send as much", network(**NEAR, **SLOW), training(25, 0.3, 3.2), EXACT, PLAIN),
        ("bandwidth rules, lossy ones allowed", network(**NEAR, **SLOW), training(25, 0.3, 3.2), LOSSY, "hierarchical+int8"),
        ("more hosts than direct fuses for by itself", network(ranks=16, hosts=16), training(4, 0.03, 0.7), EXACT,
         "direct:fuse_mib=0"),
        ("the exchange is nothing: a slow loader looks like a slow step", network(), training(4, 2.0, 0.0), EXACT, PLAIN),
        ("two hosts 10 ms apart", network(ranks=2, hosts=2), training(4, 0.03, 0.1), EXACT, "direct"),
        ("one host without shared memory", network(**ONE_HOST), training(25, 0.1, 0.05), EXACT, PLAIN),
        ("one host that computes", network(**ONE_HOST, memory_bytes_per_second=10e9), training(5, 1.0, 0.004), EXACT, PLAIN),
        ("one host that exchanges", network(**ONE_HOST, memory_bytes_per_second=10e9), training(100, 0.1, 0.2), EXACT,
         "hierarchical"),
        ("its backend goes through memory already",
         network(**ONE_HOST, memory_bytes_per_second=10e9, plain_is_hierarchical=True), training(100, 0.1, 0.02), EXACT, PLAIN),
    ],
)  # fmt: skip
def test_the_choice_fits_the_network_and_the_model(why, network, training, allow_lossy, expected):
    assert choose(training, network, candidates(network, allow_lossy=allow_lossy)).strategy == expected, why


def test_a_choice_is_plain_as_it_is_or_clearly_faster():
    for gradients in (0.1, 1, 10, 100):
        for exposed in (0.0, 0.001, 0.02, 0.5):
            for hop in (1e-5, 1e-3, 3e-2):
                step = training(gradients, 0.05, exposed)
                found = choose(step, network(hop_seconds=hop, ring_hop_seconds=2 * hop), ALL)
                as_it_is = found.strategy == PLAIN and found.bucket_cap_bytes == step.bucket_cap_bytes
                assert as_it_is or found.step_seconds <= (1 - LEAST_GAIN) * step.step_seconds


def test_the_step_that_was_measured_is_what_plain_ddp_takes():
    step = training(100, 0.2, 0.3)
    assert predict(step, network(), PLAIN, step.bucket_cap_bytes).step_seconds == pytest.approx(step.step_seconds)


def test_without_ddps_timers_the_prediction_stands_for_the_exposure():
    step = replace(training(4, 0.03, 0.25), exposed_seconds=None)
    found = choose(step, network(), ALL[:2])
    assert found.strategy == "direct" and 0 < found.step_seconds < step.step_seconds


def test_a_probe_that_saw_too_little_is_corrected_by_what_plain_ddp_did():
    true, step = network(), training(16, 0.03, 0.0)
    exposed = 0.2
    step = replace(step, step_seconds=0.03 + exposed, exposed_seconds=exposed)
    probed = replace(true, bytes_per_second=true.bytes_per_second / 50)
    seen = as_observed(step, probed)
    assert seen.bytes_per_second > 5 * probed.bytes_per_second and seen.hop_seconds == true.hop_seconds
    assert choose(step, probed, ALL[:2]).strategy == "direct"
    assert as_observed(training(16, 0.03, 5.0), probed) == probed
    assert as_observed(replace(step, exposed_seconds=None), probed) == probed


def test_buckets_that_the_script_asked_for_stay():
    step = training(64, 0.03, 0.6, bucket_cap_bytes=5 * MIB, may_change_buckets=False)
    assert choose(step, network(), ALL[:2]).bucket_cap_bytes == 5 * MIB


def test_a_strategy_whose_cost_is_not_known_is_never_chosen():
    assert choose(training(4, 0.03, 0.25), network(), ("powersgd", "local_sgd", "nonsense+bf16")).strategy == PLAIN


def test_larger_buckets_are_chosen_where_each_one_waits():
    step = training(100, 0.05, 1.0, bucket_cap_bytes=5 * MIB, first_bucket_bytes=MIB)
    found = choose(step, network(), ALL[:2])
    assert found.strategy == "direct" and found.bucket_cap_bytes >= 25 * MIB


def test_a_bucket_closes_with_the_gradient_that_fills_it():
    assert buckets_of((3, 3, 3, 9, 1), cap_bytes=5, first_bytes=3) == (3, 6, 9, 1)
    assert buckets_of((MIB,) * 60, cap_bytes=25 * MIB, first_bytes=MIB) == bucket_sizes(60 * MIB)
    assert buckets_of((), cap_bytes=5, first_bytes=3) == ()
