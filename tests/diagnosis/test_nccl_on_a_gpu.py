"""What the recorder of one NCCL rank answered on an H200 while a kernel of half a minute ran, and what follows from it.

Recorded by `python bench/gpu_nccl.py`, torch 2.11.0, NCCL 2.28.9, with torch's timing of collectives and without.
"""

import gzip
import json
from pathlib import Path

import pytest
from tests.diagnosis.nccl_recordings import NOW_NS, heartbeats_of

from paceline.diagnosis.flight_recorder import parse_traces
from paceline.diagnosis.hang.stall import StallDetector

ANSWERS = json.loads(gzip.decompress((Path(__file__).parent / "data" / "nccl_h200.json.gz").read_bytes()))
FORMS = sorted(ANSWERS)


def trace_of(form, situation):
    answers = ANSWERS[form][situation]["answers"]["0"]
    names = {"fr_trace_json": "gloo", "dump_nccl_trace_json": "nccl"}
    return parse_traces((names[question], json.dumps(answer).encode()) for question, answer in answers.items())


@pytest.mark.parametrize("form", FORMS)
def test_sums_that_are_over_are_over(form):
    trace = trace_of(form, "healthy")
    (group,) = trace.groups
    assert (group.recorder, group.enqueued, group.completed) == ("nccl", 6, 6)
    assert all(entry.retired for entry in trace.entries)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("situation", ["kernel_before", "coalesced"])
def test_a_sum_behind_a_kernel_that_runs_is_open_and_no_rank_is_late(form, situation):
    trace = trace_of(form, situation)
    (group,) = trace.groups
    assert (group.enqueued, group.completed) == (5, 4)
    stall = StallDetector(1).observe(heartbeats_of({0: trace}), NOW_NS)
    assert stall is None or not stall.late
