"""Flight-recorder dumps: whole or cut off, JSON or pickle, who is behind and who called something else."""

import json
import os
import pickle

import pytest

from paceline.diagnosis.logs.compare_dumps import judge_dumps
from paceline.diagnosis.logs.flight_recorder_dumps import looks_like_dump, parse_dump
from paceline.findings import Confidence


def entry(index, operation="gloo:all_reduce", shape=(4,), dtype="Float", done=True, line=7):
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/x/site-packages/torch/d.py", "line": 1},
            {"name": "main", "filename": "/home/u/train.py", "line": line},
        ],
        "record_id": index - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": index,
        "p2p_seq_id": 0,
        "profiling_name": operation,
        "time_created_ns": 1_795_000_000_000_000_000 + index,
        "input_sizes": [list(shape)],
        "input_dtypes": [dtype],
        "state": "scheduled",
        "retired": done,
        "is_p2p": False,
    }


def document(*entries, enqueued=None, completed=None, ranks="[0, 1]"):
    last = len(entries)
    return {
        "version": "2.10",
        "entries": list(entries),
        "pg_config": {"": {"name": "", "desc": "", "ranks": ranks}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": last if enqueued is None else enqueued,
                "last_started_collective": -1,
                "last_completed_collective": last if completed is None else completed,
            }
        },
    }


def as_json(document):
    return json.dumps(document, sort_keys=True).encode()


def as_pickle(document):
    return pickle.dumps(document, protocol=2)


WAITS = document(*map(entry, range(1, 7)), entry(7, shape=(8,), done=False), completed=6)
BEHIND = document(*map(entry, range(1, 7)))


@pytest.mark.parametrize("written", [as_json, as_pickle])
def test_the_rank_that_has_issued_less_is_behind(written):
    dumps = [parse_dump(f"trace_rank_{rank}", written(part)) for rank, part in enumerate((WAITS, BEHIND))]
    (finding,) = judge_dumps(dumps)
    assert (finding.code, finding.ranks, finding.confidence) == ("N01", (1,), Confidence.LIKELY)
    assert "number 7: all_reduce [[8]] Float at /home/u/train.py:7" in finding.saw[1]


@pytest.mark.parametrize("written", [as_json, as_pickle])
def test_a_dump_that_is_cut_anywhere_is_read_or_refused(written):
    data = written(WAITS)
    for length in range(10, len(data), 37):
        try:
            dump = parse_dump("trace_rank_0", data[:length])
        except ValueError:
            continue
        assert "truncated" in dump.note
        assert all(max(group.calls, default=0) <= 7 for group in dump.groups)


def test_a_dump_cut_before_its_counters_makes_nobody_late():
    cut = as_json(BEHIND)[:900]
    dumps = [parse_dump("trace_rank_0", as_json(WAITS)), parse_dump("trace_rank_1", cut)]
    assert 0 < max(dumps[1].groups[0].calls) < 6
    assert all(finding.confidence is Confidence.UNCLEAR for finding in judge_dumps(dumps))


@pytest.mark.parametrize(
    ("change", "code"),
    [({"operation": "gloo:broadcast"}, "M01"), ({"shape": (5,)}, "M02"), ({"dtype": "Int"}, "M03")],
)
def test_ranks_that_called_different_things_at_one_place_diverge(change, code):
    dumps = [
        parse_dump("t_0", as_json(document(entry(1), entry(2, done=False), completed=1))),
        parse_dump("t_1", as_json(document(entry(1), entry(2, done=False, line=9, **change), completed=1))),
    ]
    (finding,) = judge_dumps(dumps)
    assert (finding.code, finding.confidence) == (code, Confidence.HIGH)
    assert "number 2, rank 1" in finding.saw[1] and "train.py:9" in finding.saw[1]


def test_a_rank_without_a_dump_is_named():
    (finding,) = judge_dumps(
        [parse_dump("t_0", as_json(document(entry(1, done=False), completed=0, ranks="[0, 1, 2]")))]
    )
    assert finding.ranks == (1, 2)
    assert finding.confidence is Confidence.UNCLEAR


def test_ranks_that_are_done_give_nothing():
    assert judge_dumps([parse_dump(f"t_{rank}", as_json(BEHIND)) for rank in (0, 1)]) == []


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    with pytest.raises(ValueError, match="would import"):
        parse_dump("t_0", pickle.dumps({"entries": [Evil()]}, protocol=2))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("data", [b"\x80\x02.", b"\x80\x04]\x94.", b"{}", b'{"entries": 3}', b'{"pg_status": []}'])
def test_what_is_no_dump_is_refused(data):
    with pytest.raises(ValueError):
        parse_dump("t_0", data)


def test_a_dump_is_known_by_its_first_bytes():
    assert looks_like_dump(as_json(WAITS)) and looks_like_dump(as_pickle(WAITS))
    assert not looks_like_dump(b"epoch 1\n") and not looks_like_dump(b'{"loss": 1}')


def old_entry(index, operation="nccl:all_reduce", state="completed"):
    """As torch 2.1 to 2.3 write one: NCCLTraceBuffer::dump of their ProcessGroupNCCL.cpp and TraceUtils.h."""
    sizes = {"input_sizes": [[4]], "output_sizes": [[4]]}
    return {"pg_id": 0, "seq_id": index, "profiling_name": operation, **sizes, "frames": [], "state": state}


@pytest.mark.parametrize("wrapped", [lambda entries: entries, lambda entries: {"version": "1.1", "entries": entries}])
def test_dumps_of_older_torch_tell_who_is_behind(wrapped):
    ahead = [*(old_entry(index) for index in range(1, 7)), old_entry(7, state="started")]
    behind = [old_entry(index) for index in range(1, 7)]
    dumps = [
        parse_dump(f"trace_rank_{rank}", as_pickle(wrapped(entries))) for rank, entries in ((0, ahead), (1, behind))
    ]
    (finding,) = judge_dumps(dumps)
    assert (finding.code, finding.ranks, finding.confidence) == ("N01", (1,), Confidence.LIKELY)


def test_older_dumps_with_sends_are_not_compared():
    entries = [old_entry(1), old_entry(2, "nccl:send 0->1")]
    with pytest.raises(ValueError, match="cannot be compared"):
        parse_dump("trace_rank_0", as_pickle(entries))
