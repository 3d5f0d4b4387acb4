"""torch's flight recorder as it answered on gloo and 2 ranks of torch 2.13, and what may be missing in it."""

import json

import pytest

from paceline.diagnosis.case import GroupCounters
from paceline.diagnosis.flight_recorder import Trace, TraceEntry, parse_trace


def entry(index, name="gloo:all_reduce", group="0", number=0, **more):
    return {
        "collective_seq_id": index,
        "input_dtypes": ["Float"],
        "input_sizes": [[4, 5]],
        "is_p2p": False,
        "op_id": index,
        "output_dtypes": ["Float"],
        "output_sizes": [[4, 5]],
        "p2p_seq_id": 0,
        "pg_id": number,
        "process_group": [group, "default_pg"],
        "profiling_name": name,
        "record_id": index,
        "retired": True,
        "state": "scheduled",
        "time_created_ns": 1795195698886683659,
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 1800000,
        **more,
    }


def answer(*entries, status=None, **more):
    counters = {"last_completed_collective": "8", "last_enqueued_collective": "9", "last_started_collective": "-1"}
    document = {
        "comm_lib_version": "",
        "entries": list(entries),
        "nccl_comm_state": {},
        "pg_config": {"": {"desc": "", "name": "", "ranks": "[0]"}},
        "pg_status": {"0": counters} if status is None else status,
        "version": "2.10",
        **more,
    }
    return json.dumps(document).encode()


def test_counters_and_collectives_are_read():
    barrier = entry(2, "gloo:barrier", input_dtypes=[], input_sizes=[], retired=False)
    trace = parse_trace(answer(entry(1), barrier))
    assert trace.groups == (GroupCounters(name="0", enqueued=9, completed=8),)
    assert trace.entries == (
        TraceEntry("0", 1, "all_reduce", "Float", (4, 5), 1795195698886683659, True),
        TraceEntry("0", 2, "barrier", None, None, 1795195698886683659, False),
    )


def test_sends_are_left_out_and_a_group_that_has_done_nothing_counts_from_0():
    status = {"3": {"last_completed_collective": "-1", "last_enqueued_collective": "-1"}}
    trace = parse_trace(answer(entry(1, is_p2p=True), entry(0, group="7", number=3, is_p2p=True), status=status))
    assert (trace.entries, trace.groups) == ((), (GroupCounters(name="7", enqueued=0, completed=0),))


@pytest.mark.parametrize(
    ("counted", "collectives"), [((9, 9), (3, 3)), ((9, 8), (3, 2)), ((11, 11), (3, 3)), ((5, 2), (1, 0))]
)
def test_sends_that_gloo_counts_with_its_collectives_are_taken_out(counted, collectives):
    status = {"0": {"last_enqueued_collective": counted[0], "last_completed_collective": counted[1]}}
    (group,) = parse_trace(answer(*(entry(i, op_id=3 * i) for i in (1, 2, 3)), status=status)).groups
    assert (group.enqueued, group.completed) == collectives


def test_nccl_counts_its_collectives_alone_and_its_entries_tell_more_than_its_counters():
    (group,) = parse_trace(answer(entry(1, "nccl:all_reduce", op_id=3)), "nccl").groups
    assert (group.recorder, group.enqueued, group.completed) == ("nccl", 1, 1)
    (pending,) = parse_trace(answer(entry(9, "nccl:all_reduce", op_id=9, retired=False)), "nccl").groups
    assert (pending.enqueued, pending.completed, pending.operation, pending.numel) == (9, 8, "all_reduce", 20)


def test_a_batch_of_sends_is_over_when_its_own_entry_is():
    """As torch 2.13 answers after a healthy batch_isend_irecv: the sends stay "scheduled" for ever."""
    ranks = {"0": {"desc": "default_pg", "name": "0", "ranks": "[4, 5, 6]"}}

    def batch(number, *, over):
        of_batch = {"collective_seq_id": 7, "p2p_seq_id": number, "pg_id": 0, "retired": False}
        return (
            entry(7, "nccl:send 0->1", **{**of_batch, "is_p2p": True, "op_id": 2 * number}),
            entry(7, "nccl:recv 0<-2", **{**of_batch, "is_p2p": True, "op_id": 2 * number + 1}),
            entry(7, "nccl:coalesced", **{**of_batch, "op_id": 2 * number + 1, "retired": over}),
        )

    (first,) = parse_trace(answer(*batch(1, over=True), pg_config=ranks), "nccl").groups
    assert first.is_over
    (second,) = parse_trace(answer(*batch(1, over=True), *batch(2, over=False), pg_config=ranks), "nccl").groups
    assert second.messages == ((4, 5), (6, 4)) and not second.is_over
    assert (second.enqueued, second.completed) == (7, 7)


def test_of_two_groups_of_one_name_the_newer_is_meant():
    counters = {"last_completed_collective": "1", "last_enqueued_collective": "1"}
    trace = parse_trace(answer(entry(5), entry(1, number=2), status={"0": counters, "2": counters}))
    assert [found.index for found in trace.entries] == [1]
    assert len(trace.groups) == 1


def test_the_configuration_of_nccl_names_the_ranks():
    configuration = {"0": {"desc": "default_pg", "name": "0", "ranks": "[0, 1]"}}
    trace = parse_trace(answer(entry(1, "nccl:_all_gather_base"), pg_config=configuration), "nccl")
    assert trace.groups[0].ranks == (0, 1) and trace.entries[0].operation == "all_gather_base"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"entries": 3, "pg_status": []}',
        b'{"entries": [3, {}], "pg_status": {"x": 1}}',
    ],
)
def test_what_is_no_answer_is_an_empty_trace(raw):
    assert parse_trace(raw) == Trace()


@pytest.mark.parametrize("key", sorted(entry(1)))
def test_no_key_is_needed_to_read_the_others(key):
    partial = {name: value for name, value in entry(1).items() if name != key}
    trace = parse_trace(answer(partial, entry(2)))
    assert trace.entries[-1].index == 2


def test_what_is_bare_and_nameless_is_left_out_and_hides_no_group_that_has_a_name():
    """As torch 2.13 answers where ProcessGroupGloo objects were made beside the process group; the second kept no entry."""
    bare = [entry(index, group="", number=0, process_group=["", ""]) for index in (1, 2)]
    counters = {"last_completed_collective": "3", "last_enqueued_collective": "3"}
    trace = parse_trace(answer(*bare, entry(7, number=2), status={"0": counters, "1": counters, "2": counters}))
    assert [(group.name, group.enqueued) for group in trace.groups] == [("0", 3)]
    assert [(found.group, found.index) for found in trace.entries] == [("0", 7)]
