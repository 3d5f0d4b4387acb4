"""Row of bench/engines.py: ranks on two Slurm nodes, by `paceline submit --engine slurm` and by an sbatch script with `srun torchrun`."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engines_ray import LIMIT_SECONDS, OURS, environment

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "parts" / "engines" / "places"))
import slurm_cluster

# As PyTorch's own example for Slurm has it, but for --kill-on-bad-exit: a rank that dies at exit, as gloo's now and then does, leaves
# the other node's torchrun waiting for good.
THEIRS = f"""\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --output=output
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun --kill-on-bad-exit=1 {Path(sys.executable).parent}/torchrun --nnodes 2 --nproc-per-node 1 \\
    --rdzv-id $SLURM_JOB_ID --rdzv-backend c10d --rdzv-endpoint $head:29511 train.py $1
"""


def missing() -> str | None:
    return slurm_cluster.missing()


@contextmanager
def on_a_cluster(folder: Path) -> Iterator[tuple[Callable[[Path], float], Callable[[Path], float]]]:
    """A controller and two nodes on emulated hosts, for both sides."""
    with slurm_cluster.SlurmCluster(folder / "slurm", environment()) as cluster:
        yield lambda own: ours(own, cluster.environ), lambda own: theirs(own, cluster.environ)


def ours(own: Path, environ: Mapping[str, str]) -> float:
    (own / "train.py").write_text(OURS)
    argv = [sys.executable, "-m", "paceline", "submit", "--engine", "slurm", "--nnodes", "2", "--follow"]
    return seconds([*argv, "train.py", str(own / "stamp")], own, environ)


def theirs(own: Path, environ: Mapping[str, str]) -> float:
    (own / "train.py").write_text(OURS)
    (own / "job.sbatch").write_text(THEIRS)
    return seconds(["sbatch", "--wait", "job.sbatch", str(own / "stamp")], own, environ)


def seconds(argv: Sequence[str], own: Path, environ: Mapping[str, str]) -> float:
    """From the start of the command to the stamp of rank 0; stays until the job has ended, however it does: only the step is timed."""
    started_ns = time.time_ns()
    with (own / "said").open("wb") as said:
        done = subprocess.run(argv, cwd=own, env=environ, stdout=said, stderr=said, timeout=LIMIT_SECONDS, check=False)
    stamp = own / "stamp"
    if not stamp.exists():
        told = "".join(file.read_text()[-4000:] for file in (own / "said", own / "output") if file.exists())
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}\n{told}")
    return (int(stamp.read_text()) - started_ns) / 1e9
