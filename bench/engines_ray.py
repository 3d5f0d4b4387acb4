"""Rows of bench/engines.py: two ranks on one Ray node, by `paceline submit --engine ray` and by Ray Train's TorchTrainer."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RANKS = 2
LIMIT_SECONDS = 180.0
# What both sides train; torch is imported by the ranks alone.
STEP = """\
def first_step(stamp):
    import os, time, torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 and dist.get_rank() == 0:
            with open(stamp + ".part", "w") as file:
                file.write(str(time.time_ns()))
            os.rename(stamp + ".part", stamp)
"""
OURS = STEP + "import sys; first_step(sys.argv[1])\n"
THEIRS = (
    STEP
    + f"""
import sys, ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
ray.init(address=sys.argv[3], log_to_driver=False, **({{"include_dashboard": False}} if sys.argv[3] == "local" else {{}}))
TorchTrainer(
    lambda config: first_step(config["stamp"]),
    train_loop_config={{"stamp": sys.argv[1]}},
    scaling_config=ScalingConfig(num_workers={RANKS}, use_gpu=False),
    run_config=RunConfig(storage_path=sys.argv[2]),
).fit()
"""
)
HAS_TRAIN = "import ray.train.torch, paceline"


def train_python(venv: Path | None) -> str:
    """The interpreter that has Ray Train beside what this one has; `venv` is made where it is not there."""
    if venv is None:
        return sys.executable
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        site = next(path for path in sys.path if path.endswith("site-packages"))
        (next(venv.glob("lib/python*/site-packages")) / "base.pth").write_text(
            f"import site; site.addsitedir({site!r})\n"
        )
        version = subprocess.check_output(
            [sys.executable, "-c", "import ray; print(ray.__version__)"], text=True
        ).strip()
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"ray[train]=={version}"], check=True)
    return str(python)


def missing(python: str) -> str | None:
    done = subprocess.run([python, "-c", HAS_TRAIN], capture_output=True, text=True, env=environment(), check=False)
    if done.returncode == 0:
        return None
    return f"{(done.stderr.strip().splitlines() or ['?'])[-1]}: pip install 'ray[train]', or --venv DIR"


@contextmanager
def embedded(python: str, folder: Path) -> Iterator[tuple[Callable[[Path], float], Callable[[Path], float]]]:
    """Ray starts with the job, on both sides."""
    yield lambda own: ours(own, python, "local"), lambda own: theirs(own, python, "local")


@contextmanager
def on_a_cluster(python: str, folder: Path) -> Iterator[tuple[Callable[[Path], float], Callable[[Path], float]]]:
    """One node that is there already, for both sides."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [
        "start",
        "--head",
        "--block",
        "--node-ip-address",
        "127.0.0.1",
        "--port",
        str(port),
        "--num-cpus",
        str(RANKS + 1),
    ]
    argv += ["--include-dashboard", "false", "--object-store-memory", "200000000", "--temp-dir", str(folder / "ray")]
    with (folder / "ray.log").open("wb") as log:
        head = subprocess.Popen(
            [python, "-m", "ray.scripts.scripts", *argv],
            env=environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"127.0.0.1:{port}"
    try:
        wait_for_cluster(python, address)
        yield lambda own: ours(own, python, address), lambda own: theirs(own, python, address)
    finally:
        # It ends what it started.
        head.terminate()
        head.wait(60)


def wait_for_cluster(python: str, address: str) -> None:
    program = f"import ray; ray.init(address={address!r}, log_to_driver=False, logging_level='CRITICAL'); ray.nodes()"
    deadline = time.monotonic() + LIMIT_SECONDS
    while subprocess.run([python, "-c", program], env=environment(), capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"the Ray cluster at {address} did not come up")
        time.sleep(0.5)


def ours(own: Path, python: str, address: str) -> float:
    (own / "train.py").write_text(OURS)
    options = [f"address={address}", f"cpus_per_host={RANKS}"]
    argv = ["submit", "--engine", "ray", "--follow", "--nproc-per-node", str(RANKS)]
    argv += [word for option in options for word in ("--option", option)]
    return seconds([python, "-m", "paceline", *argv, "train.py", str(own / "stamp")], own)


def theirs(own: Path, python: str, address: str) -> float:
    (own / "train_ray.py").write_text(THEIRS)
    return seconds([python, "train_ray.py", str(own / "stamp"), str(own / "results"), address], own)


def seconds(argv: Sequence[str], own: Path) -> float:
    """From the start of the command to the stamp of rank 0; stays until the command has ended."""
    started_ns = time.time_ns()
    with (own / "output").open("wb") as output:
        done = subprocess.run(
            argv, cwd=own, env=environment(), stdout=output, stderr=output, timeout=LIMIT_SECONDS, check=False
        )
    stamp = own / "stamp"
    if done.returncode or not stamp.exists():
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}\n{(own / 'output').read_text()[-4000:]}")
    return (int(stamp.read_text()) - started_ns) / 1e9


def environment() -> dict[str, str]:
    """The same for both sides; Ray reports nothing and asks for no token."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PACELINE_"))}
    return {**clean, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
