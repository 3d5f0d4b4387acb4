"""A made-up attempt on one host, without files: with what its ranks would be started."""

from pathlib import Path

from paceline.contract import Prepared
from paceline.contract.tree import Tree
from paceline.facts import Job, Placement, Program, ProgramKind
from paceline.launch.agent.host_attempt import HostAttempt, HostIdentity
from paceline.launch.agent.scratch import Scratch
from paceline.launch.job.messages import StartAttemptMessage
from paceline.recording.layout import RunDirectory

TWO_HOSTS = (
    Placement(host="algo-1", address="127.0.0.2", node_rank=0, first_rank=0, ranks=4),
    Placement(host="algo-2", address="127.0.0.3", node_rank=1, first_rank=4, ranks=4),
)


def host_attempt(*, environ=None, placements=TWO_HOSTS, code_dir=None, ras_address=None, job=None, **message):
    """An attempt on the last of these hosts. `environ`: what the ranks inherit; `job`: fields of the job; `message`: of the order."""
    here = Path("/none")
    return HostAttempt(
        job=Job(**{"name": "mine", "program": Program(kind=ProgramKind.SCRIPT, target="train.py"), **(job or {})}),
        identity=HostIdentity(
            run_id="r-000001", job_name="mine", name=placements[-1].host, mark="m", environ=environ or {}
        ),
        directory=RunDirectory(here),
        scratch=Scratch(rings=here, sockets=here, errors=here, shared=here, roots=()),
        message=StartAttemptMessage(
            **{"attempt": 2, "placements": placements, "master_addr": "algo-1", "store_port": 20001, **message}
        ),
        prepared=Prepared(tree=Tree(here), environment={}, script_arguments=(), working_directory=code_dir),
        ras_address=ras_address,
    )
