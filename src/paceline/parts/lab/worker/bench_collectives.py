"""Times collectives among the ranks of a job and checks their results. The ranks of `paceline bench` run this module.

The command is `python -m paceline.parts.lab.worker.bench_collectives QUESTION`, where QUESTION is one JSON object. Rank 0 writes the
answers, one line each.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from .bench_calls import BenchCall, BenchCase
from .bench_group import BenchAnswers, BenchGroup, BenchRefused, describe, join, leave, one_line

_NO_ROOT, _NO_OPERATION = -1, "none"
# nccl-tests does not check an in-place form of these, because they have none.
_NOT_IN_PLACE = frozenset({"all_to_all", "sendrecv"})


def main(words: Sequence[str] | None = None) -> int:
    """Join the group, measure what was asked, leave the group. A refusal is an answer too, so it does not fail the job."""
    asked = json.loads((sys.argv[1:] if words is None else words)[0])
    answers = BenchAnswers(int(os.environ["RANK"]))
    group = None
    try:
        group = join(asked)
        answers.say(world=describe(group))
        if asked.get("pairs"):
            from .bench_pairs import measure_pairs

            measure_pairs(group, asked, answers)
        else:
            measure(group, asked, answers)
        answers.say(end=True)
    except BenchRefused as refused:
        answers.say(refused={"kind": refused.kind, "text": str(refused)})
    answers.close()
    leave(group)
    return 0


def measure(group: BenchGroup, asked: Mapping[str, Any], answers: BenchAnswers) -> None:
    """Measure every case of the question. A case that the backend cannot run is reported and skipped."""
    for _ in range(asked["cycles"]):
        for kind, operation, root in _variants(group, asked):
            try:
                for size in asked["sizes"]:
                    case = BenchCase(
                        collective=asked["collective"],
                        size_bytes=size,
                        type=kind,
                        operation=operation,
                        root=root,
                        rank=group.rank,
                        ranks=group.ranks,
                        device=group.device,
                    )
                    if case.count:
                        answers.say(row=_row(group, case, asked))
                    else:
                        answers.say(left={"what": str(size), "reason": "less than one element for each rank"})
            except BenchRefused as refused:
                answers.say(left={"what": " ".join([kind, operation]), "reason": str(refused)})


def _variants(group: BenchGroup, asked: Mapping[str, Any]) -> Iterable[tuple[str, str, int]]:
    """Type, reduction and root of each table. A collective that has no type, reduction or root to vary gets one entry for it."""
    reduces = asked["collective"] in ("all_reduce", "reduce_scatter", "sendrecv")
    rooted = asked["collective"] == "broadcast"
    for kind in asked["types"]:
        for operation in asked["operations"] if reduces else (_NO_OPERATION,):
            roots = (asked["roots"] or range(group.ranks)) if rooted else (_NO_ROOT,)
            for root in roots:
                yield kind, operation, root


def _row(group: BenchGroup, case: BenchCase, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "size_bytes": case.total_count * case.element_bytes,
        "count": case.count,
        "type": case.type,
        "operation": case.operation,
        "root": case.root,
        "out_of_place": _timing(group, BenchCall(case, in_place=False), asked),
        "in_place": _timing(group, BenchCall(case, in_place=True), asked),
    }


def _timing(group: BenchGroup, call: BenchCall, asked: Mapping[str, Any]) -> dict[str, Any]:
    call.quiet()
    try:
        seconds = asked["size_seconds"] / asked["aggregate"]
        iterations = group.iterations(call.run, asked["warmup"], asked["iterations"], seconds)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise BenchRefused("call", one_line(error)) from error
    own = group.times(call.run, iterations, asked["aggregate"])
    wrong = _wrong(group, call, asked["check"])
    ranks = group.table(own)
    samples = [fmean(row[place] for row in ranks) * 1e6 for place in range(iterations)]
    middle = median(samples)
    return {
        "time": averaged([fmean(row) * 1e6 for row in ranks], asked["average"]),
        "iterations": iterations,
        "median_us": middle,
        "mad_us": median(abs(one - middle) for one in samples),
        "min_us": min(samples),
        "max_us": max(samples),
        "nwrong": wrong,
    }


def averaged(ranks: Sequence[float], how: int) -> float:
    """One time for all ranks. `how` is 0 for rank 0's time, 1 for the mean, 2 for the minimum, 3 for the maximum.

    Source:  nccl-tests src/common.cu, Allreduce(args, &deltaSec, average)
    """
    return (ranks[0], fmean(ranks), min(ranks), max(ranks))[how]


def _wrong(group: BenchGroup, call: BenchCall, repetitions: int) -> int | None:
    """Wrong elements of all ranks in the first repetition that has any; None if nothing is checked."""
    if call.in_place and call.case.collective in _NOT_IN_PLACE:
        return None
    found = 0 if repetitions else None
    for repetition in range(1, repetitions + 1):
        call.prepare(repetition)
        group.settle()
        group.barrier()
        call.run()
        group.settle()
        found = int(sum(row[0] for row in group.table([call.wrong(repetition)])))
        if found:
            break
    return found


if __name__ == "__main__":
    raise SystemExit(main())
