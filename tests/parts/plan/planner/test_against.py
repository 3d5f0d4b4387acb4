"""A prediction beside a run: what explains the difference, by hand-made runs that differ in one thing."""

import pytest

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.against import compare
from paceline.parts.plan.planner.answer import Fit, Memory, Row, StepTime
from paceline.parts.plan.planner.collective import Link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.observed import HostLoad, ObservedRun, RankSteps
from paceline.parts.plan.planner.workload import Measurement

LINK = Link(kind="tcp", bytes_per_second=1e9, latency_seconds=1e-4, source="10 Gbit/s as specified")


def row(compute=0.100, exchange=0.010, tax=0.0, loading=0.0, *, tier=2, device=None, step=True):
    terms = {"compute": compute, "exposed_communication": exchange, "multi_device_tax": tax, "loading": loading}
    total = sum(terms.values())
    time = StepTime(seconds=total, low_seconds=total * 0.95, high_seconds=total * 1.05, tier=tier, terms=terms)
    machines = Machines(device=device, devices_per_host=1, hosts=2, inter=LINK)
    return Row(
        machines=machines,
        memory=Memory(verdict=Fit.NOT_JUDGED),
        step=time if step else None,
        name="p9",
        not_judged=() if step else ("step time on a CPU: nothing measured",),
    )


def run(compute=0.100, exchange=0.010, loading=0.0, *, own=None, waits=None, hosts=(), late=None):
    own, waits = own or [compute + loading] * 2, waits or [exchange] * 2
    step = compute + exchange + loading
    return ObservedRun(
        measurement=Measurement(
            hosts=2, devices=2, step_seconds=step, exposed_communication_seconds=exchange, loading_seconds=loading
        ),
        run="r-1",
        steps=30,
        mean_step_seconds=step,
        compute_seconds=compute,
        checkpoint_seconds=0.0,
        ranks=tuple(
            RankSteps(
                rank=rank, host=f"algo-{rank + 1}", step_seconds=step, own_seconds=mine, communication_seconds=wait
            )
            for rank, (mine, wait) in enumerate(zip(own, waits, strict=True))
        ),
        hosts=tuple(hosts),
        late_seconds=late,
        startup_seconds=6.0,
    )


def explained(comparison):
    first = comparison.reasons[0]
    difference = comparison.measured_seconds - comparison.predicted_seconds
    assert sum(reason.seconds for reason in comparison.reasons) == pytest.approx(difference)
    return first.kind, first.what


def test_a_run_as_predicted_is_noise():
    comparison = compare(row(), run(compute=0.101))
    assert comparison.is_noise and comparison.within
    assert [term.name for term in comparison.terms] == ["compute", "exposed_communication", "loading", "checkpoint"]


def test_loading_that_was_not_counted_is_named():
    kind, what = explained(compare(row(tier=0), run(loading=0.05)))
    assert kind == "loading" and "50.0 ms" in what and "the plan counted none" in what


def test_the_loading_of_the_measured_step_was_counted():
    measured = Measurement(hosts=1, devices=1, step_seconds=0.1, loading_seconds=0.02)
    comparison = compare(row(compute=0.100), run(compute=0.080, loading=0.020), [measured])
    assert comparison.is_noise
    assert comparison.terms[2].predicted == pytest.approx(0.02)


def test_a_straggler_is_named_by_rank_and_host():
    # Rank 1 computes 150 ms, rank 0 waits for it: the mean of both is what the recording has.
    seen = run(compute=0.125, exchange=0.035, own=[0.100, 0.150], waits=[0.060, 0.010])
    comparison = compare(row(), seen)
    kinds = {reason.kind: reason for reason in comparison.reasons}
    assert "rank 1 on algo-2" in kinds["straggler"].what
    assert kinds["straggler"].next == "paceline why r-1"
    assert kinds["straggler"].seconds == pytest.approx(0.05)
    assert "link" not in kinds and explained(comparison)[0] == "straggler"


def test_who_comes_late_by_the_flight_recorders_counts_more():
    seen = run(exchange=0.040, waits=[0.060, 0.020], late={0: 0.03, 1: 0.0})
    assert "rank 0 on algo-1 is 30.0 ms" in compare(row(), seen).reasons[0].what


def test_a_slower_link_is_named_with_what_was_assumed():
    kind, what = explained(compare(row(tier=1), run(exchange=0.040)))
    assert kind == "link" and "over tcp (10 Gbit/s as specified): 4.0 times" in what


def test_an_exchange_that_two_sizes_gave_is_not_ascribed_to_a_link():
    reason = compare(row(tier=2), run(exchange=0.040)).reasons[0]
    assert reason.kind == "link" and "tcp" not in reason.what and "from the sizes measured: 4.0 times" in reason.what
    assert not reason.next


def test_ranks_that_share_cpus_are_named():
    load = HostLoad(host="algo-1", ranks=4, cpu_count=2)
    kind, what = explained(compare(row(), run(compute=0.2, hosts=[load])))
    assert kind == "crowded" and "4 ranks share the 2 CPUs of algo-1" in what


def test_a_plan_from_ranks_that_shared_cpus_does_not_blame_the_sharing():
    load = HostLoad(host="algo-1", ranks=4, cpu_count=2)
    crowded = Measurement(hosts=2, devices=2, step_seconds=0.110)
    assert "crowded" not in [one.kind for one in compare(row(), run(compute=0.2, hosts=[load]), [crowded]).reasons]


def test_waits_for_a_cpu_are_named_beside_a_gpu_too():
    load = HostLoad(host="algo-1", ranks=4, cpu_count=2, waited_fraction=0.8)
    comparison = compare(row(device=Accelerator(name="A100")), run(compute=0.2, hosts=[load]))
    assert "in 80% of the time" in comparison.reasons[0].what


def test_compute_that_nothing_explains_says_so():
    kind, what = explained(compare(row(), run(compute=0.2)))
    assert kind == "compute" and "another batch or precision" in what


def test_what_was_not_timed_is_not_judged_and_never_taken_for_0():
    unknown = ObservedRun(
        measurement=Measurement(hosts=2, devices=2, step_seconds=0.2), run="r-1", steps=30, mean_step_seconds=0.2
    )
    comparison = compare(row(), unknown)
    assert comparison.reasons[0].kind == "unclear"
    assert comparison.terms[0].measured is None and comparison.terms[0].difference is None
    assert any("exposed communication" in text for text in comparison.not_judged)


def test_a_row_without_a_step_time_cannot_be_compared():
    with pytest.raises(UsageError) as refused:
        compare(row(step=False), run())
    assert refused.value.code == "X06" and "nothing measured" in refused.value.saw
