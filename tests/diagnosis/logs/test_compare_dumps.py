"""Dumps of several ranks compared: jobs that hang for one reason, in every recorder's form, and what each form alone has."""

import base64
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from hanging_jobs import FORMS, document, make, make_pipeline, written
from nccl_recordings import EXPECTED, recordings, situations

from paceline.diagnosis.logs.compare_dumps import judge_dumps
from paceline.diagnosis.logs.flight_recorder_dumps import parse_dump
from paceline.findings import NO_CODE, Confidence

MAKERS = (make, make_pipeline)
SEEDS = range(12)
REAL_DUMPS = os.environ.get("PACELINE_REAL_DUMPS", "")


def dumps_of(job, form, seed=0):
    ranks = random.Random(seed).sample(sorted(job.ranks), len(job.ranks))
    return [parse_dump(f"trace_rank_{rank}", written(document(job, rank, form), bool(seed % 2))) for rank in ranks]


def judged(documents):
    return judge_dumps([
        parse_dump(f"trace_rank_{rank}", json.dumps(one).encode()) for rank, one in documents.items()
    ])  # fmt: skip


def entry(number, title="nccl:all_reduce", over=False, **more):
    return {
        "record_id": number - 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": title, "input_sizes": [[4]], "input_dtypes": ["Float"],
        "state": "completed" if over else "scheduled", "retired": over, "is_p2p": False, **more,
    }  # fmt: skip


def whole(*entries, issued=0, over=0, ranks="[0, 1, 2]"):
    return {
        "version": "2.10", "entries": list(entries), "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": issued, "last_completed_collective": over}},
    }  # fmt: skip


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_rank_whose_host_does_not_come_is_named_in_every_form(maker, form, streams):
    for seed in SEEDS:
        job = maker(seed, "host", streams)
        (finding,) = judge_dumps(dumps_of(job, form, seed))
        assert (finding.code, finding.ranks, finding.confidence) == ("N01", (job.culprit,), Confidence.LIKELY)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_rank_whose_device_stands_is_named_or_nobody_is(maker, form, streams):
    named = 0
    for seed in SEEDS:
        job = maker(seed, "device", streams)
        (finding,) = judge_dumps(dumps_of(job, form, seed))
        assert (finding.code, finding.ranks) in (("N12", (job.culprit,)), ("N11", ()), (NO_CODE, ()))
        named += bool(finding.ranks)
    assert named


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_where_all_have_come_no_rank_is_missing(maker, form, streams):
    for seed in SEEDS:
        (finding,) = judge_dumps(dumps_of(maker(seed, "stream", streams), form, seed))
        assert (finding.code, finding.ranks) == ("N11", ())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_job_that_is_done_gives_nothing(maker, form):
    for seed in SEEDS:
        done = maker(seed, "none")
        assert all(all(rank.noticed) for rank in done.ranks.values())
        assert judge_dumps(dumps_of(done, form, seed)) == []


def test_calls_that_were_issued_as_one_are_over_when_all_are():
    ahead = whole(
        entry(4, over=True),
        entry(5, "nccl:allreduce_coalesced", over=True),
        entry(5, "nccl:coalesced"),
        issued=5,
        over=5,
    )
    (finding,) = judged({0: ahead, 1: whole(entry(4, over=True), issued=4, over=4), 2: ahead})
    assert finding.ranks == (1,) and any("number 5: allreduce_coalesced" in line for line in finding.saw)


def test_a_batch_of_sends_is_no_collective():
    def batch(rank):
        more = {"p2p_seq_id": 1, "collective_seq_id": 4}
        return whole(
            entry(5, f"nccl:send {rank}->{rank + 1}", is_p2p=True, op_id=5, **more),
            entry(6, f"nccl:recv {rank}<-{(rank - 1) % 3}", is_p2p=True, op_id=6, **more),
            entry(7, "nccl:coalesced", op_id=6, **more), issued=1, over=4,
        )  # fmt: skip

    (finding,) = judged({0: batch(0), 1: batch(1), 2: whole(entry(4, over=True), issued=4, over=4)})
    assert finding.ranks == (2,)
    assert "rank 1 waits for rank 2 to receive from rank 1" in finding.saw[0]


def test_the_counters_of_a_group_with_sends_are_not_compared():
    ahead = whole(entry(9, op_id=12), entry(8, "nccl:send 0->1", over=True, is_p2p=True), issued=9, over=8)
    # Its last operation was its third send. Its recorder calls that "enqueued 3"; all nine collectives are over.
    (finding,) = judged({0: ahead, 1: whole(issued=3, over=3), 2: whole(issued=8, over=8)})
    assert "has nothing open" in finding.saw[0] and "has not issued" not in " ".join(finding.saw)


def test_a_rank_whose_counters_say_that_it_has_come_is_not_late():
    behind, past = whole(entry(5), issued=5, over=4), whole(issued=5, over=5)
    findings = judged({0: behind, 1: past, 2: past})
    assert all(1 not in finding.ranks and 2 not in finding.ranks for finding in findings)


def test_a_recorder_that_counts_from_zero_is_not_off_by_one():
    waits = whole(entry(5, "nccl2:all_reduce", op_id=4), issued=4, over=3)
    (finding,) = judged({0: waits, 1: whole(issued=3, over=3), 2: waits})
    assert finding.ranks == (1,) and "rank 1 has not issued number 5, in which ranks 0,2 wait" in finding.saw[0]


def test_two_recorders_of_one_group_count_each_for_itself():
    nccl = {0: whole(entry(4), issued=4, over=3), 1: whole(entry(3, over=True), issued=3, over=3)}
    gloo = whole(
        *(entry(number, "gloo:all_reduce", state="scheduled", retired=True) for number in range(1, 6)), issued=5, over=5
    )
    dumps = [parse_dump(f"nccl_trace_rank_{rank}", json.dumps(one).encode()) for rank, one in nccl.items()]
    dumps += [parse_dump(f"trace_rank_{rank}", json.dumps(gloo).encode()) for rank in (0, 1)]
    (finding,) = judge_dumps(dumps)
    assert finding.ranks == (1,)


def test_with_timing_the_rank_that_has_not_begun_has_an_earlier_kernel():
    def at(state):
        return whole(entry(5, state=state), issued=5, over=4)

    (finding,) = judged({0: at("started"), 1: at("scheduled"), 2: at("started")})
    assert (finding.code, finding.ranks) == ("N12", (1,)) and "earlier kernel" in finding.saw[-1]


def test_a_batch_that_its_recorder_calls_over_at_once_is_seen_by_the_counters_alone():
    (finding,) = judged({0: whole(issued=5, over=3), 1: whole(issued=5, over=3), 2: whole(issued=3, over=3)})
    assert (finding.ranks, finding.confidence) == ((2,), Confidence.UNCLEAR)


def test_ranks_that_wait_for_each_other_are_not_blamed():
    first = whole(entry(4, process_group=["1", ""], pg_id=1), ranks="[0, 1]")
    second = whole(entry(4, process_group=["2", ""], pg_id=1), ranks="[0, 1]")
    for one in (first, second):
        one["pg_config"] = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("1", "2")}
        one["pg_status"] = {}
    (finding,) = judged({0: first, 1: second})
    assert (finding.code, finding.ranks) == (NO_CODE, ()) and "wait for each other" in finding.title


def test_a_second_init_process_group_is_not_compared_with_the_first():
    again = whole(*(entry(number, over=True) for number in range(1, 9)), entry(2, pg_id=3))
    (finding,) = judged(
        {0: again, 1: whole(*(entry(number, over=True) for number in range(1, 9)), entry(1, over=True, pg_id=2))}
    )
    assert finding.ranks == (1,)


def test_groups_without_a_name_are_left_out():
    nameless = {"process_group": ["", ""], "pg_id": 9}
    waits = whole(entry(1, "gloo:all_reduce", **nameless), entry(3, "gloo:all_reduce", retired=True))
    assert judged({0: waits, 1: whole(entry(3, "gloo:all_reduce", retired=True))}) == []


def test_the_odd_one_of_three_is_named_whichever_rank_it_is():
    for odd in range(3):
        calls = {rank: whole(entry(5, input_sizes=[[2 if rank == odd else 4]])) for rank in range(3)}
        (finding,) = judged(calls)
        assert (finding.code, finding.ranks) == ("M02", (odd,))


def test_a_scatter_has_no_input_where_it_only_receives():
    calls = {rank: whole(entry(5, "nccl:scatter", input_dtypes=["Float"] if rank == 0 else [])) for rank in range(3)}
    assert [finding.code for finding in judged(calls)] == ["N11"]


def test_a_name_of_one_collective_that_two_calls_share_is_no_difference():
    calls = {
        0: whole(entry(5, "nccl:_all_gather_base")),
        1: whole(entry(5, "nccl:all_gather")),
        2: whole(entry(5, "nccl:all_gather")),
    }
    assert [finding.code for finding in judged(calls)] == ["N11"]


def test_the_description_of_a_group_is_shown_and_not_compared():
    documents = {}
    for rank in range(4):
        name = str(1 + rank // 2)
        number = 7 if rank < 2 else 3
        one = whole(
            entry(number, process_group=[name, "TENSOR_MODEL_PARALLEL_GROUP"], pg_id=1, over=rank == 3, op_id=number)
        )
        one["pg_config"] = {
            name: {
                "name": name,
                "desc": "TENSOR_MODEL_PARALLEL_GROUP",
                "ranks": str([rank // 2 * 2, rank // 2 * 2 + 1]),
            }
        }
        documents[rank] = one
    documents[3]["entries"] = [entry(2, process_group=["2", "TENSOR_MODEL_PARALLEL_GROUP"], pg_id=1, over=True)]
    documents[0]["entries"][0] |= {"state": "completed", "retired": True}
    documents[1]["entries"][0] |= {"state": "completed", "retired": True}
    (finding,) = judged(documents)
    assert finding.ranks == (3,) and "group 2 (TENSOR_MODEL_PARALLEL_GROUP)" in finding.saw[0]


def test_a_rank_that_does_not_come_and_a_device_that_is_behind_are_two_findings():
    def of(number, over=False, group="0"):
        return entry(number, over=over, process_group=[group, ""], pg_id=int(group))

    documents = {
        0: whole(of(7)),
        1: whole(of(6)),
        2: whole(of(7)),
        3: whole(of(4, group="1")),
        4: whole(of(3, True, "1")),
    }
    for rank, one in documents.items():
        one["pg_config"] = {"0": {"ranks": "[0, 1, 2]"}} if rank < 3 else {"1": {"ranks": "[3, 4]"}}
        one["pg_status"] = {}
    found = {finding.code: finding.ranks for finding in judged(documents)}
    assert found == {"N01": (4,), "N12": (1,)}


@pytest.mark.parametrize(
    ("own_entry", "found"), [("over", ("N11", ())), ("left out", ("N11", ())), ("open", ("N01", (2,)))]
)
def test_a_batch_of_sends_is_over_when_its_own_entry_is(own_entry, found):
    # ProcessGroupNCCL never says of the sends of a batch that they are over.
    documents = {}
    for rank in range(3):
        titles = f"nccl:send {rank}->{(rank + 1) % 3}", f"nccl:recv {rank}<-{(rank + 2) % 3}"
        sends = [entry(1, title, is_p2p=True, p2p_seq_id=1, op_id=2) for title in titles]
        batch = [entry(1, "nccl:coalesced", over=own_entry == "over", p2p_seq_id=1, op_id=2)]
        calls = [*sends, *batch * (own_entry != "left out"), entry(2, op_id=3)]
        if own_entry == "open":
            # The last rank does not come to the batch.
            calls = calls[:-1] if rank < 2 else []
        documents[rank] = whole(entry(1, over=True), *calls)
        for place, one in enumerate(documents[rank]["entries"]):
            one["record_id"] = place
    assert [(finding.code, finding.ranks) for finding in judged(documents)] == [found]


@pytest.mark.parametrize(("form", "situation"), recordings())
def test_every_recorded_dump_is_judged_as_it_must_be(form, situation):
    one, expected = situations(form)[situation], EXPECTED[situation]
    dumps = []
    for rank, answers in one["answers"].items():
        for answer in answers.values():
            data = base64.b64decode(answer) if isinstance(answer, str) else json.dumps(answer).encode()
            with suppress(ValueError):
                dumps.append(parse_dump(f"trace_rank_{rank}", data))
    found = {(finding.code, finding.ranks) for finding in judge_dumps(dumps)}
    timed = form.endswith("timing")
    if situation == "healthy" or (situation == "mixed_gloo_hangs" and form.startswith(("2.6", "2.8"))):
        assert found == set()
    elif "odd" in expected:
        assert found == {(expected["cause"], tuple(expected["odd"]))}
    elif situation in ("hung_kernel", "compute_blocked"):
        assert found == {("N12", (1,)) if timed and situation == "compute_blocked" else ("N11", ())}
    else:
        assert found == {("N01", tuple(expected["late"]))}


@pytest.mark.skipif(
    not REAL_DUMPS,
    reason="PACELINE_REAL_DUMPS names no folder of tests/attribution/unit/fr_traces of nvidia-resiliency-ext",
)
def test_the_real_faults_are_found():
    folders = sorted(path.parent for path in Path(REAL_DUMPS).glob("*/fault_injection.log"))
    assert len(folders) == 4
    for folder in folders:
        told = (folder / "fault_injection.log").read_text().splitlines()[0]
        (finding,) = judge_dumps([parse_dump(path.name, path.read_bytes()) for path in sorted(folder.glob("_dump_*"))])
        assert list(finding.ranks) == json.loads(told.partition(":")[2]), folder.name
