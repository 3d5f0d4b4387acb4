"""What torch's worker server answered in NCCL ranks of eight torches, and the heartbeats that follow from it.

torch's own process groups, recorders and server answered, over a stand-in for the CUDA runtime and for libnccl: devices, kernels and clocks
are not real. A form is a torch, with `-timing` where it was told to time its collectives, with the backend's name where torch has several.
"""

import base64
import gzip
import json
from functools import cache
from pathlib import Path

from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.flight_recorder import Trace, parse_traces

FOLDER = Path(__file__).parent / "data" / "nccl"
FORMS = tuple(sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz")))
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
SECOND = 1_000_000_000
NOW_NS = 1_795_000_000 * SECOND
_RECORDERS = {
    "fr_trace_json": "gloo",
    "fr_trace_json?backend=nccl2": "nccl2",
    "dump_nccl_trace_json": "nccl",
    "dump_nccl_trace_pickle": "nccl",
}


@cache
def situations(form):
    return json.loads(gzip.decompress((FOLDER / f"{form}.json.gz").read_bytes()))


def recordings():
    """Every situation of every form."""
    return [(form, situation) for form in FORMS for situation in situations(form)]


def traces_of(form, situation) -> dict[int, Trace | None]:
    """Rank -> what its recorders answered; None: it did not answer."""
    one = situations(form)[situation]
    answers = {int(rank): of_rank for rank, of_rank in one["answers"].items()}
    return {rank: _parsed(answers.get(rank)) for rank in range(one["world_size"])}


def _parsed(answers):
    if not answers:
        return None
    return parse_traces(
        (_RECORDERS[question], base64.b64decode(answer) if isinstance(answer, str) else json.dumps(answer).encode())
        for question, answer in answers.items()
    )


def heartbeats_of(traces) -> dict[int, Heartbeat]:
    """Ranks that have not moved for a minute, and of which only the recorders are known."""
    return {
        rank: Heartbeat(
            host="h",
            rank=rank,
            at_ns=NOW_NS,
            moved_ns=NOW_NS - 60 * SECOND,
            phase="compute",
            pid=100 + rank,
            state="S",
            groups=None if trace is None else trace.groups,
        )
        for rank, trace in traces.items()
    }
