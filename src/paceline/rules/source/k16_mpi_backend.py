"""K16: the backend "mpi" for ranks that MPI did not start."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import argument, constant_text, script_of

PAGE = """\
The backend "mpi", and ranks that MPI did not start

What it means: The script calls torch.distributed's init_process_group("mpi"). torch's wheels have no MPI. In a job the name means
  `paceline_mpi`, over mpi4py; that needs ranks that mpirun started, and this job's ranks are started by paceline.
Why it matters: MPI.COMM_WORLD of each rank holds that rank alone, and processes that were started apart cannot be joined afterwards.
  The call is refused on every rank (X23; X20 where mpi4py is missing).
What to do: init_process_group("paceline"), or "gloo" (CPU), "nccl" (GPU): no MPI needed. Or let mpirun start the ranks:
  `paceline run --no-python mpirun -n 4 python train.py`. In the module API of smdistributed the name "mpi" works as it stands.
Source: docs/smdistributed.md, MPI; torch.distributed, "Backends".
"""


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each call that names the backend."""
    if before.hosts * (before.ranks_per_host or 2) == 1:
        return
    script = script_of(before)
    for call in script.calls("torch.distributed.init_process_group"):
        backend = constant_text(argument(call, "backend", 0)) or ""
        # An alias that is smdistributed's in one branch of a try chooses for itself.
        certain = script.dotted(call.func) == {"torch.distributed.init_process_group"}
        if backend.lower() == "mpi" and certain and not script.is_caught(call, "RuntimeError", "Exception", ""):
            other = "nccl" if before.gpus_per_host else "gloo"
            yield script.finding(
                call,
                "K16",
                'the backend "mpi" needs ranks that mpirun started; this job starts them itself',
                next=f'{script.place(call)}: init_process_group("paceline"), or "{other}"',
                severity=script.severity(call),
            )


RULE = Rule(code="K16", page=PAGE, find=find)
