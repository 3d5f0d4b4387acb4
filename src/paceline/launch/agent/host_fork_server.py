"""A host's fork server over all attempts: when it is started, what the user is told where ranks are no forks, and when it is ended."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paceline.launch.agent.fork_server_client import ForkServer, start_fork_server, why_not
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.workers import WorkerSpec
from paceline.recording.ring import RingHeader

FIRST_STEP_SECONDS = 0.2
# Several times what the import takes on a busy machine. A fork server that is stopped must not keep the ranks.
LOADING_SECONDS = 15.0


@dataclass(slots=True)
class HostForkServer:
    """The fork server of one host, from the first steps of its ranks on."""

    identity: HostIdentity
    """Names and settings of this host in the run."""
    rank_count: int
    """Number of the host's ranks."""
    lasting: set[int]
    """Process ids that are no leftovers of an attempt: that of the fork server is added."""
    event: Callable[..., None]
    """Records one event of this host."""
    server: ForkServer | None = field(default=None, init=False)
    """The fork server; None: there is none yet, or it has refused."""
    # Why the next attempt cannot be forked, as far as this is known before the fork server was asked.
    _refused: str = field(default="its ranks had not made their first step", init=False)

    async def loaded(self, is_wanted: Callable[[], bool]) -> None:
        """Wait while it imports torch, for up to 15 s. `is_wanted`: the attempt has not been given up."""
        if self.server is not None:
            await self.server.loaded(LOADING_SECONDS, is_wanted)

    def ranks_started(self, attempt: int, not_forked: str) -> None:
        """Say why the ranks of a restart are new processes. `not_forked`: what the fork server has answered; "": nothing."""
        refused = not_forked if self.server is not None else self._refused
        if attempt and refused:
            self.event("notice", text=f"the ranks of {self.identity.name} are new processes, not forks: {refused}")
        if not_forked and not (self.server is not None and self.server.is_loading):
            self.close()

    async def start_after_first_step(
        self,
        spec: WorkerSpec,
        attempt: int,
        headers: Callable[[], Mapping[int, RingHeader] | None],
        *,
        keeps_state: bool,
    ) -> None:
        """Start the fork server once every rank of this host has made a step, if there is none.

        `spec`: of one of the ranks; `headers`: rank -> the header of its ring, None: the attempt is over; `keeps_state`: the ranks keep
        their state.

        Raises:  OSError: the interpreter cannot be executed
        """
        found: Mapping[int, RingHeader] | None = {}
        while self.server is None and found is not None:
            if len(found) >= self.rank_count and all(header.step_count for header in found.values()):
                self._start(spec, attempt, found, keeps_state=keeps_state)
                return
            await asyncio.sleep(FIRST_STEP_SECONDS)
            found = headers()

    def _start(self, spec: WorkerSpec, attempt: int, headers: Mapping[int, RingHeader], *, keeps_state: bool) -> None:
        self._refused = why_not(headers.values(), spec.argv, self.identity.python, spec.environment)
        if not self._refused:
            self.server = start_fork_server(
                self.identity.python, spec.environment, spec.working_directory, keeps_state=keeps_state
            )
            self.lasting.add(self.server.pid)
        self.event("fork_server", attempt=attempt, refused=self._refused)

    def close(self) -> None:
        """End the fork server. Ranks that were forked go on."""
        if self.server is not None:
            self.server.close()
            self.lasting.discard(self.server.pid)
            self.server = None
