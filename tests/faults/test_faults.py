"""Faults of the gallery for real, some of them also over our own exchange: the job must say who is broken and why.

`make faults-ci` runs twelve of them and `make nightly` all; `make test` has them as recordings (test_recorded.py).

What is measured in earnest, several times and beside torchrun, is `make faults`.
"""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from catalogue import Fault, faults, hung_on_nccl, live_on_nccl, on_an_old_torch, over_our_exchange, with_resume
from harness import environment_of, interpreter, observe
from patience import patient
from scoring import Outcome
from variants import all_but

pytestmark = [pytest.mark.fault, pytest.mark.gallery, pytest.mark.timeout(240)]

ROWS = faults()
ON_OLD_TORCH = on_an_old_torch(ROWS)
# Recordings of all of them are judged in test_recorded.py. One live job for each way in which a job is watched: what a rank is seen doing,
# that it is stopped, what its calls were, what it sent, that it ended, that it could not start, how long steps take; and on NCCL.
LIVE = (
    *("n01_asleep", "n02_stopped", "m02_shapes", "m05_uneven", "m19_seeds", "c04_killed", "c09_disk_full"),
    *("r04_port_in_use", "s01_straggler", "decoy_all_evaluate", "n01_asleep_on_nccl", "m16_crossed_groups_on_nccl"),
)
# What is told by the same means on both ways of exchange.
_SAME_ON_BOTH_WAYS = ("n01_asleep", "n02_stopped", "c04_killed", "c06_leaves", "m02_shapes")
# Of the exchange's own.
_WIDE_OVER_OURS = (
    *(f"{name}_over_direct" for name in _SAME_ON_BOTH_WAYS),
    *("s01_straggler_over_paceline", "s01_straggler_over_direct", "n06_busy_loop_over_paceline"),
)
KEPT = {*LIVE, *(row.name for row in over_our_exchange(ROWS))} - {*_WIDE_OVER_OURS}


# Script -> its rows with `--resume off` and `auto`.
BOTH_WAYS = {
    off.script.stem: (off, auto) for off, auto in zip(with_resume("off", ROWS), with_resume("auto", ROWS), strict=True)
}
# Of these the ranks go on from where they were, and are killed at the same step again.
KILLED = ("c04_killed", "c05_segfault")


def each_of(rows: Sequence[Fault]) -> pytest.MarkDecorator:
    """A test for each row."""
    kept = [row for row in rows if row.name in KEPT]
    return pytest.mark.parametrize("fault", all_but(kept, rows), ids=lambda row: row.name)


def reason_to_skip(fault: Fault) -> str:
    if fault.why_not_here:
        return fault.why_not_here
    try:
        interpreter(fault)
        environment_of(fault)
    except LookupError as lack:
        return str(lack)
    return "needs root" if fault.needs_root and os.geteuid() != 0 else ""


def _pairs_of(items):
    return [item.callspec.params["crash"] for item in items if "crash" in getattr(item, "fixturenames", ())]


@pytest.fixture(scope="session")
def two_at_a_time(request, tmp_path_factory):
    """The chosen rows' trials, under way in the order of the tests: mostly they wait. A slow job is judged by its load, and runs alone."""
    chosen = [
        item.callspec.params["fault"] for item in request.session.items if "fault" in getattr(item, "fixturenames", ())
    ]
    chosen += [row for name in _pairs_of(request.session.items) for row in BOTH_WAYS[name]]
    together = [row for row in chosen if row.level != "slow" and not reason_to_skip(row)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        folder = tmp_path_factory.mktemp("faults")
        yield {row.name: pool.submit(observe, row, row.trial(0), folder / row.name) for row in together}


@pytest.fixture
def outcome(fault, two_at_a_time, tmp_path, capsys) -> Outcome:
    if reason := reason_to_skip(fault):
        pytest.skip(reason)
    if fault.name in two_at_a_time:
        first = two_at_a_time[fault.name].result()
    else:
        wait(two_at_a_time.values())
        first = observe(fault, fault.trial(0), tmp_path / "job")
    if fault.is_decoy or (first.cause_right and first.rank_right is not False):
        return first
    # Of one trial in twenty nobody demands that it be right (see docs/faults.md), and of ninety rows some would be that one: what is
    # wrong twice fails, and both are shown. A false alarm has no second try.
    with capsys.disabled():
        print(f"\ntried again: {first}")
    return observe(fault, fault.trial(0), tmp_path / "again")


@each_of([row for row in ROWS if not row.is_decoy])
def test_a_broken_job_says_who_and_why(fault, outcome):
    assert not outcome.problem, str(outcome)
    assert outcome.cause_right, str(outcome)
    assert outcome.rank_right is not False, str(outcome)
    assert outcome.alarms == (), f"an alarm before the fault: {outcome}"


@pytest.mark.exchange
@each_of(over_our_exchange())
def test_a_broken_job_on_an_exchange_of_ours_says_who_and_why(fault, outcome):
    test_a_broken_job_says_who_and_why(fault, outcome)


@each_of([row for row in ROWS if row.is_decoy])
def test_a_healthy_job_that_looks_ill_raises_no_alarm_and_is_not_ended(fault, outcome):
    assert outcome.alarms == () and outcome.false_highs == (), str(outcome)
    assert not outcome.problem and not outcome.was_ended, str(outcome)


@each_of(live_on_nccl(ROWS))
def test_a_broken_job_on_nccl_says_who_and_why(fault, outcome):
    test_a_broken_job_says_who_and_why(fault, outcome)
    # Within ten seconds on a quiet machine: docs/faults.md. Here two jobs share two cores.
    if fault.level != "slow":
        assert outcome.judged_after_seconds is not None and outcome.judged_after_seconds <= patient(20), str(outcome)


@pytest.mark.wide
def test_of_a_collective_that_never_ends_on_the_device_no_rank_is_blamed(tmp_path):
    fault = hung_on_nccl(ROWS)
    if reason := reason_to_skip(fault):
        pytest.skip(reason)
    outcome = observe(fault, fault.trial(0), tmp_path / "job")
    assert outcome.level == "stall" and outcome.ranks == (), str(outcome)
    said = (tmp_path / "job" / "err.txt").read_text()
    # torch's number: it makes some of its calls with several of NCCL's.
    assert re.search(r"all_reduce \d+ of group 0", said) and "no rank is missing" in said, str(outcome)


@each_of([row for row in ON_OLD_TORCH if not row.is_decoy])
def test_a_broken_job_on_an_old_torch_says_who_and_why(fault, outcome):
    test_a_broken_job_says_who_and_why(fault, outcome)


@each_of([row for row in ON_OLD_TORCH if row.is_decoy])
def test_a_healthy_job_on_an_old_torch_raises_no_alarm_and_is_not_ended(fault, outcome):
    test_a_healthy_job_that_looks_ill_raises_no_alarm_and_is_not_ended(fault, outcome)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("crash", all_but(("c04_killed",), BOTH_WAYS))
def test_a_crash_is_told_with_resume_as_without_it(crash, two_at_a_time):
    if reason := reason_to_skip(BOTH_WAYS[crash][0]):
        pytest.skip(reason)
    off, auto = (two_at_a_time[row.name].result() for row in BOTH_WAYS[crash])
    assert not (off.problem or auto.problem) and off.cause_right, f"{off}\n{auto}"
    told = [(one.codes[:1], one.ranks, one.place, one.level, one.confidence, one.exit_code) for one in (off, auto)]
    assert told[0] == told[1], f"{off}\n{auto}"
    assert off.attempt_count == 1 and (auto.attempt_count > 1) == (crash in KILLED), f"{off}\n{auto}"
