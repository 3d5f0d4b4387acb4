"""K13: the script starts its own ranks, and the launcher starts several of it."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import is_of_one_rank
from paceline.rules.script import script_of

PAGE = """\
Ranks that start ranks

What it means: The script calls torch.multiprocessing.spawn, and the job starts the script more than once on each host. Every one of
  these processes spawns as many again.
Why it matters: The spawned processes all believe to be the only job: they fight for one port, give themselves the same ranks, and share
  each GPU. The job hangs in init_process_group or trains several times at once.
What to do: Start the script once a host: `--nproc-per-node 1`. Or remove the call, let the launcher start the ranks, and read RANK,
  LOCAL_RANK and WORLD_SIZE from the environment. A call under a condition is not reported.
Source: torch.multiprocessing.spawn; torch.distributed, "Launch utility".
"""


def find(before: BeforeRun) -> Iterator[Finding]:
    """Each such call that the script certainly reaches."""
    if before.ranks_per_host is None or before.ranks_per_host == 1:
        return
    script = script_of(before)
    for call in script.calls("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"):
        if not script.is_conditional(call) and not is_of_one_rank(script, call):
            yield script.finding(
                call,
                "K13",
                f"every one of the {before.ranks_per_host} ranks of a host spawns ranks of its own here",
                next="--nproc-per-node 1, or no spawn: the launcher has started the ranks",
            )


RULE = Rule(code="K13", page=PAGE, find=find)
