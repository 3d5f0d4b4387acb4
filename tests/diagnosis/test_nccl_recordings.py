"""Every situation of NCCL ranks in every form in which it was recorded: what the form can show is concluded, and nothing else."""

import random
from dataclasses import replace

import pytest
from tests.diagnosis.nccl_recordings import EXPECTED, FORMS, NOW_NS, heartbeats_of, recordings, traces_of

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.desync.call_records import recorded_calls
from paceline.diagnosis.desync.calls import CallComparison
from paceline.diagnosis.desync.desync import disagreement_of
from paceline.diagnosis.hang.stall import StallDetector

RECORDINGS = recordings()
GIVES_NO_GLOO = ("2.6.0", "2.8.0", "2.8.0-timing")
MISMATCHES = {"mismatched_op": "operation", "mismatched_size": "shape", "mismatched_dtype": "values"}


def stall_of(traces):
    return StallDetector(len(traces)).observe(heartbeats_of(traces), NOW_NS)


@pytest.mark.parametrize(("form", "situation"), RECORDINGS)
def test_what_the_form_can_show_is_concluded(form, situation):
    expected = EXPECTED[situation]
    stall = stall_of(traces_of(form, situation))
    if situation == "healthy":
        assert stall is None or not (stall.late or stall.waiting or stall.together)
        return
    if situation == "mixed_gloo_hangs" and form in GIVES_NO_GLOO:
        # The worker server of this torch does not give gloo's recorder out, and NCCL's is healthy.
        assert not stall.late and not stall.waiting and not stall.together and stall.index is None
        return
    assert list(stall.late) == expected["late"]
    if situation == "p2p_no_receiver" and form != "2.15.0-nccl2":
        # Rank 2 makes the communicator of its pair on the CPU, and has no entry or no answer.
        assert stall.waiting == (0,)
        return
    assert list(stall.waiting) == expected["waiting"]
    assert stall.index == expected.get("collective")
    assert not stall.behind
    assert stall.together == (not expected["late"])
    if situation == "p2p_coalesced" and form == "2.15.0-nccl2":
        # This recorder counts the batch and does not show it: who waits is known, and in what is not.
        assert not stall.group
        return
    assert stall.group == expected["group"]
    gloo = situation == "mixed_gloo_hangs"
    assert stall.recorder == ("gloo" if gloo else "nccl2" if form == "2.15.0-nccl2" else "nccl")
    if "collective" in expected and situation not in MISMATCHES and not gloo:
        # From torch 2.14 on a batch of calls has one entry, without the name of its calls.
        batch = situation == "coalesced" and form in ("2.14.1", "2.15.0-legacy-timing")
        assert stall.operation.removesuffix("_single") == ("coalesced" if batch else expected["operation"])


@pytest.mark.parametrize(("form", "situation"), [pair for pair in RECORDINGS if pair[1] in MISMATCHES])
def test_calls_that_differ_are_found_by_the_recorder(form, situation):
    comparison = CallComparison(basis="flight recorder")
    for rank, trace in traces_of(form, situation).items():
        for of_rank in recorded_calls(rank, trace.entries):
            comparison.add(of_rank)
    (divergence,) = comparison.divergences(1, final=True)
    found = disagreement_of(divergence)
    assert (found.kind, list(found.odd)) == (MISMATCHES[situation], EXPECTED[situation]["odd"])
    assert divergence.index == EXPECTED[situation]["collective"]
    assert divergence.recorder == ("nccl2" if form == "2.15.0-nccl2" else "nccl")


@pytest.mark.parametrize(("form", "situation"), [pair for pair in RECORDINGS if pair[1] not in MISMATCHES])
def test_calls_that_agree_are_no_divergence(form, situation):
    comparison = CallComparison(basis="flight recorder")
    for rank, trace in traces_of(form, situation).items():
        for of_rank in recorded_calls(rank, trace.entries if trace is not None else ()):
            comparison.add(of_rank)
    assert comparison.divergences(1, final=True) == ()


@pytest.mark.parametrize(("form", "situation"), RECORDINGS)
def test_a_rank_that_is_not_heard_is_never_blamed_alone_for_what_others_do(form, situation):
    """Each rank in turn does not answer: those that are late without it are ranks that were late, or the silent one."""
    traces = traces_of(form, situation)
    for silent in traces:
        stall = stall_of({rank: None if rank == silent else trace for rank, trace in traces.items()})
        if stall is not None:
            assert set(stall.late) <= {*EXPECTED[situation]["late"], silent}
            assert not stall.together or silent not in stall.waiting


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_the_late_rank_is_found_wherever_it_is_among_more_ranks(form, seed):
    """The missing rank's answer and a waiting rank's answer, on other ranks and in a larger group."""
    draw = random.Random(seed)
    traces = traces_of(form, "missing_rank")
    world = draw.randint(4, 40)
    late = sorted(draw.sample(range(world), draw.randint(1, 3)))
    everybody = tuple(range(world))

    def on_rank(rank):
        trace = traces[1 if rank in late else 0]
        return replace(trace, groups=tuple(replace(group, ranks=everybody) for group in trace.groups))

    stall = stall_of({rank: on_rank(rank) for rank in draw.sample(everybody, world)})
    assert list(stall.late) == late and stall.index == 5
    assert stall.waiting == tuple(rank for rank in everybody if rank not in late)


@pytest.mark.parametrize("timed", [form for form in FORMS if "timing" in form])
def test_timing_shows_on_which_rank_the_collective_has_not_begun(timed):
    begun = {rank: trace.groups[0].started for rank, trace in traces_of(timed, "compute_blocked").items()}
    assert begun == {0: True, 1: False, 2: True}
    assert {trace.groups[0].started for trace in traces_of(timed, "hung_kernel").values()} == {True}


@pytest.mark.parametrize("form", [form for form in FORMS if "timing" not in form])
def test_without_timing_nothing_is_said_of_the_beginning(form):
    assert {trace.groups[0].started for trace in traces_of(form, "hung_kernel").values()} == {None}


# ------------------------------------------------------------------------------- the recorder that counts all operations


def operations(enqueued, completed, operations, open_operation=None):
    return GroupCounters(
        name="0",
        recorder="nccl2",
        ranks=(0, 1),
        enqueued=enqueued,
        completed=completed,
        operations=operations,
        open_operation=open_operation,
    )


def judged(*counters):
    heartbeats = heartbeats_of(dict.fromkeys(range(len(counters))))
    heartbeats = {rank: replace(heartbeat, groups=(counters[rank],)) for rank, heartbeat in heartbeats.items()}
    return StallDetector(len(counters)).observe(heartbeats, NOW_NS)


@pytest.mark.parametrize("other_calls", [0, 1, 5, 100])
def test_calls_of_another_backend_that_came_first_hide_no_late_rank(other_calls):
    """With cpu:gloo,cuda:nccl the recorder of NCCL counts operations of both. The late rank shows no collective."""
    waits = operations(4, 3, other_calls + 4, other_calls + 4)
    stall = judged(waits, operations(other_calls + 3, other_calls + 3, other_calls + 3))
    assert (stall.late, stall.waiting, stall.index) == ((1,), (0,), 4)


@pytest.mark.parametrize("sends", [1, 7, 50])
def test_a_rank_that_has_sent_more_is_not_late_for_what_it_has_issued(sends):
    """Both have issued collective 4, and it is over on rank 1, whose operations are more by its sends: nothing is known against it."""
    stall = judged(operations(4, 3, 4, 4), operations(4 + sends, 4 + sends, 4 + sends))
    assert stall is None or 1 not in stall.late


def test_ranks_that_show_their_numbers_are_compared_by_these_and_not_by_their_operations():

    stall = judged(operations(9, 8, 12, 12), operations(9, 8, 15, 15))
    assert stall.together and not stall.late


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_that_queue_groups_behind_each_other_stand_still_and_none_is_late(ranks):
    # Rank r issues the collective of group r before that of group r - 1, which its neighbour issues first.
    def counters(group, place):
        members = tuple(sorted({group, (group + 1) % ranks}))
        return GroupCounters(
            name=f"{group + 1}",
            enqueued=7,
            completed=6,
            ranks=members,
            recorder="nccl",
            open_since_ns=NOW_NS - 10 + place,
        )

    heartbeats = heartbeats_of(dict.fromkeys(range(ranks)))
    crossed = {
        rank: replace(heartbeat, groups=(counters(rank, 0), counters((rank - 1) % ranks, 1)))
        for rank, heartbeat in heartbeats.items()
    }
    stall = StallDetector(ranks).observe(crossed, NOW_NS)
    assert stall.late == () and stall.waiting == tuple(range(ranks)) and not stall.together
