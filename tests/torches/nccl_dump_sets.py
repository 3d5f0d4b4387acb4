"""Flight recorder dumps of jobs with one or two faults, drawn by a seed, with the truth beside them: for judging who was at fault.

    python tests/torches/nccl_dump_sets.py FOLDER SEED       writes FOLDER/set_NN/{truth.json, rank_dumps/nccl_trace_rank_N}

Each job trains (8 to 16 ranks of tensor, data, pipeline and expert groups over the stand-in for CUDA and NCCL, see build_fake_gpu.py): some
healthy steps, then its fault. When no rank moves any more, each dumps its recorder.
"""

import ctypes
import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TESTS = str(Path(__file__).resolve().parent)
RECORDERS = (("2.13.0", "nccl"), ("2.15.0", "nccl-legacy"), ("2.15.0", "nccl"))
# tensor, data, pipeline; ranks of a stage that share experts (0: no experts)
LAYOUTS = ((2, 2, 2, 4), (4, 2, 1, 4), (2, 4, 1, 8), (4, 1, 2, 0), (2, 3, 2, 3), (3, 2, 2, 6), (2, 2, 3, 4), (4, 2, 2, 4),
           (2, 4, 2, 8), (1, 4, 2, 2), (2, 2, 4, 0), (1, 5, 2, 5), (4, 3, 1, 6), (1, 4, 3, 4), (4, 1, 3, 2), (2, 4, 2, 4))  # fmt: skip
STORIES = (
    "stuck",
    "stuck",
    "device",
    "hang",
    "hang",
    "operation",
    "size",
    "message",
    "crash",
    "truncated",
    "stuck+stuck",
    "stuck+device",
)
KINDS = {"stuck": "missing", "crash": "missing", "device": "device", "hang": "collective never ends", "operation": "mismatch",
         "size": "mismatch", "no send": "message", "before send": "message"}  # fmt: skip
TEXTS = {
    "stuck": "rank {rank} is stuck in Python before its {what} number {number} of {group}; the others go on",
    "crash": "rank {rank} is killed before its {what} number {number} of {group}, and leaves no dump",
    "device": "the stream of rank {rank} stops before its {what} number {number} of {group}; its host goes on",
    "hang": "{what} number {number} of {group} never ends on the devices, though all of its ranks call it",
    "operation": "rank {rank} calls {other} instead of {what} as number {number} of {group}",
    "size": "rank {rank} calls {what} number {number} of {group} with half the size",
    "no send": "rank {rank} leaves out its send number {number} in {group} and goes on",
    "before send": "rank {rank} is stuck in Python before its send number {number} in {group}",
}  # fmt: skip


class Layout:
    """Who is in which group, and what each rank calls in which order."""

    def __init__(self, spec):
        self.spec = spec
        self.tensor, self.data, self.pipeline, self.experts = spec["layout"]
        self.size = self.tensor * self.data * self.pipeline
        stage = self.tensor * self.data
        ranks = range(self.size)
        kinds = {
            "tp": [[r for r in ranks if r // self.tensor == i] for i in range(self.size // self.tensor)],
            "dp": [
                [r for r in ranks if r // stage == s and r % self.tensor == t]
                for s in range(self.pipeline)
                for t in range(self.tensor)
            ],
            "pp": [[r for r in ranks if r % stage == i] for i in range(stage)] if self.pipeline > 1 else [],
            "ep": [[r for r in ranks if r // self.experts == i] for i in range(self.size // self.experts)]
            if self.experts
            else [],
            "emb": [[i, self.size - stage + i] for i in range(stage)] if self.pipeline > 1 else [],
        }
        self.groups = {"world": list(ranks)}
        for kind in spec["order"]:
            self.groups.update({f"{kind}{i}": members for i, members in enumerate(kinds[kind]) if len(members) > 1})

    def group_of(self, rank, kind):
        return next(
            (name for name, members in self.groups.items() if name.rstrip("0123456789") == kind and rank in members),
            None,
        )

    def program(self, rank):
        """Calls of a rank in order: (step, group, what, elements, asynchronous or the peer of a message)."""
        spec, calls = self.spec, []
        stage, width = rank // (self.tensor * self.data), self.tensor * self.data
        messages = "world" if spec["messages_in_world"] else self.group_of(rank, "pp")

        def call(kind, what, elements, more=False):
            if group := self.group_of(rank, kind):
                calls.append((step, group, what, elements, more))

        def message(what, towards):
            if 0 <= stage + towards < self.pipeline:
                calls.append((step, messages, what, spec["hidden"], rank + towards * width))

        first, second = ("all_gather", "reduce_scatter") if spec["sequence_parallel"] else ("all_reduce", "all_reduce")
        for step in range(spec["steps"] + 2):
            call("world", "broadcast", 8)
            for way, source, target in (("forward", -1, 1), ("backward", 1, -1)):
                for micro in range(spec["micro_batches"]):
                    message("recv", source)
                    for number in range(spec["layers"]):
                        call("tp", first, spec["hidden"])
                        call("ep", "all_to_all", spec["hidden"] * self.experts)
                        call("tp", second, spec["hidden"])
                        if way == "backward" and micro == spec["micro_batches"] - 1:
                            call("dp", "reduce_scatter", spec["hidden"] * (4 + number), spec["asynchronous"])
                    message("send", target)
            calls.append((step, "", "wait", 0, False))
            call("dp", "all_reduce", 256)
            if stage in (0, self.pipeline - 1):
                call("emb", "all_reduce", spec["hidden"] * 2)
            call("world", "all_reduce", 1)
            for number in range(spec["layers"]):
                call("dp", "all_gather", spec["hidden"] * (4 + number), spec["asynchronous"])
            calls.append((step, "", "wait", 0, False))
            call("world", "all_reduce", 2)
            calls.append((step, "", "synchronize", 0, False))
        return calls

    def numbered(self, rank):
        """The program, and of each call which one it is of its group (messages count by their direction)."""
        counts = Counter()
        for one in self.program(rank):
            key = (one[1], one[2] if one[2] in ("send", "recv") else "collective")
            yield one, key, counts[key]
            counts[key] += 1


def draw(seed, index, story, recorder):
    """One job, and its faults."""
    dice = random.Random(f"{seed}/{index}")
    while True:
        spec = {
            "story": story, "recorder": recorder, "layout": dice.choice(LAYOUTS), "order": dice.sample(["tp", "dp", "pp", "ep", "emb"], 5),
            "descriptions": dice.choice(["kind", "same", "none"]), "steps": dice.randint(4, 6), "micro_batches": dice.randint(2, 3),
            "layers": 2, "hidden": 1 << dice.randint(8, 12), "sequence_parallel": dice.random() < 0.5,
            "asynchronous": dice.random() < 0.6, "messages_in_world": dice.random() < 0.25, "batched": dice.random() < 0.5,
            "ahead": "+" in story or dice.random() < 0.65, "only_active": dice.random() < 0.3,
            "ring": dice.choice([2000, 2000, 256]), "timing": dice.random() < 0.5,
        }  # fmt: skip
        layout = Layout(spec)
        kinds = [dice.choice(["stuck", "device"])] if story == "truncated" else story.split("+")
        spec["faults"] = faults = [fault for kind in kinds if (fault := draw_fault(dice, layout, kind))]
        members = [set(layout.groups[fault["group"]]) for fault in faults]
        if len(faults) == len(kinds) and (len(faults) == 1 or not members[0] & members[1]):
            spec["truncated"] = dice.randrange(layout.size) if story == "truncated" else None
            spec["truncated_to"] = dice.uniform(0.3, 0.8)
            return spec


def draw_fault(dice, layout, kind):
    """A fault in the first step after the healthy ones; none if the drawn layout has no place for it."""
    kind = dice.choice(["no send", "before send"]) if kind == "message" else kind
    group = dice.choice(
        sorted({name.rstrip("0123456789") for name in layout.groups} - (set() if "send" in kind else {"pp"}))
    )
    rank = dice.randrange(layout.size)
    places = [
        (one, number)
        for one, key, number in layout.numbered(rank)
        if one[0] == layout.spec["steps"] and ("send" in kind or one[1] == layout.group_of(rank, group))
        if key[1] == ("send" if "send" in kind else "collective") and one[1]
        # The stand-in counts no all_to_all, and all that is in flight when a collective begins to hang would hang with it.
        if kind != "hang" or (group != "ep" and one[4] is False)
        if kind not in ("operation", "size") or (len(layout.groups[one[1]]) > 2 and one[3] > 1)
    ]
    if not places:
        return None
    one, number = dice.choice(places)
    other = dice.choice([what for what in ("all_reduce", "broadcast", "all_gather") if what != one[2]])
    ranks = layout.groups[one[1]] if kind == "hang" else [rank]
    return {"kind": kind, "group": one[1], "what": one[2], "number": number, "other": other, "ranks": ranks}


def truth_of(spec):
    layout, faults = Layout(spec), spec["faults"]
    texts = [TEXTS[fault["kind"]].format(**{**fault, "rank": fault["ranks"][0]}) for fault in faults]
    kinds = [KINDS[fault["kind"]] for fault in faults]
    note = [f"torch {spec['recorder'][0]}, backend {spec['recorder'][1]}, (tp, dp, pp, ep) = {tuple(spec['layout'])}"]
    note += [
        f"descriptions: {spec['descriptions']}",
        f"ring of {spec['ring']}",
        "open entries only" if spec["only_active"] else "whole ring",
    ]
    note += [
        "hosts run ahead until the step's end" if spec["ahead"] else "hosts wait for each call",
        f"timing: {spec['timing']}",
    ]
    note += [] if spec["truncated"] is None else [f"the dump of rank {spec['truncated']} is cut"]
    return {
        "fault": "; ".join(texts), "culprits": sorted({r for f in faults if f["kind"] != "hang" for r in f["ranks"]}), "kind": kinds[0],
        "kinds": kinds, "group": layout.groups[faults[0]["group"]], "groups": [layout.groups[f["group"]] for f in faults],
        "note": "; ".join(note), "spec": spec,
    }  # fmt: skip


def rank_of(rank, spec, folder, target, progress):
    """One rank, until it is killed."""
    import torch
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), FAKE_GPU_DIRECTORY=str(folder))
    layout, fake, sizes = Layout(spec), ctypes.CDLL(None), torch.zeros
    torch.cuda.set_device(rank)
    store = dist.FileStore(str(folder / "store"))
    dist.init_process_group(spec["recorder"][1], store=store, rank=rank, world_size=layout.size)
    groups = {"world": None}
    for name, members in list(layout.groups.items())[1:]:
        text = {"kind": name.rstrip("0123456789"), "same": "model_parallel", "none": None}[spec["descriptions"]]
        groups[name] = dist.new_group(members, group_desc=text)
    threading.Thread(target=dump, args=(rank, spec, folder, target), daemon=True).start()
    works = []

    def call(group, what, elements, more):
        handle, count = groups[group], len(layout.groups[group])
        if what in ("send", "recv"):
            function = dist.isend if what == "send" else dist.irecv
            tensor = sizes(elements, device="cuda")
            batch = [dist.P2POp(function, tensor, more, handle)]
            done = dist.batch_isend_irecv(batch) if spec["batched"] else [function(tensor, more, group=handle)]
            return [work.wait() for work in done]
        one, all_of_them = sizes(elements, device="cuda"), lambda: sizes(elements * count, device="cuda")
        work = {
            "all_reduce": lambda: dist.all_reduce(one, group=handle, async_op=more),
            "broadcast": lambda: dist.broadcast(one, layout.groups[group][0], group=handle, async_op=more),
            "all_gather": lambda: dist.all_gather_into_tensor(all_of_them(), one, group=handle, async_op=more),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, all_of_them(), group=handle, async_op=more),
            "all_to_all": lambda: dist.all_to_all_single(
                sizes(elements, device="cuda"), one, group=handle, async_op=more
            ),
        }[what]()
        return works.append(work) if more else None

    for index, ((_, group, what, elements, more), key, number) in enumerate(layout.numbered(rank)):
        progress[8 * rank : 8 * rank + 8] = struct.pack("q", index + 1)
        here = [
            f["kind"] for f in spec["faults"] if rank in f["ranks"] and (f["group"], f["number"]) == (group, number)
        ]
        here = here[0] if here and (key[1] == "send") == ("send" in here[0]) and key[1] != "recv" else ""
        if here in ("stuck", "before send"):
            time.sleep(3600)
        elif here == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif here == "device":
            fake.fake_gpu_block_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        elif here == "hang":
            torch.cuda.synchronize()
            fake.fake_nccl_hang_from(ctypes.c_long(number))
        elif here == "operation":
            what = next(f["other"] for f in spec["faults"])
        elif here == "size":
            elements //= 2
        if what in ("wait", "synchronize"):
            while works:
                works.pop(0).wait()
        elif here != "no send":
            call(group, what, elements, more)
        if what == "synchronize" or not (spec["ahead"] or more is True):
            torch.cuda.current_stream().synchronize()
    raise SystemExit("the program came to its end")


def dump(rank, spec, folder, target):
    """What torch gives out of its recorder, once the parent asks for it."""
    from torch._C import _distributed_c10d as c10d

    while not (folder / "dump").exists():
        time.sleep(0.1)
    if spec["recorder"] == ["2.15.0", "nccl"]:
        content = c10d._dump_fr_trace_json(True, spec["only_active"], "nccl2")
    else:
        content = c10d._dump_nccl_trace(True, True, spec["only_active"])
    content = content.encode() if isinstance(content, str) else content
    if rank == spec["truncated"]:
        content = content[: int(len(content) * spec["truncated_to"])]
    (folder / f"{rank}.part").write_bytes(content)
    shutil.move(folder / f"{rank}.part", target / f"nccl_trace_rank_{rank}")


def run_job(path):
    """The ranks of one job: until none moves, then until each has dumped."""
    import torch  # noqa: F401  before the ranks are there, once for all

    spec, target = json.loads((path / "truth.json").read_text())["spec"], path / "rank_dumps"
    size, gone = Layout(spec).size, {f["ranks"][0] for f in spec["faults"] if f["kind"] == "crash"}
    progress, pids = mmap.mmap(-1, 8 * size), []
    with tempfile.TemporaryDirectory(prefix="blind-", dir="/dev/shm") as name:
        for rank in range(size):
            if not (pid := os.fork()):
                try:
                    rank_of(rank, spec, Path(name), target, progress)
                except BaseException as error:
                    print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            pids.append(pid)
        try:
            seen, since, begin = b"", time.monotonic(), time.monotonic()
            while (
                time.monotonic() - since < 6 or 0 in struct.unpack(f"{size}q", seen)
            ) and time.monotonic() - begin < 150:
                if progress[:] != seen:
                    seen, since = progress[:], time.monotonic()
                time.sleep(0.2)
            (Path(name) / "dump").touch()
            begin = time.monotonic()
            while len(list(target.iterdir())) < size - len(gone) and time.monotonic() - begin < 40:
                time.sleep(0.2)
            print(
                f"{path.name}: {len(list(target.iterdir()))} dumps of {size}, calls {struct.unpack(f'{size}q', progress[:])}",
                flush=True,
            )
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main():
    folder, seed = Path(sys.argv[1]), sys.argv[2]
    if seed == "--job":  # the folder is one set, to be run in this process
        return run_job(folder)
    sys.path.insert(0, TESTS)
    from build_fake_gpu import nccl_environment
    from install_torch import python_of

    dice = random.Random(seed)
    stories, recorders = dice.sample(STORIES, len(STORIES)), dice.sample(RECORDERS * 4, len(STORIES))
    for index, (story, recorder) in enumerate(zip(stories, recorders, strict=True), 1):
        spec, path = draw(seed, index, story, recorder), folder / f"set_{index:02}"
        (path / "rank_dumps").mkdir(parents=True)
        (path / "truth.json").write_text(json.dumps(truth_of(spec), indent=1))
        rings = {"TORCH_NCCL_TRACE_BUFFER_SIZE": str(spec["ring"]), "TORCH_FR_BUFFER_SIZE": str(spec["ring"])}
        others = {
            "TORCH_NCCL_ENABLE_TIMING": str(int(spec["timing"])),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        environment = {**os.environ, **nccl_environment(recorder[0]), **rings, **others}
        subprocess.run([python_of(recorder[0]), __file__, path, "--job"], env=environment, check=False)
    return None


if __name__ == "__main__":
    main()
