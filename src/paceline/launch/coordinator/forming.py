"""What the hosts of one attempt are told, and what the recording keeps of it."""

from typing import Any

from paceline.facts import Job
from paceline.launch.job.messages import StartAttemptMessage
from paceline.launch.job.state import StartAttempt
from paceline.launch.ports import free_store_port


def form_message(job: Job, form: StartAttempt, address: str) -> StartAttemptMessage:
    """The word to every host of the attempt; `address` is the first host's, where rank 0 serves the store."""
    return StartAttemptMessage(
        attempt=form.attempt,
        placements=form.placements,
        master_addr=address,
        store_port=job.store_port or free_store_port(),
        gradients=job.gradients,
        allow_lossy=job.allow_lossy,
        together=job.fetches,
    )


def formed_fields(form: StartAttempt, message: StartAttemptMessage) -> dict[str, Any]:
    """The fields of attempt_started."""
    return {
        "attempt": form.attempt,
        "world_size": form.world_size,
        "store_port": message.store_port,
        "hosts": [
            {"host": p.host, "node_rank": p.node_rank, "first_rank": p.first_rank, "ranks": p.ranks}
            for p in form.placements
        ],
    }
