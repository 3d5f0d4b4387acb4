"""Trains some of gpu_models.py: `python bench/gpu_train.py NAME... [--device cuda|cpu] [--steps N]`. Prints a line of JSON for each."""

import argparse
import gc
import json
import statistics
import time

import torch
from gpu_models import MODELS


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("names", nargs="+", choices=sorted(MODELS), metavar="NAME")
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--steps", type=int, default=20)
    asked = arguments.parse_args()
    for name in asked.names:
        print(json.dumps(train(name, asked.device, asked.steps)), flush=True)


def train(name: str, device: str, steps: int) -> dict[str, float | int | str]:
    """Milliseconds of a step (median, after five) and the most bytes that torch had allocated."""
    made = MODELS[name]()
    model, batch = made["model"].to(device), made["batch"].to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    on_gpu = device.startswith("cuda")
    if on_gpu:
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps + 5):
        begin = time.perf_counter()
        optimizer.zero_grad()
        made["loss"](model(batch), batch).backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    return {
        "model": name,
        "step_ms": statistics.median(times[5:]) * 1e3,
        "peak_bytes": peak,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    main()
