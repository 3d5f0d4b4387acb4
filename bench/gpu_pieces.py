"""The pieces of `make gpu`: each looks at one thing on the GPUs of this machine and returns facts.

No piece changes a setting of a device.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_resume import LAUNCHES, environment_of_ranks, kill_and_compare

from paceline.probes.gpus import read_gpus

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
MODELS = (
    "perceptron", "wide", "residual", "residual_deep", "u_shape", "language", "language_long", "language_wide", "recurrent",
    "recommendation", "picture", "half",
)  # fmt: skip
_BUSY = """
import time, torch
a = torch.randn(4096, 4096, device="cuda")
end = time.monotonic() + 12
while time.monotonic() < end:
    for _ in range(50):
        a = torch.tanh(a @ a / 64)
    torch.cuda.synchronize()
"""
_COLLECTIVES = """
import os, time, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1 << 24, device="cuda")
for _ in range(20):
    dist.all_reduce(x)
torch.cuda.synchronize()
begin = time.perf_counter()
for _ in range(50):
    dist.all_reduce(x)
torch.cuda.synchronize()
if dist.get_rank() == 0:
    print("ms", (time.perf_counter() - begin) / 50 * 1e3, flush=True)
dist.destroy_process_group()
"""
# One rank waits for its GPU in the 30th step, for half a minute on a GPU of 2 GHz; the other one waits for it.
_STUCK = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.cuda.set_device(0)
model = DDP(torch.nn.Linear(256, 256).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    if dist.get_rank() == 1 and step == 30:
        torch.cuda._sleep(60_000_000_000)
    loss = model(torch.ones(8, 256, device="cuda")).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
"""
# An NCCL rank whose sum waits half a minute behind a kernel, and a script that waits for the sum.
_BEHIND = """
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
x = torch.ones(4096, device="cuda")
for step in range(200):
    if step == 100:
        torch.cuda._sleep(60_000_000_000)
    dist.all_reduce(x)
    torch.cuda.synchronize()
dist.destroy_process_group()
"""
SITUATIONS = ("healthy", "kernel_before", "coalesced")
_TOO_MUCH = """
import torch
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(100_000)]
"""


def telemetry() -> dict[str, Any]:
    """What NVML says of a busy GPU, as the recording of a run has it."""
    with _Project() as project:
        project.run(_BUSY)
        samples = [gpu for line in project.telemetry() for gpu in line.get("gpus") or ()]
        why = project.why()
    fields = sorted({name for sample in samples for name, value in sample.items() if value is not None})
    most = {name: max(_numbers(samples, name)) for name in fields if _numbers(samples, name)}
    return {
        "samples": len(samples),
        "fields": fields,
        "most": most,
        "findings": [one["code"] for one in why["findings"]],
    }


def nccl() -> dict[str, Any]:
    """NCCL on one rank, and on all GPUs where there are several; what the recording knows of the collectives."""
    found = {}
    for ranks in sorted({1, _gpu_count()}):
        with _Project() as project:
            said = project.run(_COLLECTIVES, "--nproc-per-node", str(ranks))
            why = project.why()
            found[str(ranks)] = {"all_reduce_64_mib_ms": float(said.split()[1]), "not_judged": why["not_judged"]}
    return found


def shared() -> dict[str, Any]:
    """CUDA tensors over gloo, and over our own exchange, between two ranks that share one GPU."""
    return {backend: _bench("--backend", backend, "-g", "2", "--device", "cuda") for backend in ("gloo", "paceline")}


def memory() -> dict[str, Any]:
    """Twelve models: memory and step time predicted from a trace, and measured."""
    device = _name()
    said = _output([sys.executable, str(HERE / "gpu_train.py"), *MODELS])
    measured = [json.loads(line) for line in said.splitlines()]
    with ThreadPoolExecutor() as pool:
        planned = pool.map(lambda name: _planned(name, device), MODELS)
    rows = zip(MODELS, measured, planned, strict=True)
    return {"device": device, "models": [{"model": one, "measured": is_, "predicted": was} for one, is_, was in rows]}


def resume() -> dict[str, Any]:
    """Ranks that are killed while they train on a GPU: equal to torchrun's run, bit for bit? How soon do they go on?"""
    with ThreadPoolExecutor() as pool:
        runs = pool.map(lambda launch: kill_and_compare(launch, environment_of_ranks()), LAUNCHES)
        return {"runs": list(runs)}


def stuck() -> dict[str, Any]:
    """A rank that waits half a minute for a kernel, and one that waits for it: who was named meanwhile, with which line, how soon."""
    return _said_of(_STUCK, 2)


def behind() -> dict[str, Any]:
    """An NCCL rank whose collective waits half a minute behind a kernel: what was said of it meanwhile."""
    return _said_of(_BEHIND, 1)


def _said_of(text: str, ranks: int) -> dict[str, Any]:
    with _Project() as project:
        begin = time.monotonic()
        project.run(text, "--nproc-per-node", str(ranks))
        seconds = time.monotonic() - begin
        why = project.why()
    return {
        "seconds_of_the_job": round(seconds, 1),
        "findings": [
            {key: one.get(key) for key in ("code", "title", "ranks", "confidence", "detected_after_seconds", "saw")}
            for one in [*why["findings"], *why["earlier"]]
        ],
        "not_judged": why["not_judged"],
    }


def overhead() -> dict[str, Any]:
    """One model trained without paceline, with it, and with its state kept, in turn: milliseconds of a step."""
    script = str(HERE / "gpu_train.py")
    argv = ("residual_deep", "--steps", "100")
    ways: dict[str, Callable[[_Project], str]] = {
        "bare": lambda _: _output([sys.executable, script, *argv]),
        "watched": lambda project: project.run_file(script, *argv),
        "resumable": lambda project: project.run_file(script, *argv, options=("--resume", "auto")),
    }
    rounds = []
    for turn in range(3):
        with _Project() as project:
            names = list(ways)[turn:] + list(ways)[:turn]
            rounds.append({name: json.loads(ways[name](project).strip().splitlines()[-1])["step_ms"] for name in names})
    ratios = {name: statistics.median(one[name] / one["bare"] for one in rounds) for name in ("watched", "resumable")}
    return {"rounds": rounds, "median_ratio": ratios}


def faults() -> dict[str, Any]:
    """Out of memory on a GPU must be C07; clocks must be read for S06, and a healthy GPU must have none."""
    with _Project() as project:
        project.run(_TOO_MUCH, fails=True)
        out_of_memory = [one["code"] for one in project.why()["findings"]]
    with _Project() as project:
        project.run(_BUSY)
        healthy = project.why()
    return {
        "out_of_memory": out_of_memory,
        "healthy": [one["code"] for one in healthy["findings"]],
        "not_judged": healthy["not_judged"],
    }


def tests() -> dict[str, Any]:
    """The tests that need a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--timeout", "200", "-p", "no:benchmark"],
        cwd=HERE.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    failures = [line for line in lines if line.startswith(("E  ", "FAILED"))]
    return {"exit_code": done.returncode, "last_line": lines[-1], "failures": failures[:40]}


def recorders() -> dict[str, Any]:
    """One NCCL rank in three situations, with torch's timing of collectives and without: what each recorder answers, and how soon.

    What timing costs: microseconds of a small all_reduce without and with it, in turn.
    """
    script = [sys.executable, str(HERE / "gpu_nccl.py")]
    without, timed = ({**os.environ, "TORCH_NCCL_ENABLE_TIMING": value} for value in "01")
    # One after the other, because they share the address of NCCL's own service.
    answers = [
        json.loads(_output([*script, name], environment=environment))
        for name in SITUATIONS
        for environment in (without, timed)
    ]
    rounds = [
        {
            name: json.loads(_output([*script, "timing"], environment=environment))["us_of_a_call"]
            for name, environment in pair
        }
        for pair in 3 * ([("without", without), ("timed", timed)], [("timed", timed), ("without", without)])
    ]
    return {
        "answers": answers,
        "rounds": rounds,
        "median_ratio": statistics.median(one["timed"] / one["without"] for one in rounds),
    }


PIECES: dict[str, Callable[[], dict[str, Any]]] = {
    piece.__name__: piece
    for piece in (telemetry, nccl, recorders, shared, faults, stuck, behind, tests, resume, overhead, memory)
}


def gpu_names() -> list[str]:
    """Names of the GPUs that NVML knows of; empty without one."""
    return [gpu.name or gpu.uuid for gpu in read_gpus().gpus or ()]


class _Project:
    """A directory with one run."""

    def __enter__(self) -> "_Project":
        self._folder = tempfile.TemporaryDirectory(prefix="paceline-gpu-")
        self._path = Path(self._folder.name)
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def run(self, text: str, *options: str, fails: bool = False) -> str:
        """Run a script under paceline; its output."""
        script = self._path / "script.py"
        script.write_text(text)
        return self._paceline("run", "--set", "progress=off", *options, str(script), fails=fails)

    def run_file(self, script: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """Run a file under paceline; its output."""
        return self._paceline("run", "--set", "progress=off", *options, script, *arguments)

    def why(self) -> dict[str, Any]:
        """The answer of `paceline why`."""
        found: dict[str, Any] = json.loads(self._paceline("why", "--json"))
        return found

    def telemetry(self) -> list[dict[str, Any]]:
        """The lines of the recording's telemetry."""
        files = self._path.glob(".paceline/runs/*/hosts/*/telemetry.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def _paceline(self, *argv: str, fails: bool = False) -> str:
        return _output([sys.executable, "-m", "paceline", *argv], cwd=self._path, fails=fails)


def _output(
    command: list[str], cwd: Path | None = None, fails: bool = False, environment: Mapping[str, str] = os.environ
) -> str:
    own = {**environment, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _planned(name: str, device: str) -> dict[str, Any]:
    options = ["--model", f"gpu_models:{name}", "--device", device, "--devices-per-host", "1", "--json"]
    found: dict[str, Any] = json.loads(_output([sys.executable, "-m", "paceline", "plan", *options], cwd=HERE))["rows"][
        0
    ]
    parts = found["memory"]["parts_bytes"]
    # What torch's allocator does not hold, such as the CUDA context, is not in max_memory_allocated() either.
    return {
        "allocated_bytes": sum(parts.values()) - parts["other"],
        "step_ms": found["step_seconds"] * 1e3,
        "step_ms_low": found["step_seconds_low"] * 1e3,
        "step_ms_high": found["step_seconds_high"] * 1e3,
    }


def _bench(*options: str) -> dict[str, Any]:
    argv = ["bench", "all_reduce", "-b", "1M", "-e", "64M", "-f", "4", "-n", "10", "--json", *options]
    found: dict[str, Any] = json.loads(_output([sys.executable, "-m", "paceline", *argv]))
    return {str(row["size"]): row for row in found["results"]}


def _gpu_count() -> int:
    return max(1, len(gpu_names()))


def _name() -> str:
    name = gpu_names()[0]
    return name.removeprefix("NVIDIA ").strip()


def _numbers(samples: list[dict[str, Any]], name: str) -> list[float]:
    return [sample[name] for sample in samples if isinstance(sample.get(name), int | float)]
