"""Dumps of jobs that hang, made without torch: ranks in a grid, groups of rows, columns and all, one stream, hosts that run ahead of it.

What a recorder of each kind writes follows what test_compare_dumps' recorded dumps have.
"""

import json
import pickle
import random
from dataclasses import dataclass, field

ALL = "0"
FORMS = ("nccl", "nccl, only what is open", "nccl2", "gloo")


@dataclass
class Rank:
    """One rank: what its host has issued and what its device has done."""

    program: list[str]
    """The group of each call, or "" where the host waits for the device."""
    issued: list[tuple[str, int]] = field(default_factory=list)
    """Group and number of each collective that was issued."""
    done: list[bool] = field(default_factory=list)
    """Whether the device has done it."""
    noticed: list[bool] = field(default_factory=list)
    """Whether the recorder knows that it is over."""
    at: int = 0
    """Place of the host in the program."""

    def begun(self, streams: bool) -> dict[tuple[str, int], int]:
        """The collectives that the device is in, with their places: the oldest, or with a stream for each group the oldest of each."""
        found: dict[str, int] = {}
        for place, (group, _) in enumerate(self.issued):
            if not self.done[place]:
                found.setdefault(group if streams else "", place)
        return {self.issued[place]: place for place in found.values()}


@dataclass
class Job:
    """A job and what is wrong with it."""

    ranks: dict[int, Rank]
    """Rank -> the rank."""
    members: dict[str, tuple[int, ...]]
    """Group -> its ranks."""
    culprit: int
    """The rank at fault."""
    fault: str
    """What is wrong with it. "host": it issues nothing; "stream": its device does nothing; "device": it does one collective more, which its
    recorder does not notice; "none": nothing."""
    place: int
    """After how many collectives of the culprit."""
    streams: bool
    """Each group has a stream of its own, so that its collectives do not wait for those of others."""


def make(seed: int, fault: str, streams: bool = False) -> Job:
    """A job that stands still because of one rank."""
    draw = random.Random(seed)
    rows, columns = draw.randint(2, 4), draw.randint(2, 4)
    spot = {(row, column): row * columns + column for row in range(rows) for column in range(columns)}
    members = {ALL: tuple(spot.values())}
    members |= {str(1 + row): tuple(spot[row, column] for column in range(columns)) for row in range(rows)}
    members |= {str(1 + rows + column): tuple(spot[row, column] for row in range(rows)) for column in range(columns)}
    schedule = [draw.choice(("row", "row", "column", "all", "wait", "log")) for _ in range(40)] + ["all", "wait"]
    # The first rank logs, and waits for its device to do so.
    ranks = {
        rank: Rank([
            {"row": str(1 + row), "column": str(1 + rows + column), "all": ALL}.get(kind, "")
            for kind in schedule if kind != "log" or rank == 0
        ])
        for (row, column), rank in spot.items()
    }  # fmt: skip
    job = Job(ranks, members, draw.choice(list(ranks)), fault, draw.randint(0, 12), streams)
    _run(job, draw)
    return job


def make_pipeline(seed: int, fault: str, streams: bool = False) -> Job:
    """A job whose ranks pass batches from stage to stage, with an all_reduce of each stage for each batch, that stands still."""
    draw = random.Random(seed)
    stages, width, batches = draw.randint(2, 4), draw.randint(1, 3), draw.randint(2, 5)
    members = {ALL: tuple(range(stages * width))}
    members |= {str(1 + stage): tuple(range(stage * width, (stage + 1) * width)) for stage in range(stages)}
    members |= {str(1 + stages + lane): tuple(range(lane, stages * width, width)) for lane in range(width)}
    programs: dict[int, list[str]] = {rank: [ALL] for rank in members[ALL]}
    for _ in range(batches):
        for rank, program in programs.items():
            stage, lane = divmod(rank, width)
            before, after = f"{1 + stages + lane}:{stage - 1}->{stage}", f"{1 + stages + lane}:{stage}->{stage + 1}"
            program += [before, ""] * (stage > 0) + [str(1 + stage)] * 2 + [after] * (stage < stages - 1)
            if draw.random() < 0.3:
                program.append("")
    for program in programs.values():
        program += [ALL, ""]
    for name in {name for program in programs.values() for name in program if ":" in name}:
        group, _, ends = name.partition(":")
        members[name] = tuple(members[group][int(end)] for end in ends.split("->"))
    culprit = draw.choice(members[ALL])
    calls = sum(group != "" for group in programs[culprit])
    job = Job(
        {rank: Rank(program) for rank, program in programs.items()},
        members,
        culprit,
        fault,
        draw.randint(0, calls - 1),
        streams,
    )
    _run(job, draw)
    return job


def _run(job: Job, draw: random.Random) -> None:
    """Until nothing moves any more."""
    numbers = {rank: dict.fromkeys(job.members, 0) for rank in job.ranks}
    moved = True
    while moved:
        moved = False
        for number in draw.sample(list(job.ranks), len(job.ranks)):
            rank = job.ranks[number]
            while rank.at < len(rank.program):
                group = rank.program[rank.at]
                if group == "" and not all(rank.noticed):
                    break
                if group and job.fault == "host" and number == job.culprit and len(rank.issued) == job.place:
                    break
                if group:
                    numbers[number][group] += 1
                    rank.issued.append((group, numbers[number][group]))
                    rank.done.append(False)
                    rank.noticed.append(False)
                rank.at, moved = rank.at + 1, True
        for rank in job.ranks.values():
            for call in rank.begun(job.streams):
                moved = _end(job, call) or moved


def _end(job: Job, call: tuple[str, int]) -> bool:
    """Whether the collective ends now, because all are in it."""
    begun = {number: job.ranks[number].begun(job.streams) for number in job.members[call[0]]}
    if not all(call in of_rank for of_rank in begun.values()):
        return False
    culprit = job.ranks[job.culprit]
    stuck = job.fault in ("stream", "device") and sum(culprit.done) >= job.place
    if job.culprit in begun and stuck and (job.fault == "stream" or sum(culprit.done) > job.place):
        return False
    for number, of_rank in begun.items():
        job.ranks[number].done[of_rank[call]] = True
        job.ranks[number].noticed[of_rank[call]] = not (number == job.culprit and stuck)
    return True


def document(job: Job, number: int, form: str) -> dict[str, object]:
    """What the recorder of one rank writes."""
    rank, recorder = job.ranks[number], form.split(",")[0]
    own = [group for group, ranks in job.members.items() if number in ranks and ":" not in group]
    # Numbers of the process: no member of a group has to have the same.
    ids = {group: 2 * place + number % 2 for place, group in enumerate(own)}
    entries = []
    operations = dict.fromkeys(own, 0)
    sent = dict.fromkeys(own, 0)
    collectives = dict.fromkeys(own, 0)
    none = -1 if recorder == "nccl2" else 0
    last = {group: [none, none] for group in own}
    for place, (call, index) in enumerate(rank.issued):
        group, _, ends = call.partition(":")
        over = rank.noticed[place]
        operations[group] += 1
        title = "all_reduce"
        if ends:
            sent[group] += 1
            sender, receiver = ends.split("->")
            title = f"send {ends}" if job.members[call][0] == number else f"recv {receiver}<-{sender}"
        else:
            collectives[group] = index
        counted = {"nccl": sent[group] if ends else index, "nccl2": operations[group] - 1, "gloo": operations[group]}[
            recorder
        ]
        last[group] = [counted, counted if over else last[group][1]]
        if over and form in ("nccl, only what is open", "nccl2"):
            continue
        entries.append({
            "record_id": place, "pg_id": ids[group], "process_group": [group, "default_pg" if group == ALL else "MODEL_PARALLEL_GROUP"],
            "collective_seq_id": collectives[group], "p2p_seq_id": sent[group], "op_id": operations[group] - (recorder == "nccl2"),
            "profiling_name": f"{recorder}:{title}", "input_sizes": [[4]], "input_dtypes": ["Float"],
            "output_sizes": [[4]], "output_dtypes": ["Float"],
            "state": "completed" if over and recorder == "nccl" else "scheduled", "retired": over, "is_p2p": bool(ends),
        })  # fmt: skip
    status = {
        str(ids[group]): {
            "last_enqueued_collective": issued, "last_started_collective": -1, "last_completed_collective": over,
        }
        for group, (issued, over) in last.items()
    }  # fmt: skip
    config = {group: {"name": group, "desc": "", "ranks": str(list(job.members[group]))} for group in own}
    return {"version": "2.10", "entries": entries, "pg_config": config, "pg_status": status}


def written(document: object, as_pickle: bool) -> bytes:
    """The document as a file."""
    return pickle.dumps(document, protocol=2) if as_pickle else json.dumps(document, sort_keys=True).encode()
