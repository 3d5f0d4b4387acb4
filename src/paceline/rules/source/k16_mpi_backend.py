"""K16: the backend "mpi" for ranks that MPI did not start."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import argument, constant_text, script_of

PAGE = """\
The backend "mpi", and ranks that MPI did not start

What it means: The script calls torch.distributed's init_process_group("mpi"). torch's wheels have no MPI. In a job
  the name means `paceline_mpi`, which uses mpi4py and needs ranks that mpirun started. paceline starts the ranks of
  this job.
Why it matters: MPI.COMM_WORLD of each rank contains that rank alone. Processes that were started separately cannot be
  joined afterwards. The call is refused on every rank (X03).
What to do: Use init_process_group("paceline"), "gloo" (CPU) or "nccl" (GPU), which need no MPI. Or let mpirun start
  the ranks: `paceline run --no-python mpirun -n 4 python train.py`. In the module API of smdistributed the name "mpi"
  works unchanged.
Source: docs/smdistributed.md, MPI; torch.distributed, "Backends".
"""


def find(before: BeforeRun) -> Iterator[Finding]:
    """A finding for each call that names the backend."""
    if before.rank_count == 1:
        return
    script = script_of(before)
    for call in script.calls("torch.distributed.init_process_group"):
        backend = constant_text(argument(call, "backend", 0)) or ""
        # If an alias is smdistributed's in one branch of a try, the script chooses for itself.
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
