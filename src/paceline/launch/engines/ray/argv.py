"""The arguments of the agent of each host, before and after it is known where the first one is."""

from paceline.launch.engines.submission import Submission, rendezvous_argv, run_argv


def agent_argv(job: Submission, node_rank: int, first_address: str, port: str) -> tuple[str, ...]:
    """The arguments of `paceline run` on the host of this node rank."""
    # The port is the last word; a plan has none yet.
    meeting = rendezvous_argv(job.hosts, str(node_rank), first_address, 0)
    return (*meeting[:-1], *((port,) if meeting else ()), *run_argv(job))
